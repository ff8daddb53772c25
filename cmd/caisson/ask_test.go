//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// inPlace starts fcaisson on a terminal with the state of an earlier one.
func inPlace(t *testing.T, dir string, env []string, args ...string) *harness.Screen {
	t.Helper()
	c := prepared(t, args...)
	c.Env = append(append(c.Env, "CAISSON_STATE_DIR="+dir), env...)
	return harness.OnTerminal(t, c, os.Getuid())
}

// opened makes a task of the fake engine and returns the state folder and its id.
func opened(t *testing.T, name string) (string, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), ".state")
	c := exec.Command(fakeName, "open", name)
	c.Env = append(os.Environ(), "CAISSON_STATE_DIR="+dir, "HOME="+dir)
	c.Dir = t.TempDir()
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	return dir, strings.TrimSpace(string(out))
}

// TestApplyAsks puts the question about risky files to a person, and binds the
// answer to what they were shown.
func TestApplyAsks(t *testing.T) {
	for _, c := range []struct {
		name, task, typed string
		args, env         []string
		exit              int
		agreed            string // what the engine was told; "-": it was not applied
		see               string
	}{
		{"yes", "risky", "y\r", nil, nil, 0, "sha256:1", "2 files changed in"},
		{"no", "risky", "n\r", nil, nil, 4, "-", "the answer was not yes"},
		{"nothing", "risky", "\r", nil, nil, 4, "-", "the answer was not yes"},
		{"end of input", "risky", "\x04", nil, nil, 4, "-", "the answer was not yes"},
		{"Ctrl-C", "risky", "\x03", nil, nil, 130, "-", "canceled"},
		{"without a question", "risky", "", []string{"--yes"}, nil, 0, "sha256:1", "2 files changed in"},
		{"allowed before", "risky", "", []string{"--allow-risky"}, nil, 0, "", "2 files changed in"},
		{"nobody there", "risky", "", nil, []string{"CAISSON_UNATTENDED=1"}, 4, "-", "risky files"},
		{"nothing risky", "plain", "", nil, nil, 0, "", "2 files changed in"},
		{"never the same", "moving", "", []string{"--yes"}, nil, 4, "-", "changes all the time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, id := opened(t, c.task)
			s := inPlace(t, dir, c.env, append([]string{"apply", c.task}, c.args...)...)
			if c.typed != "" {
				s.Expect(`.envrc: a shell would run it \x1b[2J`)
				s.Expect("b.txt")
				s.Expect("1 of them risky? [y/N]")
				s.Type(c.typed)
			}
			s.Expect(c.see)
			if st := exitOf(t, s.Cmd); st != c.exit {
				t.Errorf("exit %d, want %d", st, c.exit)
			}
			got, err := os.ReadFile(filepath.Join(dir, id+".applied"))
			if c.agreed == "-" && err == nil || c.agreed != "-" && (err != nil || string(got) != c.agreed) {
				t.Errorf("applied with %q (%v), want %q", got, err, c.agreed)
			}
		})
	}
}

// TestBundleIsNotForATerminal refuses bytes that would steer a terminal.
func TestBundleIsNotForATerminal(t *testing.T) {
	dir, _ := opened(t, "plain")
	s := inPlace(t, dir, nil, "export", "plain", "--bundle")
	s.Expect("a bundle is not for a terminal")
	if st := exitOf(t, s.Cmd); st != 2 {
		t.Errorf("exit %d", st)
	}
	s = inPlace(t, dir, nil, "export", "plain", "--patch")
	s.Expect(`+new \x1b[2J`)
	if st := exitOf(t, s.Cmd); st != 0 {
		t.Errorf("exit %d", st)
	}
}
