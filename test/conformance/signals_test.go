//go:build linux

package conformance

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestSignals is the rest of P28: what signals do to the processes that can be
// seen inside. None may reach the host, and the task goes on: a program cannot
// hang or end more than its own command and its own task's processes.
func TestSignals(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := hostile(t, id, map[string]string{"a.txt": "a\n"})
		s := plant(t, id, repo)
		task := id.Open(t, repo)
		s.log()
		for _, c := range []struct {
			name string
			args []string
		}{
			{"stop everything", []string{"killall", "19"}},
			{"end everything", []string{"killall", "15"}},
			{"kill everything", []string{"killall", "9"}},
			{"every signal to the first process", []string{"signal", "1"}},
			{"interrupt the parent", []string{"signal", "parent", "2"}},
			{"end the parent", []string{"signal", "parent", "15"}},
			{"stop the parent", []string{"signal", "parent", "19"}},
			{"kill the parent", []string{"signal", "parent", "9"}},
			{"every signal to the parent", []string{"signal", "parent"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				r := id.Within(t, 20*time.Second, repo, append([]string{"exec", task, "--", repo + "/attacker"}, c.args...)...)
				t.Logf("exit %d: %s%s", r.Exit, r.Stdout, r.Stderr)
				if r.Exit < 0 {
					t.Error("the command never ended")
				}
				if state, problem := lsState(t, id, task); state != "ready" {
					t.Errorf("the task is %s: %q", state, problem)
					task = id.Open(t, repo) // for the next case
					return
				}
				alive(t, id, repo, task)
				s.untouched(t)
			})
		}
	})
}

// TestCallsShareASpace is the other side of P28: one call of a task reaches the
// processes and sockets of another, whichever thread started them.
func TestCallsShareASpace(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := hostile(t, id, map[string]string{"a.txt": "a\n"})
		task := id.Open(t, repo)
		for i := range 6 {
			pid := strings.TrimSpace(id.OK(t, repo, "exec", task, "--", "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"))
			id.OK(t, repo, "exec", task, "--", "sh", "-c", "kill "+pid)
			name := fmt.Sprintf("@server%d", i)
			id.OK(t, repo, "exec", task, "--", "sh", "-c", "setsid ./attacker serve "+name+" >"+name+" 2>&1 & until grep -q ready "+name+" 2>/dev/null; do sleep 0.02; done")
			r := execAttacker(t, id, repo, task, jsonOf(config{Inside: true, Work: repo, Abstract: []string{name[1:]}}), "P17")
			if o := outcomes(t, r.Stdout)["P17 connect to "+name]; o.Errno != "" {
				t.Errorf("a socket of another call: %+v", o)
			}
		}
	})
}

// TestSetID is P31: programs whose files carry authority give none.
func TestSetID(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := hostile(t, id, map[string]string{"a.txt": "a\n"})
		path, _ := attacker()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		dir := id.Dir + "/shared"
		id.Mkdir(t, dir)
		progs := []string{dir + "/suid", dir + "/sgid", dir + "/cap"}
		for _, p := range progs {
			if err := os.WriteFile(p, data, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		id.Write(t, dir+"/plain", "x", 0o644)
		// cap_setuid, cap_sys_admin and the rest, effective.
		if err := setCaps(dir + "/cap"); err != nil {
			t.Logf("no file capabilities can be planted: %v", err)
		}
		for p, mode := range map[string]os.FileMode{dir + "/suid": os.ModeSetuid | 0o755, dir + "/sgid": os.ModeSetgid | 0o755} {
			if err := os.Chmod(p, mode); err != nil {
				t.Fatal(err)
			}
		}
		task := id.Open(t, repo, "--ro", dir)
		r := execAttacker(t, id, repo, task, append([]string{"setid"}, progs...)...)
		n := strings.Count(r.Stdout, "cap: fork/exec "+dir+"/cap: operation not permitted\n") // not even started
		if n += strings.Count(r.Stdout, fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d %[2]s 1\n", id.Inside(), zeros)); n != len(progs)+1 {
			t.Errorf("%d of %d programs have no more authority: %v", n, len(progs)+1, r)
		}
		for _, p := range []string{"/usr/bin/su", "/usr/bin/sudo", "/usr/bin/mount", "/usr/bin/newuidmap", "/usr/bin/passwd", "/usr/bin/ping", "/usr/bin/chsh"} {
			if st, err := os.Stat(p); err != nil || st.Mode()&os.ModeSetuid == 0 {
				continue
			}
			script := `"$0" --version >/dev/null 2>&1; "$0" -c id 2>&1; "$0" -n id 2>&1; "$0" -t tmpfs none /tmp 2>&1; head -c 0 /etc/shadow 2>&1; exit 0`
			if r := id.Caisson(t, repo, "exec", task, "--", "sh", "-c", script, p); id.Inside() != 0 && strings.Contains(r.Stdout, "uid=0") {
				t.Errorf("%s: %v", p, r)
			}
		}
		// Control: outside the same files give what they carry.
		ctl := outside(id, repo, append([]string{"setid"}, progs...)...)
		t.Logf("outside:\n%s", ctl.Stdout)
		switch {
		case id.UID == 0:
			t.Log("control: root has nothing to gain from root's files; the unprivileged identity is the control")
		case os.Getuid() != 0:
			t.Log("control: only root can plant files of root; the mount table shows nosuid everywhere (TestInventory)")
		case !strings.Contains(ctl.Stdout, fmt.Sprintf("suid: %d 0 ", id.UID)):
			t.Error("the set-user-id copy gives nothing outside: a dead test")
		case !strings.Contains(ctl.Stdout, fmt.Sprintf("sgid: %[1]d %[1]d %[1]d 0 ", id.UID)):
			t.Error("the set-group-id copy gives nothing outside: a dead test")
		}
	})
}
