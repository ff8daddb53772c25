//go:build linux

package calls

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
	"github.com/caisson-dev/caisson/test/harness"
)

// TestEditsSeenByTheHost has the host read itself what an edit changes.
func TestEditsSeenByTheHost(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		c := newCaller(t, id)
		res, _ := call[contract.EditFileResult](c, contract.EditFile, contract.EditFileArgs{Path: "a.txt", Edits: []contract.Edit{{Old: "a", New: "b"}}})
		// sha256 of "a\n" and of "b\n".
		const a, b = "87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7", "0263829989b6fd954f72baaf2fc64bc2e2f01d692d4de72986ea808f6e99813f"
		if f := res.Observed.Files; len(f) != 1 || f[0].State != "file" || f[0].SHA256 != a || f[0].After != b || f[0].Path != c.repo+"/a.txt" {
			t.Errorf("%+v", f)
		}
		res, _ = call[contract.WriteFileResult](c, contract.WriteFile, contract.WriteFileArgs{Path: "n/new.txt", Content: "b\n"})
		if f := res.Observed.Files; len(f) != 1 || f[0].State != "absent" || f[0].After != b {
			t.Errorf("%+v", f)
		}
		res, _ = call[contract.WriteFileResult](c, contract.WriteFile, contract.WriteFileArgs{Path: "/tmp/x", Content: "b\n"})
		if f := res.Observed.Files; len(f) != 1 || f[0].State != "unseen" || f[0].After != "" {
			t.Errorf("%+v", f)
		}
		if log := id.OK(t, c.repo, "log", c.task, "--json"); !strings.Contains(log, a) || strings.Contains(log, `"content"`) {
			t.Error("the digest of what was there is not on record, or a content is")
		}
	})
}

// TestEditChangedAfterApproval exchanges a file between the question about an
// edit and the answer, or puts a link in its way.
func TestEditChangedAfterApproval(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		c := newCaller(t, id, "--ask", "edit_file", "--ask", "write_file")
		secret := filepath.Join(id.Tmp, "secret")
		id.Write(t, secret, "one\n", 0o666)
		for name, m := range map[string]struct{ change, want string }{
			"nothing":      {"true", ""},
			"content":      {"echo two >f", "was changed"},
			"link":         {"echo one >other; rm f; ln -s other f", "was changed"},
			"link outside": {"rm f; ln -s " + secret + " f", "was changed"},
			"hard link":    {"echo one >other; rm f; ln other f", "was changed"},
			"folder":       {"rm f; mkdir f", "was changed"},
		} {
			sh(c, contract.ShellArgs{Command: "rm -rf f other; echo one >f; echo one >victim"})
			p := asks(c, contract.EditFile, contract.EditFileArgs{Path: "f", Edits: []contract.Edit{{Old: "one", New: "x\x1b[0m"}}})
			if len(p.q.Files) != 1 || p.q.Files[0].State != "file" || !strings.Contains(p.q.Diff, "-one\n+x\\x1b[0m\n") {
				t.Errorf("%s: question: %+v", name, p.q)
			}
			sh(c, contract.ShellArgs{Command: m.change})
			p.is(name, p.approve(), m.want)
		}
		// A file that was to be new is there meanwhile.
		for name, m := range map[string]struct{ change, want string }{"nothing": {"true", ""}, "made": {"mkdir -p g; echo mine >g/new", "was changed"}} {
			sh(c, contract.ShellArgs{Command: "rm -rf g"})
			p := asks(c, contract.WriteFile, contract.WriteFileArgs{Path: "g/new", Content: "theirs\n"})
			if len(p.q.Files) != 1 || p.q.Files[0].State != "absent" || !strings.Contains(p.q.Diff, "+theirs\n") {
				t.Errorf("%s: question: %+v", name, p.q)
			}
			sh(c, contract.ShellArgs{Command: m.change})
			p.is("new file, "+name, p.approve(), m.want)
		}
		// Through a link nothing is asked at all: what is shown could become another.
		sh(c, contract.ShellArgs{Command: "rm -rf f; ln -s d l; ln -s " + id.Tmp + " out"})
		for _, path := range []string{"l/b.txt", "out/secret"} {
			if r := id.Caisson(t, c.repo, "tool", c.task, "write_file", `{"path":"`+path+`","content":"x"}`); r.Exit != 4 || !strings.Contains(r.Stderr, "link") {
				t.Errorf("%s: %v", path, r)
			}
		}
		if b, _ := os.ReadFile(secret); string(b) != "one\n" {
			t.Errorf("a file of the host: %q", b)
		}
	})
}

// TestAskerCannotAnswer has the program that asked, which holds the task, try to
// answer through the same door; another door of the same program may.
func TestAskerCannotAnswer(t *testing.T) {
	t.Parallel()
	id := harness.NewIdentity(t, "asker", os.Getuid())
	repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
	h := drives(t, id, repo)
	defer h.end()
	try := func(by door.Actor) (task.Code, answer) {
		_, c := h.begin(contract.Shell, contract.ShellArgs{Command: "echo ask-me"}, nil)
		q := <-h.asked
		code := h.answer(by, task.Answer{ID: q.ID, Allow: true})
		if code != "" { // it still waits; somebody else ends it
			if code := h.answer(door.Actor{Door: "other", Role: door.RolePerson}, task.Answer{ID: q.ID}); code != "" {
				t.Errorf("deny: %s", code)
			}
		}
		return code, <-c
	}
	for _, c := range []struct {
		by   door.Actor
		code task.Code
	}{
		{door.Actor{Door: "test", Role: door.RolePerson}, task.CodeDenied},
		{door.Actor{Role: door.RolePerson}, task.CodeDenied},
		{door.Actor{Door: "other", Role: door.RoleAgent}, task.CodeDenied},
		{door.Actor{Door: "other", Role: door.RoleSupervisor}, task.CodeDenied},
		{door.Actor{Door: "other", Role: door.RolePerson}, ""},
	} {
		code, a := try(c.by)
		if code != c.code || (a.Code == "") != (c.code == "") {
			t.Errorf("%+v: answered %q, the call ended with %+v", c.by, code, a)
		}
	}
}
