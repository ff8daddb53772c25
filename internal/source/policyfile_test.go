//go:build linux

package source

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestNamedAndLying(t *testing.T) {
	l := newLab(t)
	l.plain(l.repo, "init", "-q")
	l.write(".caisson.yaml", "version: 1\n")
	l.write(".claude/agents/a.md", "agent")
	l.write("other", "x")
	l.plain(l.repo, "add", "-A")
	l.plain(l.repo, "commit", "-qm", "one")
	l.plain(l.repo, "remote", "add", "upstream", "https://u@up.example.com:8443/a/b.git")
	l.plain(l.repo, "remote", "add", "origin", "git@git.example.com:acme/shop.git")
	inspect := func() *Repo {
		t.Helper()
		r, err := Inspect(context.Background(), Options{Dir: l.repo, Env: l.env})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := inspect()
	if got := r.Remotes(); len(got) != 2 || RemoteHost(got[0]) != "git.example.com" || RemoteHost(got[1]) != "up.example.com" {
		t.Errorf("remotes %v", got)
	}
	names := []string{".caisson.yaml", ".claude/agents", "absent"}
	got, err := r.Named(context.Background(), 100, names...)
	if err != nil || len(got) != 2 || string(got[".claude/agents/a.md"]) != "agent" {
		t.Errorf("%v, %v", got, err)
	}
	// The checkout may say something else; what is no file there passes for no file.
	l.write(".caisson.yaml", "changed")
	l.write(".claude/agents/b.md", "another")
	if err := os.Symlink("/etc/passwd", l.repo+"/.claude/agents/link"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(l.repo+"/.claude/agents/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	lying, err := r.Lying(100, names...)
	if err != nil || !slices.Equal(slices.Sorted(maps.Keys(lying)), []string{".caisson.yaml", ".claude/agents/a.md", ".claude/agents/b.md", ".claude/agents/link", ".claude/agents/pipe"}) || string(lying[".caisson.yaml"]) != "changed" {
		t.Errorf("%v, %v", lying, err)
	}
	for _, odd := range []string{".claude/agents/link", ".claude/agents/pipe"} {
		if !strings.HasPrefix(string(lying[odd]), Unread) {
			t.Errorf("%s passes for a file: %q", odd, lying[odd])
		}
	}
	// A link is as what it leads to; one that leads out is never the same.
	l.write("other", "one")
	if err := os.Symlink("../../other", l.repo+"/.claude/agents/inner"); err != nil {
		t.Fatal(err)
	}
	seen := func(name string) string {
		t.Helper()
		m, err := r.Lying(100, names...)
		if err != nil {
			t.Fatal(err)
		}
		return string(m[".claude/agents/"+name])
	}
	if a, b := seen("inner"), seen("inner"); a != b {
		t.Errorf("%q, then %q", a, b)
	}
	if a, b := seen("link"), seen("link"); a == b {
		t.Errorf("a link out of the checkout is the same twice: %q", a)
	}
	was := seen("inner")
	if l.write("other", "two"); seen("inner") == was {
		t.Error("what a link leads to changed, and it is as before")
	}
	if again, err := r.Named(context.Background(), 100, names...); err != nil || string(again[".caisson.yaml"]) != "version: 1\n" {
		t.Errorf("the base changed with the checkout: %v, %v", again, err)
	}
	// Nothing that is too long or no file passes for one that is not there.
	l.write(".caisson.yaml", strings.Repeat("x", 101))
	if lying, err := r.Lying(100, names...); err != nil || !strings.HasPrefix(string(lying[".caisson.yaml"]), Unread) {
		t.Errorf("a long file of the checkout: %v, %v", lying, err)
	}
	l.plain(l.repo, "commit", "-qam", "two")
	if got, err := inspect().Named(context.Background(), 100, names...); err != nil || !strings.HasPrefix(string(got[".caisson.yaml"]), Unread) || string(got[".claude/agents/a.md"]) != "agent" {
		t.Errorf("a long file of the base: %v, %v", got, err)
	}
	if err := os.Remove(l.repo + "/.caisson.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("other", l.repo+"/.caisson.yaml"); err != nil {
		t.Fatal(err)
	}
	l.plain(l.repo, "commit", "-qam", "three")
	if got, err := inspect().Named(context.Background(), 100, names...); err != nil || !strings.HasPrefix(string(got[".caisson.yaml"]), Unread+"120000 ") {
		t.Errorf("a link at the base: %v, %v", got, err)
	}
	// A link on the way leads nowhere.
	if err := os.RemoveAll(l.repo + "/.claude"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(l.top+"/out/agents", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.top+"/out/agents/x.md", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(l.top+"/out", l.repo+"/.claude"); err != nil {
		t.Fatal(err)
	}
	if lying, err := r.Lying(100, ".claude/agents"); err != nil || len(lying) != 0 {
		t.Errorf("through a link: %v, %v", lying, err)
	}
}

func TestRemoteHost(t *testing.T) {
	for in, want := range map[string]string{
		"git@git.example.com:a/b.git": "git.example.com", "https://Git.Example.com/a": "git.example.com", "ssh://git@h.example:22/a": "h.example",
		"/srv/git/a.git": "", "../a": "", "file:///srv/a": "", "host:path": "host", "": "", "c/d:e": "",
	} {
		if got := RemoteHost(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
