package cli

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"1": 1, "512m": 512 << 20, "2g": 2 << 30, "2G": 2 << 30, "1.5g": 3 << 29, "4KiB": 4096, "10gb": 10 << 30, "1t": 1 << 40, " 1k ": 1024, "100b": 100, ".5k": 512,
	} {
		if got, err := parseSize("memory", in); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "g", "0", "0g", "-1", "-1g", "+1", "1e3", "inf", "nan", "0x10", "1.2.3", "2x", "1 g", "9999999999t", "0.0001", "1_000", "１"} {
		if got, err := parseSize("memory", in); task.CodeOf(err) != task.CodeUsage || task.HintOf(err) == "" {
			t.Errorf("%q: %d, %v; want a usage error with a hint", in, got, err)
		}
	}
}

func TestParseOthers(t *testing.T) {
	for in, want := range map[string]time.Duration{"30m": 30 * time.Minute, "90s": 90 * time.Second, "2h30m": 150 * time.Minute, "1.5h": 90 * time.Minute, "2d": 48 * time.Hour} {
		if got, err := parseTimeout(in); err != nil || got != want {
			t.Errorf("timeout %q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "30", "0s", "-1m", "soon", "d", "-2d", "0d", "99999d", "1x"} {
		if _, err := parseTimeout(in); task.CodeOf(err) != task.CodeUsage {
			t.Errorf("timeout %q: %v", in, err)
		}
	}
	if got, err := parseCPUs("1.5"); err != nil || got != 1.5 {
		t.Errorf("cpus: %v %v", got, err)
	}
	for _, in := range []string{"", "0", "-1", "inf", "NaN", "1e1", "many", "70000"} {
		if _, err := parseCPUs(in); task.CodeOf(err) != task.CodeUsage {
			t.Errorf("cpus %q: %v", in, err)
		}
	}
	if got, err := parsePids("512"); err != nil || got != 512 {
		t.Errorf("pids: %v %v", got, err)
	}
	for _, in := range []string{"", "0", "-1", "+5", "1.5", "9999999999"} {
		if _, err := parsePids(in); task.CodeOf(err) != task.CodeUsage {
			t.Errorf("pids %q: %v", in, err)
		}
	}
	for in, ok := range map[string]bool{"/a": true, "a": true, "/a:/b": true, "": false, ":/b": false, "/a:b": false, "/a:": false} {
		if err := parseRO(in); (err == nil) != ok {
			t.Errorf("ro %q: %v", in, err)
		}
	}
	env := []string{"A=old", "B=x=y", "A=new", "EMPTY="}
	for in, want := range map[string]string{"A": "A=new", "B": "B=x=y", "C=1=2": "C=1=2", "EMPTY": "EMPTY=", "D=": "D="} {
		if got, err := parseEnv(in, env); err != nil || got != want {
			t.Errorf("env %q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "=x", "NOPE", "A B=1", "X=a\x00b"} {
		if _, err := parseEnv(in, env); task.CodeOf(err) != task.CodeUsage {
			t.Errorf("env %q: %v", in, err)
		}
	}
}

func TestListsAreNeverNull(t *testing.T) {
	r := &task.DoctorReport{Backends: []task.BackendReport{{}}}
	fillLists(reflect.ValueOf(r))
	b, err := json.Marshal(r)
	if err != nil || strings.Contains(string(b), "null") {
		t.Errorf("%s %v", b, err)
	}
}

// FuzzParse: whatever is typed is read or refused, never zero or negative.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"1g", "1.5", "30m", "-1", "", "1e309", "9223372036854775807", "8388608t"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseSize("memory", s); err == nil && n <= 0 {
			t.Errorf("size %q: %d", s, n)
		}
		if n, err := parseCPUs(s); err == nil && (n <= 0 || math.IsInf(n, 0) || math.IsNaN(n)) {
			t.Errorf("cpus %q: %v", s, n)
		}
		if n, err := parseTimeout(s); err == nil && n <= 0 {
			t.Errorf("timeout %q: %v", s, n)
		}
		for i := range len(clean(s)) {
			if c := clean(s)[i]; c < 0x20 || c == 0x7f {
				t.Errorf("clean(%q) keeps %#x", s, c)
			}
		}
		_, _ = parseNameStatus([]byte(s))
	})
}

