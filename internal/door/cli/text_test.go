package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// TestConflictText has the lines of a collision as the source has them, without
// what could steer a terminal.
func TestConflictText(t *testing.T) {
	var out bytes.Buffer
	a := &app{ui: &ui{}}
	err := a.renderApply(&out, &task.ApplyReport{
		Conflicts: []task.Conflict{{Path: "a.go", Why: "both changed it", Hunks: "\treturn\x1b[2J\n<<<<<<< checkout\n\n"}},
		Notes:     []string{"commit first"},
	})
	want := "conflict: a.go: both changed it\n  \treturn\\x1b[2J\n  <<<<<<< checkout\nnote: commit first\n"
	if err != nil || out.String() != want {
		t.Errorf("%q %v", out.String(), err)
	}
}

// TestLogTellsFailure has an outcome that failed read as one.
func TestLogTellsFailure(t *testing.T) {
	l := (&app{ui: &ui{}}).newLogText(&bytes.Buffer{})
	for typ, words := range map[string][2]string{
		"apply.outcome": {"applied", "not applied"}, "branch.outcome": {"branch made", "no branch made"}, "export.outcome": {"exported", "not exported"},
	} {
		if s, _ := l.line(door.Event{Type: typ, Body: map[string]any{}}); s != words[0] {
			t.Errorf("%s: %q", typ, s)
		}
		s, color := l.line(door.Event{Type: typ, Body: map[string]any{"code": "conflict", "error": "in the way"}})
		if !strings.HasPrefix(s, words[1]+": ") || color != red {
			t.Errorf("%s: %q", typ, s)
		}
	}
}

// TestWorkspaceEnvArchive has --repo name a file: nothing lies below it, and
// what lies beside it still counts where it is the working directory.
func TestWorkspaceEnvArchive(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.zip")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app{cfg: Config{Dir: dir, Env: []string{"CAISSON_NEED=NET=2"}}}
	if err := a.checkWorkspaceEnv(file); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".envrc"), []byte("export CAISSON_NEED=NET=0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.checkWorkspaceEnv(file); task.CodeOf(err) != task.CodeDenied {
		t.Errorf("%v", err)
	}
}

// TestWriteWholeRefuses has each refusal say what to do next, without the name
// of a working file of ours.
func TestWriteWholeRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none", "x")} {
		err := writeWhole(path, true, nil)
		var e *task.Error
		if !errors.As(err, &e) || e.Hint == "" || strings.Contains(err.Error(), ".caisson-export") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
