package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/door/cli"
)

// pages writes all pages and returns them by file name.
func pages(t *testing.T, epoch int64) (string, map[string]string) {
	t.Helper()
	dir := t.TempDir()
	stale := filepath.Join(dir, "caisson-gone.1")
	if err := os.WriteFile(stale, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, "1.2.3", epoch); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[f.Name()] = string(b)
	}
	return dir, got
}

func TestEveryCommandHasAPage(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "")
	_, got := pages(t, 86400)
	want := cli.Manual()
	if len(got) != len(want) || len(want) < 14 {
		t.Errorf("%d files, %d pages", len(got), len(want))
	}
	for _, p := range want {
		text := got[p.Name+".1"]
		for _, part := range []string{".TH \"" + strings.ReplaceAll(strings.ToUpper(p.Name), "-", `\-`) + "\" 1 \"1970\\-01\\-02\" \"caisson 1.2.3\"", ".SH \"NAME\"", ".SH \"SYNOPSIS\"", ".SH \"EXIT STATUS\"", ".SH \"ENVIRONMENT\"", ".SH \"FILES\"", ".SH \"SEE ALSO\""} {
			if !strings.Contains(text, part) {
				t.Errorf("%s has no %s", p.Name, part)
			}
		}
		for _, f := range p.Flags {
			if !strings.Contains(text, `\fB`+escape("--"+f.Name)+`\fR`) || f.Usage == "" {
				t.Errorf("%s: the flag --%s has no entry", p.Name, f.Name)
			}
		}
		for _, odd := range []string{"cobra", "Auto generated", "[flags] [flags]", "\t", "for " + p.Name, "### "} {
			if strings.Contains(text, odd) {
				t.Errorf("%s has %q", p.Name, odd)
			}
		}
		for i, c := range []byte(text) {
			if c >= 0x80 || c < 0x20 && c != '\n' {
				t.Errorf("%s has byte %#x at %d", p.Name, c, i)
				break
			}
		}
	}
}

func TestTwoRunsGiveTheSameBytes(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	_, a := pages(t, 1)
	_, b := pages(t, 2)
	for n := range a {
		if a[n] != b[n] || !strings.Contains(a[n], `2001\-09\-09`) {
			t.Errorf("%s differs, or has another date than SOURCE_DATE_EPOCH", n)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "today")
	if write(t.TempDir(), "", 0) == nil {
		t.Error("a date that is none is taken")
	}
}

// TestFormattersTakeThePages asks every formatter that is there for warnings.
func TestFormattersTakeThePages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "86400") // groff reads it as well
	dir, got := pages(t, 0)
	for _, argv := range [][]string{{"groff", "-man", "-Tutf8", "-ww", "-z"}, {"mandoc", "-Tlint", "-Wwarning"}} {
		prog, err := exec.LookPath(argv[0])
		if err != nil {
			t.Logf("no %s on this machine", argv[0])
			continue
		}
		for n := range got {
			var out bytes.Buffer
			c := exec.Command(prog, append(argv[1:], filepath.Join(dir, n))...)
			c.Stdout, c.Stderr = &out, &out
			err := c.Run()
			// Of groff's own installation, not of the page: a file of /etc that some
			// machines and every boundary are without.
			text := regexp.MustCompile(`(?m)^.*can't find macro file 'man\.local'\n`).ReplaceAllString(out.String(), "")
			if err != nil || text != "" {
				t.Errorf("%s: %s: %v\n%s", argv[0], n, err, text)
			}
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("no groff on this machine")
	}
	text, err := exec.Command(groff, "-man", "-Tascii", "-P-cbou", filepath.Join(dir, "caisson-diff.1")).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"caisson-diff - exact change set", "caisson diff [flags] TASK", "--name-status", "caisson diff t5k | git apply --3way", "CAISSON_STATE_DIR"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page of diff does not show %q:\n%s", want, text)
		}
	}
	// The control: a broken page is noticed.
	bad := filepath.Join(dir, "bad.1")
	if err := os.WriteFile(bad, []byte(".TH X 1\n.SH \"A\n.nosuchrequest x\n\\[nosuchchar]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _ := exec.Command(groff, "-man", "-Tutf8", "-ww", "-z", bad).CombinedOutput(); len(out) == 0 {
		t.Error("groff says nothing about a broken page")
	}
}