func TestRequest(t *testing.T) {
	parse := func(env []string, args ...string) (task.Request, error) {
		var f requestFlags
		cmd := &cobra.Command{Use: "open"}
		f.add(nil, cmd)
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		return f.request(cmd, env)
	}
	q, err := parse([]string{"CAISSON_NEED=NET=2,FS=3", "CAISSON_UNATTENDED=true", "SECRET=s3cret"},
		"--memory", "2g", "--cpus", "1.5", "--pids", "100", "--disk", "10g", "--timeout", "30m", "--net-bytes", "5g", "--net-connections", "7", "--net-rate", "9", "--ro", "/a:/b", "--ro", "/c", "--env", "SECRET", "--env", "K=V",
		"--grant", "ptrace", "--need", "NET=3", "--need", "fs=1", "--history", "base", "--at", "/x", "--base", "-weird", "--name", "n", "--keep", "never", "--trust", "--repo", "r", "--rootfs", "/root")
	if err != nil {
		t.Fatal(err)
	}
	if q.Limits != (task.Limits{MemoryBytes: 2 << 30, CPUs: 1.5, Pids: 100, DiskBytes: 10 << 30, Timeout: 30 * time.Minute, NetBytes: 5 << 30, NetConns: 7, NetRate: 9}) {
		t.Errorf("limits: %+v", q.Limits)
	}
	if q.Need.At(task.NET) != 3 || q.Need.At(task.FS) != 3 {
		t.Errorf("need %v: the higher of flag and environment counts", q.Need)
	}
	if strings.Join(q.Env, " ") != "SECRET=s3cret K=V" || !q.Trust || !q.Unattended || q.Base != "-weird" || q.Strategy != task.StrategyClone || q.Backend != "auto" || q.History != task.HistoryBase {
		t.Errorf("%+v", q)
	}
	for field, want := range map[string]string{"memory": "flag", "need": "flag+env CAISSON_NEED", "unattended": "env CAISSON_UNATTENDED", "backend": "default", "trust": "flag", "keep": "flag"} {
		if q.Origin[field] != want {
			t.Errorf("origin of %s: %q, want %q", field, q.Origin[field], want)
		}
	}
	for _, v := range q.Origin {
		if strings.Contains(v, "s3cret") {
			t.Error("the origin has a secret")
		}
	}
	if q, err := parse([]string{"CAISSON_UNATTENDED=0"}); err != nil || q.Unattended || q.Keep != task.KeepAuto {
		t.Errorf("%+v %v", q, err)
	}
	if _, err := parse([]string{"CAISSON_BACKEND=linux"}, "--backend", "linux"); err != nil {
		t.Errorf("equal backends: %v", err)
	}
	// What a person did not mean.
	for _, args := range [][]string{{"--dirty", "all"}, {"--dirty", "changed"}, {"--discard", "--keep", "always"}, {"--keep=always", "--discard"}} {
		if _, err := parse(nil, args...); task.CodeOf(err) != task.CodeUsage || task.HintOf(err) == "" {
			t.Errorf("%v: %v; want a usage error with a hint", args, err)
		}
	}
	for _, args := range [][]string{{"--dirty=all"}, {"--dirty", "--", "all"}, {"--dirty", "make", "all"}, {"--dirty=changed", "all"}, {"--discard", "--keep", "never"}} {
		if _, err := parse(nil, args...); (err != nil) != (args[0] == "--dirty=changed") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain ✓ ü": "plain ✓ ü", "a\x1b[31mb": `a\x1b[31mb`, "a\nb\tc\rd": `a\nb\tc\rd`, "\xff\xfe": `\xff\xfe`, "a\u009bb": `a\x9bb`,
		"rtl\u202eevil": `rtl\u202eevil`, "zero\u200bwidth": `zero\u200bwidth`, "\x7f": `\x7f`, "": "",
	} {
		if got := clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestDiffText(t *testing.T) {
	var out bytes.Buffer
	d := &diffText{w: &out, color: true}
	patch := "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n \tkeep\n--- gone\n+\x1b]0;title\x07\n"
	for _, c := range []byte(patch + "unfinished") { // in the worst pieces
		if _, err := d.Write([]byte{c}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	want := "\x1b[1mdiff --git a/x b/x\x1b[0m\n\x1b[1m--- a/x\x1b[0m\n\x1b[1m+++ b/x\x1b[0m\n\x1b[36m@@ -1,2 +1,2 @@\x1b[0m\n \tkeep\n\x1b[31m--- gone\x1b[0m\n\x1b[32m+\\x1b]0;title\\x07\x1b[0m\nunfinished"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"run", "open", "exec", "show", "close", "completion"}
	for in, want := range map[string]string{"rnu": "run", "opne": "open", "colse": "close", "comp": "completion", "xyzzy": "", "ls": "", "r": ""} {
		if got := sys.Nearest(in, names); got != want {
			t.Errorf("sys.Nearest(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestProgress: nothing for a second, then one line that erases itself.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "err")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		seen := func() string {
			synctest.Wait()
			b, _ := os.ReadFile(path)
			return string(b)
		}
		u := &ui{err: f, errTTY: true}
		u.progress("one")
		time.Sleep(progressDelay / 2)
		u.progress("two\x1b[2J")
		if s := seen(); s != "" {
			t.Errorf("too early: %q", s)
		}
		time.Sleep(progressDelay)
		if s := seen(); s != "\r\x1b[Kcaisson: two\\x1b[2J" {
			t.Errorf("after a second: %q", s)
		}
		u.clear()
		if s := seen(); !strings.HasSuffix(s, "\r\x1b[K") {
			t.Errorf("not erased: %q", s)
		}
		n := len(seen())
		u.hold(true)
		u.progress("three")
		time.Sleep(2 * progressDelay)
		if s := seen(); len(s) != n {
			t.Errorf("shown while the streams are a command's: %q", s[n:])
		}
	})
}

func TestEveryCodeIsExplained(t *testing.T) {
	if len(codeMeanings) != 24 {
		t.Errorf("%d codes are explained", len(codeMeanings))
	}
	for _, x := range task.Axes {
		if axisMeaning[x] == "" {
			t.Errorf("axis %s has no meaning", x)
		}
	}
}
