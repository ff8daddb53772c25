//go:build linux

package linux

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// layout makes a cgroup tree of files: "dir controllers" lines; a leading "-"
// makes the folder one that we may not write.
func layout(t *testing.T, lines ...string) string {
	t.Helper()
	root := publicTemp(t)
	var closed []string
	for _, l := range lines {
		name, ctl, _ := strings.Cut(strings.TrimPrefix(l, "-"), " ")
		dir := filepath.Join(root, name)
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), nil, 0o644))
		must(t, os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(ctl+"\n"), 0o644))
		if l[0] == '-' {
			closed = append(closed, dir)
		}
	}
	for _, d := range closed {
		must(t, os.Chmod(d, 0o555))
		t.Cleanup(func() { _ = os.Chmod(d, 0o755) })
	}
	return root
}

func TestHierarchiesOnV2(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("as root every folder is writable: the lines about delegation are tried by TestUnprivileged")
	}
	for _, c := range []struct {
		name, own string
		tree      []string
		want      string // folder, "" = none
		ctl       string
		asUser    bool
	}{
		{"delegated slice above us", "/user.slice/u/app.slice/x.scope", []string{"-", "-user.slice", "-user.slice/u", "user.slice/u/app.slice cpu memory pids", "user.slice/u/app.slice/x.scope"}, "user.slice/u/app.slice", "cpu memory pids", true},
		{"session scope of root's", "/user.slice/session.scope", []string{"-", "-user.slice memory pids", "-user.slice/session.scope"}, "", "", true},
		{"root anywhere", "/user.slice/session.scope", []string{" cpu memory pids", "user.slice memory pids", "user.slice/session.scope"}, "", "cpu memory pids", false},
		{"own group gives controllers", "/a", []string{" memory", "a cpu memory pids"}, "a", "cpu memory pids", false},
		{"outside our namespace", "/../x", []string{" cpu memory pids"}, "none", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.asUser && os.Geteuid() == 0 {
				t.Skip("as root every folder is writable")
			}
			root := layout(t, c.tree...)
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, "mountinfo"), []byte("30 20 0:26 / "+root+" rw - cgroup2 cgroup2 rw\n"), 0o644))
			must(t, os.WriteFile(filepath.Join(dir, "self"), []byte("0::"+c.own+"\n"), 0o644))
			hs := hierarchies(cgroupRoots{mountinfo: filepath.Join(dir, "mountinfo"), self: filepath.Join(dir, "self")})
			if c.want == "none" || c.want == "" && c.ctl == "" {
				if len(hs) != 0 {
					t.Fatalf("found %+v", hs)
				}
				return
			}
			if len(hs) != 1 || !hs[0].v2 || hs[0].parent != filepath.Join(root, c.want) {
				t.Fatalf("found %+v, not %s", hs, c.want)
			}
			var ctl []string
			for k := range hs[0].ctl {
				ctl = append(ctl, k)
			}
			sort.Strings(ctl)
			if got := strings.Join(ctl, " "); got != c.ctl {
				t.Errorf("controllers %s", got)
			}
		})
	}
}

func TestLimitFiles(t *testing.T) {
	l := task.Limits{MemoryBytes: 1 << 30, Pids: 7, CPUs: 1.5}
	all := map[string]bool{"memory": true, "pids": true, "cpu": true}
	for _, c := range []struct {
		v2   bool
		want string
	}{
		{true, "memory.max=1073741824 memory.swap.max=0 pids.max=7 cpu.max=150000 100000"},
		{false, "memory.limit_in_bytes=1073741824 memory.memsw.limit_in_bytes=1073741824 pids.max=7 cpu.cfs_period_us=100000 cpu.cfs_quota_us=150000"},
	} {
		var got []string
		for _, s := range (&group{hierarchy: hierarchy{v2: c.v2, ctl: all}}).settings(l) {
			got = append(got, s.file+"="+s.value)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("v2 %v: %s", c.v2, got)
		}
	}
	if d := Defaults(task.Limits{}); d.MemoryBytes <= 0 || d.Pids <= 0 || d.CPUs <= 0 {
		t.Errorf("a default is no limit: %+v", d)
	}
}

