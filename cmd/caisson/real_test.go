//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/caisson-dev/caisson/internal/workerbin"
)

// TestRealScripts runs the program with its own engine: real git, real boundaries.
func TestRealScripts(t *testing.T) {
	if !workerbin.Present() {
		t.Log("this build carries no worker: the program plays it itself")
	}
	testscript.Run(t, testscript.Params{
		Files:               scripts(t, "real_*.txtar"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Condition: func(name string) (bool, error) {
			if name != "mounts" {
				return false, fmt.Errorf("no condition %q", name)
			}
			return os.Geteuid() == 0 && exec.Command("unshare", "-m", "sh", "-c", "mount --make-rprivate / && mount --bind /etc /etc").Run() == nil, nil
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("CAISSON_STATE_DIR", e.WorkDir+"/.state")
			e.Setenv("CAISSON_RUNTIME_DIR", e.WorkDir+"/.run")
			e.Setenv("HOME", e.WorkDir+"/.home")
			e.Setenv("GIT_CONFIG_NOSYSTEM", "1")
			e.Defer(func() { endTasks(t, e) })
			return os.MkdirAll(e.WorkDir+"/.home", 0o755)
		},
	})
}

// endTasks ends what a script that failed left open.
func endTasks(t *testing.T, e *testscript.Env) {
	var prog string
	for _, dir := range filepath.SplitList(e.Getenv("PATH")) {
		if p := filepath.Join(dir, "caisson"); prog == "" && strings.Contains(dir, "testscript") {
			prog = p
		}
	}
	caisson := func(args ...string) []byte {
		cmd := exec.Command(prog, args...)
		cmd.Env = e.Vars
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("caisson %q: %v", args, err)
		}
		return out
	}
	var list struct{ Tasks []struct{ ID, State string } }
	if err := json.Unmarshal(caisson("ls", "--json"), &list); err != nil {
		t.Error(err)
	}
	for _, v := range list.Tasks {
		if v.State == "ready" {
			caisson("close", "--discard", v.ID)
		}
	}
}
