//go:build linux

package source

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
)

// plant writes configuration that makes a plain git run a program that leaves
// a mark, into the git directory dir.
func plant(t *testing.T, dir, mark string) {
	t.Helper()
	prog := filepath.Join(filepath.Dir(mark), "canary-"+filepath.Base(mark))
	script := "#!/bin/sh\necho \"$0 $*\" >>" + mark + "\ncat\n"
	if err := os.WriteFile(prog, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	conf, err := os.OpenFile(dir+"/config", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer conf.Close()
	fmt.Fprintf(conf, `
[core]
	fsmonitor = %[1]s
	pager = %[1]s
	sshCommand = %[1]s
	editor = %[1]s
	askPass = %[1]s
	alternateRefsCommand = %[1]s
	hooksPath = %[2]s/evil-hooks
[diff]
	external = %[1]s
[diff "evil"]
	textconv = %[1]s
	command = %[1]s
[filter "evil"]
	clean = %[1]s
	smudge = %[1]s
	process = %[1]s
	required = true
[merge "evil"]
	driver = %[1]s
[credential]
	helper = %[1]s
[gpg]
	program = %[1]s
[commit]
	gpgSign = true
[uploadpack]
	packObjectsHook = %[1]s
[alias]
	status = !%[1]s
	rev-parse = !%[1]s
[protocol]
	allow = always
[protocol "ext"]
	allow = always
[remote "origin"]
	url = ext::%[1]s
[submodule]
	recurse = true
`, prog, dir)
	hooks := dir + "/evil-hooks"
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{"post-checkout", "reference-transaction", "post-index-change", "pre-commit", "post-commit", "pre-auto-gc", "fsmonitor-watchman", "post-update", "pre-receive", "update"} {
		for _, d := range []string{hooks, dir + "/hooks"} {
			_ = os.MkdirAll(d, 0o755)
			if err := os.WriteFile(d+"/"+h, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
}

const evilAttributes = "* filter=evil diff=evil merge=evil\n"

// everything drives every path on which the host starts git.
func everything(t *testing.T, o *opened) {
	t.Helper()
	ctx := context.Background()
	o.work()
	for _, d := range []DiffOptions{{}, {Stat: true}, {NameStatus: true, NUL: true}, {Color: true}} {
		if err := Diff(ctx, o.ws, &bytes.Buffer{}, d); err != nil {
			t.Errorf("diff: %v", err)
		}
	}
	r, err := Look(ctx, o.ws)
	if err != nil {
		t.Fatalf("look: %v", err)
	}
	defer r.Close()
	if _, err := r.Risks(ctx); err != nil {
		t.Errorf("risks: %v", err)
	}
	if _, err := Changes(ctx, o.ws, true); err != nil {
		t.Errorf("changes: %v", err)
	}
	snap, err := MakeSnapshot(ctx, o.ws)
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	rs, err := PublishSnapshot(ctx, o.ws, snap)
	if err != nil {
		t.Errorf("publish: %v", err)
	}
	for _, r := range rs {
		if r.Kind == "bundle" && !strings.Contains(r.Why, "do not pass verification") {
			t.Errorf("why a bundle: %q", r.Why)
		}
	}
	if _, err := NeedsBundle(ctx, o.ws); err != nil {
		t.Errorf("needs bundle: %v", err)
	}
	if _, err := KeepIgnored(ctx, o.ws); err != nil {
		t.Errorf("keep: %v", err)
	}
	if err := Unpin(ctx, o.r.Ref.CommonDir, o.ws.Task); err != nil {
		t.Errorf("unpin: %v", err)
	}
}

func exists2(p string) bool { _, err := os.Lstat(p); return err == nil }

func TestNothingRunsFromTheUsersConfiguration(t *testing.T) {
	l := basic(t)
	l.write(".gitattributes", evilAttributes)
	l.commit("attributes")
	mark := l.top + "/fired"
	plant(t, l.repo+"/.git", mark)
	// The control: a plain git fires it.
	_, _ = l.tryGit(l.repo, nil, "diff", "HEAD^")
	_, _ = l.tryGit(l.repo, nil, "status")
	if !exists2(mark) {
		t.Fatal("control: a plain git did not run what was planted")
	}
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	for _, h := range []task.History{task.HistoryFull, task.HistoryBase, task.HistoryNone} {
		o := l.open(Options{History: h})
		o.file("dir/a.txt", "changed\n")
		o.file("more", "new\n")
		everything(t, o)
		if b, err := os.ReadFile(mark); err == nil {
			t.Fatalf("history %s: the host ran what was planted: %s", h, b)
		}
	}
}

func TestNothingRunsFromTheTasksTree(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	mark := l.top + "/fired"
	o.file(".gitattributes", evilAttributes)
	plant(t, o.p.Source+"/.git", mark)
	o.file("dir/a.txt", "changed\n")
	// A nested repository with the same, and a bare one.
	o.plain(o.p.Source, "init", "-q", "nested")
	o.file("nested/file", "inner\n")
	plant(t, o.p.Source+"/nested/.git", mark)
	o.plain(o.p.Source, "init", "-q", "--bare", "bare.git")
	plant(t, o.p.Source+"/bare.git", mark)
	o.file(".gitmodules", "[submodule \"nested\"]\n\tpath = nested\n\turl = ./nested\n\tupdate = !touch "+mark+"\n")
	_ = os.Remove(mark)
	_, _ = l.tryGit(o.p.Source, nil, "diff")
	if !exists2(mark) {
		t.Fatal("control: a plain git did not run what was planted")
	}
	_ = os.Remove(mark)
	w := o.work()
	has(t, "special", w.Special, "nested/.git")
	if !strings.Contains(strings.Join(w.Untracked, " "), "nested/file") {
		t.Errorf("the nested repository's files are not listed: %q", w.Untracked)
	}
	everything(t, o)
	// What a plain git would act on is kept as a bundle, not put in the repository.
	if !exists2(o.ws.Dir+"/kept/work.bundle") || l.git("for-each-ref", "refs/caisson") != "" {
		t.Error("a hostile .gitmodules was published, or lost")
	}
	if b, err := os.ReadFile(mark); err == nil {
		t.Fatalf("the host ran what was planted: %s", b)
	}
	if !exists2(o.ws.Dir + "/kept/files/nested/.git/config") {
		t.Error("the nested repository's .git was not kept")
	}
}

func TestSwappedGitPointersAreNotFollowed(t *testing.T) {
	for name, swap := range map[string]func(src, other string) error{
		"file": func(src, other string) error {
			return os.WriteFile(src+"/.git", []byte("gitdir: "+other+"/.git\n"), 0o644)
		},
		"link":    func(src, other string) error { return os.Symlink(other+"/.git", src+"/.git") },
		"nothing": func(string, string) error { return nil },
		"fifo":    func(src, _ string) error { return unix.Mkfifo(src+"/.git", 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			l := basic(t)
			o := l.open(Options{})
			other := l.top + "/other"
			l.plain(l.top, "init", "-q", "other")
			mark := l.top + "/fired"
			plant(t, other+"/.git", mark)
			if err := os.RemoveAll(o.p.Source + "/.git"); err != nil {
				t.Fatal(err)
			}
			if err := swap(o.p.Source, other); err != nil {
				t.Fatal(err)
			}
			o.file("new", "x\n")
			everything(t, o)
			if exists2(mark) {
				t.Error("the host ran what the pointer led to")
			}
			if _, err := Import(context.Background(), o.ws, strings.NewReader(""), 1<<20); name != "nothing" && task.CodeOf(err) != task.CodeBadResult {
				t.Errorf("import with unreadable refs: %v", err)
			}
		})
	}
}

// strangeNames are file names that tools lose.
var strangeNames = []string{
	"with space", "two  spaces ", "new\nline", "tab\there", "quote\"d", "back\\slash", "non-utf8-\xff\xfe", "-rf", "--help", ":(glob)x", ":!x", "#hash", "!bang",
	"x -> y", "é", "日本", "*star?", "[br]", strings.Repeat("n", 255), "...", "con", "\x01\x1b[31m",
}

func TestStrangeNames(t *testing.T) {
	l := basic(t)
	for _, n := range strangeNames {
		l.write("old/"+n, "content of "+n+"\n")
	}
	l.commit("strange")
	o := l.open(Options{})
	if st := o.in("status", "--porcelain"); st != "" {
		t.Fatalf("status inside: %s", st)
	}
	var want []string
	for i, n := range strangeNames {
		o.file("fresh/"+n, "x")
		want = append(want, "A fresh/"+n)
		if i%2 == 0 {
			if err := os.Remove(o.p.Source + "/old/" + n); err != nil {
				t.Fatal(err)
			}
			want = append(want, "D old/"+n)
		} else {
			o.file("old/"+n, "changed")
			want = append(want, "M old/"+n)
		}
		o.file(n, "top level")
		want = append(want, "A "+n)
	}
	cs, err := Changes(context.Background(), o.ws, false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range cs {
		got = append(got, string(c.Status)+" "+string(c.Path))
	}
	has(t, "changes", got, want...)
	w := o.work()
	if len(w.Untracked) != 2*len(strangeNames) || len(w.Tracked) != len(strangeNames) {
		t.Errorf("work: %d untracked, %d tracked", len(w.Untracked), len(w.Tracked))
	}
	for _, n := range append(w.Untracked, w.Tracked...) {
		if strings.ContainsAny(n, "\n\x1b\x01") {
			t.Errorf("raw control bytes in the listing: %q", n)
		}
	}
	// The patch applies to the user's checkout and gives the same tree.
	var patch bytes.Buffer
	if err := Diff(context.Background(), o.ws, &patch, DiffOptions{}); err != nil {
		t.Fatal(err)
	}
	snap, err := MakeSnapshot(context.Background(), o.ws)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.top+"/patch", patch.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	l.git("apply", "--index", l.top+"/patch")
	if got := l.git("write-tree"); got != snap.Tree {
		t.Errorf("the applied patch gives %s, the snapshot has %s", got, snap.Tree)
	}
}

func TestWhatATreeCanHold(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	src := o.p.Source
	for _, n := range []string{"loop1", "loop2"} {
		other := map[string]string{"loop1": "loop2", "loop2": "loop1"}[n]
		if err := os.Symlink(other, src+"/"+n); err != nil {
			t.Fatal(err)
		}
	}
	secret := l.top + "/secret"
	if err := os.WriteFile(secret, []byte("do not read\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, src+"/out"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(l.top, src+"/outdir"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(src+"/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: shortPath(t, src+"/socket")}); err != nil {
		t.Fatal(err)
	}
	// A tracked file becomes a FIFO; a tracked folder becomes a link; a file a folder.
	if err := os.Remove(src + "/README"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(src+"/README", 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(src + "/dir"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(l.repo, src+"/dir"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(src + "/run.sh"); err != nil {
		t.Fatal(err)
	}
	o.file("run.sh/inner", "x\n")
	for _, n := range []string{".GIT/x", "sub/git~1", "sub/.git ", "sub/.g\u200cit", "sub/.git::$INDEX_ALLOCATION"} {
		o.file(n, "reserved\n")
	}
	if err := os.Symlink("/etc/passwd", src+"/.gitmodules"); err != nil {
		t.Fatal(err)
	}
	o.file("locked/file", "locked\n")
	if err := os.Chmod(src+"/locked/file", 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(src+"/locked", 0); err != nil {
		t.Fatal(err)
	}
	w := o.work()
	has(t, "special", w.Special, "fifo", "socket", "README", ".GIT", "sub/git~1", "sub/.git ", quote("sub/.g\u200cit"), "sub/.git::$INDEX_ALLOCATION", ".gitmodules")
	has(t, "untracked", w.Untracked, "loop1", "loop2", "out", "outdir", "dir", "run.sh/inner", "locked/file")
	has(t, "tracked", w.Tracked, "README", "dir/a.txt", "dir/b.txt", "run.sh")
	if st, err := os.Lstat(src + "/locked"); err != nil || st.Mode().Perm() != 0 {
		t.Errorf("the mode of a locked folder was not put back: %v %v", st.Mode(), err)
	}
	var patch bytes.Buffer
	if err := Diff(context.Background(), o.ws, &patch, DiffOptions{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(patch.String(), "do not read") {
		t.Error("a link out of the tree was followed")
	}
	snap, err := MakeSnapshot(context.Background(), o.ws)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := PublishSnapshot(context.Background(), o.ws, snap); err != nil {
		t.Fatal(err)
	}
	if _, err := KeepIgnored(context.Background(), o.ws); err != nil {
		t.Fatal(err)
	}
	if !exists2(o.ws.Dir+"/kept/files/.GIT/x") || !exists2(o.ws.Dir+"/kept/files/sub/git~1") {
		t.Error("files with reserved names were not kept")
	}
	if err := RemoveTree(context.Background(), src); err != nil {
		t.Fatal(err)
	}
	if exists2(src) || !exists2(secret) || !exists2(l.repo+"/README") {
		t.Error("the removal did too little or too much")
	}
	l.git("fsck", "--strict")
}

// shortPath names a path through a descriptor, for socket addresses.
func shortPath(t *testing.T, p string) string {
	t.Helper()
	d, err := os.Open(filepath.Dir(p))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), filepath.Base(p))
}