func TestMountinfoEscapes(t *testing.T) {
	m := parseMountinfo(`36 35 98:0 /a\040b /mnt/c\134d rw,noatime shared:1 - ext3 /dev/root rw,errors=continue` + "\nbroken line\n")
	if len(m) != 1 || m[0].root != "/a b" || m[0].point != `/mnt/c\d` || m[0].fstype != "ext3" {
		t.Errorf("%+v", m)
	}
}

// Where id-mapped mounts are not to be had, the inside is root's id without
// capabilities, files are usable, and it is said.
func TestRootWithoutIDMappedMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has the choice")
	}
	d := usable(t)
	s := newSpec(t)
	worker, err := openWorker(s.WorkerPath)
	must(t, err)
	defer worker.Close()
	in := &instance{spec: s, limits: Defaults(s.Limits)}
	pl := &planner{spec: s, limits: in.limits, viaFD: true, findings: []task.Finding{rootIdentity("test")}}
	defer pl.close()
	must(t, in.start(t.Context(), d.launch, worker, rootMapping(), pl.planned))
	b := attachBox(t, s, in)
	if got := b.sh("touch x; stat -c %u x; cat /proc/self/status | grep -c '^Cap.*0000000000000000'; cat /etc/shadow 2>/dev/null; cat /proc/kmsg"); got != "1000\n5" {
		t.Errorf("inside: %q", got)
	}
	if pl.findings[0].Axis != task.PRC || pl.findings[0].Cap != 2 {
		t.Errorf("finding %+v", pl.findings[0])
	}
}

// A trial that is killed half-way leaves empty groups; the next trial takes
// them away, but none whose process lives and none that only look like one.
func TestNextTrialSweepsWhatAKilledOneLeft(t *testing.T) {
	d := usable(t)
	hs := hierarchies(d.roots)
	if len(hs) == 0 {
		t.Skip("no cgroup can be made here")
	}
	self, err := sys.Self()
	must(t, err)
	mk := func(name string) string {
		dir := filepath.Join(hs[0].parent, name)
		must(t, os.Mkdir(dir, 0o755))
		t.Cleanup(func() { _ = os.Remove(dir) })
		return dir
	}
	dead := mk(fmt.Sprintf("caisson-trial-%d-%d-%d-abcdefgh", self.PID, self.Start+1, self.PIDNS))
	alive := mk(fmt.Sprintf("caisson-trial-%d-%d-%d-abcdefgh", self.PID, self.Start, self.PIDNS))
	other := mk(fmt.Sprintf("caisson-trial-%d-%d-%d-abcdefgh", self.PID, self.Start+1, self.PIDNS+1))
	decoy := mk("caisson-trial-of-somebody-" + task.NewToken()[:8])
	sweepTrials(hs)
	if _, err := os.Stat(dead); err == nil {
		t.Error("what a dead process left is still there")
	}
	for _, dir := range []string{alive, other, decoy} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
}

// W is in its groups and no thread of the process that started it is.
func TestOnlyTheWorkerIsInItsGroups(t *testing.T) {
	b := open(t, newSpec(t))
	if len(b.in.groups) == 0 {
		t.Skip("no cgroup can be made here")
	}
	own := map[string]bool{}
	threads, err := os.ReadDir("/proc/self/task")
	must(t, err)
	for _, th := range threads {
		own[th.Name()] = true
	}
	for _, g := range b.in.groups {
		must(t, b.in.isMember(g))
		file := "tasks"
		if g.v2 {
			file = "cgroup.procs"
		}
		text, err := g.read(file)
		must(t, err)
		for _, tid := range strings.Fields(text) {
			if own[tid] {
				t.Errorf("thread %s of this process stayed in %s", tid, g.dir)
			}
		}
		t.Logf("%s: born there: %v", g.dir, b.in.proc.born[g])
	}
}
