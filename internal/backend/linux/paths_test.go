//go:build linux

package linux

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// pathSpec has a home, a state folder and a checkout below a temporary folder.
func pathSpec(t *testing.T) (backend.Spec, string) {
	dir := publicTemp(t)
	for _, d := range []string{"home/proj", "state/tasks/t1/source", "state/tasks/t1/out", "state/tasks/t2", "opt"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := newSpec(t)
	s.Home, s.Identity.Home = filepath.Join(dir, "home"), filepath.Join(dir, "home")
	s.Source = backend.Mount{Source: filepath.Join(dir, "state/tasks/t1/source"), Target: filepath.Join(dir, "home/proj"), Writable: true}
	s.Out.Source = filepath.Join(dir, "state/tasks/t1/out")
	s.Absent = []string{filepath.Join(dir, "state")}
	return s, dir
}

func TestCheckPathsAllowsOrdinaryPlaces(t *testing.T) {
	for _, target := range []string{"", "/tmp/x/y", "/opt/proj", "/usr/src/proj", "/usr/local/src/x", "/srv/a", "/projects/main", "/var/lib/jenkins/w"} {
		s, _ := pathSpec(t)
		if target != "" {
			s.Source.Target = target
		}
		if err := CheckPaths(s); err != nil {
			t.Errorf("%s: %v", s.Source.Target, err)
		}
	}
}

func TestCheckPathsRefusesOverlaps(t *testing.T) {
	refuse := func(name string, change func(*backend.Spec, string)) {
		t.Run(name, func(t *testing.T) {
			s, dir := pathSpec(t)
			if err := CheckPaths(s); err != nil {
				t.Fatalf("control: %v", err)
			}
			change(&s, dir)
			err := CheckPaths(s)
			if task.CodeOf(err) != task.CodeUnsafePath {
				t.Fatalf("accepted: %v", err)
			}
			if next := task.HintOf(err); next == "" || strings.HasPrefix(name, "seed at") && !strings.Contains(next, "--ro DIR:PLACE") {
				t.Errorf("%v: the next step is %q", err, next)
			}
			t.Log(err)
		})
	}
	refuse("seed at a system folder", func(s *backend.Spec, dir string) {
		s.RO = []backend.Mount{{Source: filepath.Join(dir, "opt"), Target: "/etc"}}
	})
	refuse("the root is state", func(s *backend.Spec, dir string) { s.Rootfs = filepath.Join(dir, "state") })
	for _, target := range []string{"/", "/usr", "/usr/bin", "/usr/bin/x", "/etc", "/etc/x", "/tmp", "/home", "/opt", "/proc/x", "/dev/shm/x", "/run/boundary/out", "relative", "/tmp/../etc", "/var"} {
		refuse("target "+strings.ReplaceAll(target, "/", "_"), func(s *backend.Spec, _ string) { s.Source.Target = target })
	}
	refuse("target is home", func(s *backend.Spec, dir string) { s.Source.Target = s.Home })
	refuse("target contains home", func(s *backend.Spec, dir string) { s.Source.Target = dir })
	refuse("target is state", func(s *backend.Spec, dir string) { s.Source.Target = filepath.Join(dir, "state") })
	refuse("target in state", func(s *backend.Spec, dir string) { s.Source.Target = filepath.Join(dir, "state/tasks/t2/x") })
	refuse("target is a link to home", func(s *backend.Spec, dir string) {
		s.Source.Target = filepath.Join(dir, "link")
		must(t, os.Symlink(s.Home, s.Source.Target))
	})
	refuse("writable source is home", func(s *backend.Spec, dir string) { s.Source.Source = s.Home })
	refuse("writable source contains state", func(s *backend.Spec, dir string) { s.Source.Source = dir })
	refuse("writable source is a system folder", func(s *backend.Spec, dir string) { s.Source.Source = "/opt" })
	refuse("writable source holds the program", func(s *backend.Spec, dir string) { s.Source.Source = filepath.Dir(s.WorkerPath) })
	refuse("seed shows state", func(s *backend.Spec, dir string) { s.RO = []backend.Mount{{Source: dir, Target: "/opt/seed"}} })
	refuse("seed lies in state", func(s *backend.Spec, dir string) {
		s.RO = []backend.Mount{{Source: filepath.Join(dir, "state/tasks/t2"), Target: "/opt/seed"}}
	})
	refuse("seed is home", func(s *backend.Spec, dir string) { s.RO = []backend.Mount{{Source: s.Home, Target: "/opt/seed"}} })
	refuse("two at one place", func(s *backend.Spec, dir string) {
		s.RO = []backend.Mount{{Source: filepath.Join(dir, "opt"), Target: s.Source.Target}}
	})
}

// A bind mount gives a folder a second name; only its place tells.
func TestCheckPathsSeesThroughBindMounts(t *testing.T) {
	if os.Getenv("CAISSON_TEST_BIND") == "" {
		cmd := exec.Command("unshare", "-Urm", os.Args[0], "-test.run=^TestCheckPathsSeesThroughBindMounts$", "-test.v")
		cmd.Env = append(os.Environ(), "CAISSON_TEST_BIND=1", workerEnv+"="+workerPath)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	bind := func(from, to string) {
		must(t, os.MkdirAll(to, 0o755))
		if out, err := exec.Command("mount", "--bind", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	for name, change := range map[string]func(*backend.Spec, string){
		"seed is a second name of state": func(s *backend.Spec, dir string) {
			bind(dir+"/state", dir+"/a")
			s.RO = []backend.Mount{{Source: dir + "/a", Target: "/opt/s"}}
		},
		"seed is a second name of its parent": func(s *backend.Spec, dir string) {
			bind(dir, dir+"/opt")
			s.RO = []backend.Mount{{Source: dir + "/opt", Target: "/opt/s"}}
		},
		"another task is mounted below the seed": func(s *backend.Spec, dir string) {
			bind(dir+"/state/tasks/t2", dir+"/opt/deep/er")
			s.RO = []backend.Mount{{Source: dir + "/opt", Target: "/opt/s"}}
		},
		"the place is a second name of home": func(s *backend.Spec, dir string) { bind(s.Home, dir+"/h"); s.Source.Target = dir + "/h" },
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := pathSpec(t)
			if err := CheckPaths(s); err != nil {
				t.Fatalf("control: %v", err)
			}
			change(&s, dir)
			t.Cleanup(func() {
				for _, p := range []string{"/a", "/opt/deep/er", "/opt", "/h"} {
					_ = exec.Command("umount", "-l", dir+p).Run()
				}
			})
			if err := CheckPaths(s); task.CodeOf(err) != task.CodeUnsafePath {
				t.Errorf("accepted (%v)", err)
			}
		})
	}
}

// The same for a system folder, by a mount table that is made up: binding the
// real one below a folder that the test removes afterwards is too dangerous.
func TestCheckPathsSeesSecondNameOfSystemFolder(t *testing.T) {
	s, dir := pathSpec(t)
	mounts, err := readMounts()
	must(t, err)
	s.Source.Source = filepath.Join(dir, "opt")
	must(t, checkPaths(s, mounts))
	usr, ok := mountTable(mounts).placeOf("/usr")
	if !ok {
		t.Fatal("no mount holds /usr")
	}
	mounts = append(mounts, mountEntry{dev: usr.dev, root: usr.path, point: s.Source.Source})
	if err := checkPaths(s, mounts); task.CodeOf(err) != task.CodeUnsafePath {
		t.Errorf("accepted (%v)", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The kernel's own file systems, and the folder of sockets, are no seeds: what
// they show is not files, and it changes after a look.
func TestCheckPathsRefusesKernelViews(t *testing.T) {
	for source, refused := range map[string]bool{"/usr/share": false, "/proc": true, "/proc/sys/kernel": true, "/sys": true, "/dev": true, "/run": true, "/run/lock": true} {
		s, _ := pathSpec(t)
		if _, err := os.Stat(source); err != nil {
			t.Logf("this machine has no %s", source)
			continue
		}
		s.RO = []backend.Mount{{Source: source, Target: "/seed"}}
		if err := CheckPaths(s); (task.CodeOf(err) == task.CodeUnsafePath) != refused {
			t.Errorf("%s: %v, want it refused: %v", source, err, refused)
		}
	}
	// One below an ordinary folder shows too.
	s, dir := pathSpec(t)
	s.RO = []backend.Mount{{Source: filepath.Join(dir, "opt"), Target: "/seed"}}
	mt, err := readMounts()
	if err != nil {
		t.Fatal(err)
	}
	if err := checkPaths(s, mt); err != nil {
		t.Fatalf("control: %v", err)
	}
	mt = append(mt, mountEntry{dev: "0:999", root: "/", point: filepath.Join(dir, "opt/chroot/proc"), fstype: "proc"})
	if err := checkPaths(s, mt); task.CodeOf(err) != task.CodeUnsafePath {
		t.Errorf("a proc below a seed is shown: %v", err)
	}
}

// Inside, the home folder is an empty writable one: it may not cover what
// programs need.
func TestCheckPathsRefusesSystemHome(t *testing.T) {
	for home, good := range map[string]bool{
		"/proc": false, "/dev/x": false, "/usr": false, "/usr/bin": false, "/etc": false, "/bin": false, "/var": false, "/run": false, "/": false,
		"/home/u": true, "/var/lib/u": true, "/root": true, "/usr/home/u": true, "/opt/u": true,
	} {
		if err := checkHome(home); (err == nil) != good {
			t.Errorf("HOME=%s: %v", home, err)
		}
	}
}
