//go:build linux

package conformance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/verify"
	"github.com/caisson-dev/caisson/test/harness"
)

// code returns the typed code of a command that ran with --json.
func code(r harness.Result) string {
	for _, text := range []string{r.Stdout, r.Stderr[max(0, strings.LastIndex(r.Stderr, "\n{")):]} {
		var v struct{ Error struct{ Code string } }
		if json.Unmarshal([]byte(text), &v) == nil && v.Error.Code != "" {
			return v.Error.Code
		}
	}
	return ""
}

// TestControlSocketReach asks for the control sockets, the state and the
// sockets of other programs by way of --ro and --at: refused, or masked.
func TestControlSocketReach(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := hostile(t, id, map[string]string{"a.txt": "a\n"})
		s := plant(t, id, repo)
		id.Open(t, repo, "victim")
		socks, _ := filepath.Glob(id.Runtime + "/*.sock")
		if len(socks) != 1 {
			t.Fatalf("control sockets: %q", socks)
		}
		alias, hop := id.Tmp+"/alias", id.Tmp+"/hop"
		for link, to := range map[string]string{alias: id.Runtime, hop: id.Dir, id.Tmp + "/statelink": id.State, id.Tmp + "/socklink": socks[0]} {
			if err := os.Symlink(to, link); err != nil {
				t.Fatal(err)
			}
		}
		mustRefuse := []string{id.Runtime, id.Dir, id.State, id.State + "/tasks", alias, alias + "/", hop, hop + "/run", id.Tmp + "/statelink", id.Tmp + "/socklink", socks[0],
			id.Runtime + "/../run", id.Dir + "/./state", id.Runtime + ":/opt/x", id.Dir + ":/opt/x", filepath.Dir(id.Dir), "/", "/proc", "/sys", "/dev", "/proc/self/root", "/proc/self/cwd",
			"relative", "", ":", id.Dir + "x/nonexistent", repo + "/a.txt:" + id.Runtime, id.Tmp + ":/proc", id.Tmp + ":/usr", id.Tmp + ":/", id.Tmp + ":/run/boundary", id.Tmp + ":/etc"}
		for _, ro := range mustRefuse {
			r := id.Caisson(t, repo, "run", "--json", "--ro", ro, "--", repo+"/attacker", "whoami")
			if r.Exit != 125 || r.Stdout != "" || code(r) == "" || code(r) == "internal" {
				t.Errorf("--ro %q: %v", ro, r)
			}
		}
		if _, err := os.Lstat("/usr/x"); err == nil {
			t.Fatal("/usr/x is there: what may not be made cannot be shown")
		}
		for _, at := range []string{"/", "/usr", "/etc", "/proc", "/dev", "/dev/shm", "/run", "/run/boundary", "/run/boundary/out", "/tmp", "/var", id.State, id.Runtime, id.Dir, "relative", "/proc/self/cwd", "/usr/x", id.State + "/x"} {
			r := id.Caisson(t, repo, "run", "--json", "--at", at, "--", "/bin/true")
			if r.Exit != 125 || code(r) == "" || code(r) == "internal" {
				t.Errorf("--at %q: %v", at, r)
			}
			if _, err := os.Lstat("/usr/x"); err == nil {
				t.Errorf("--at %q has made /usr/x on the host", at)
			}
		}
		// Sockets in a folder that may be shown are masked, also deep ones.
		shared := id.Dir + "/shared"
		for _, p := range []string{"/s", "/deep/er/s", "/.hidden/s"} {
			id.Mkdir(t, filepath.Dir(shared+p))
			s.unix(t, id, "unix", shared+p+".stream")
			s.unix(t, id, "unixgram", shared+p+".dgram")
			s.unix(t, id, "unixpacket", shared+p+".seq")
		}
		in := config{Inside: true, Work: repo, Unix: []string{shared + "/s", shared + "/deep/er/s", shared + "/.hidden/s", "/opt/shared/s"}, Files: s.Files, Secret: s.Secret,
			Known: [][2]string{{"P20", socks[0]}, {"P20", "/opt/shared/s.stream"}}, Forbidden: []string{id.State, socks[0]}}
		control := in
		control.Inside, control.Work, control.Unix = false, id.Tmp, in.Unix[:3]
		s.log()
		for _, ro := range []string{shared, shared + ":/opt/shared"} {
			r := id.Caisson(t, repo, "run", "--ro", ro, "--", repo+"/attacker", jsonOf(in), "P01", "P16", "P20")
			if r.Exit != 0 {
				t.Fatal(r)
			}
			for key, o := range outcomes(t, r.Stdout) {
				if o.Errno == "" || o.Errno != "EXDEV" && !verify.Refused(o.Prop, o.Errno) {
					t.Errorf("--ro %s: %s: %q %s", ro, key, o.Errno, o.Detail)
				}
			}
			s.untouched(t)
		}
		reached := 0
		for _, o := range outcomes(t, outside(id, id.Tmp, jsonOf(control), "P16").Stdout) {
			if o.Errno == "" {
				reached++
			}
		}
		if reached == 0 || len(s.log()) == 0 {
			t.Error("the control reaches no socket")
		}
		// One that appears later in a folder that is shown cannot be masked; it is
		// a finding that the person who asked for the folder sees.
		task := id.Open(t, repo, "--ro", shared)
		s.unix(t, id, "unix", shared+"/later.stream")
		r := execAttacker(t, id, repo, task, jsonOf(config{Inside: true, Work: repo, Unix: []string{shared + "/later"}}), "P16")
		if o := outcomes(t, r.Stdout)["P16 connect to "+shared+"/later.stream"]; o.Errno == "" {
			show := id.OK(t, repo, "show", "--json", task)
			if !strings.Contains(show, shared) || !strings.Contains(show, `"findings"`) {
				t.Errorf("a later socket can be reached and no finding says so:\n%s", show)
			}
			t.Log("a socket that is made later in a shown folder can be reached (Landlock below ABI 9): said in the findings")
		}
		alive(t, id, repo, "victim")
		s.log()
	})
}
