//go:build linux

package source

import (
	"context"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
)

// What is read without git is what git lists, or git is asked.
func TestUserRefsAgreeWithGit(t *testing.T) {
	t.Parallel()
	put := func(l *lab, name, text string) { l.write(".git/"+name, text) }
	for _, c := range []struct {
		name string
		do   func(l *lab, tip string)
		ask  bool // git must be asked
	}{
		{"loose", func(l *lab, tip string) {}, false},
		{"packed", func(l *lab, tip string) { l.git("pack-refs", "--all") }, false},
		{"both", func(l *lab, tip string) {
			l.git("pack-refs", "--all")
			l.git("update-ref", "refs/heads/side", tip)
			l.git("branch", "feature/deep/er")
			l.git("branch", "-D", "feature/deep/er")
			l.git("update-ref", "refs/caisson/tabcdefghij/pin/0", tip)
		}, false},
		{"symbolic over packed", func(l *lab, tip string) {
			l.git("branch", "alias")
			l.git("pack-refs", "--all")
			l.git("symbolic-ref", "refs/heads/alias", "refs/heads/side")
		}, false},
		{"lock of a git that was killed", func(l *lab, tip string) { put(l, "refs/heads/side.lock", "") }, false},
		{"object that is gone", func(l *lab, tip string) { put(l, "refs/heads/gone", strings.Repeat("12", 20)+"\n") }, false},
		{"odd names", func(l *lab, tip string) {
			l.git("branch", "ünï/日本#1+x")
			l.git("update-ref", "refs/tags/-x", tip)
		}, false},
		{"no loose", func(l *lab, tip string) {
			l.git("pack-refs", "--all", "--prune")
			for _, d := range []string{"refs/heads", "refs/tags", "refs/remotes"} {
				_ = os.RemoveAll(l.repo + "/.git/" + d)
			}
		}, false},
		{"dangling", func(l *lab, tip string) {
			l.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/none")
		}, true},
		{"chain", func(l *lab, tip string) { l.git("symbolic-ref", "refs/heads/c", "refs/remotes/origin/HEAD") }, true},
		{"garbage", func(l *lab, tip string) { put(l, "refs/heads/bad", "nonsense\n") }, true},
		{"empty file", func(l *lab, tip string) { put(l, "refs/heads/empty", "") }, true},
		{"zero", func(l *lab, tip string) { put(l, "refs/heads/zero", strings.Repeat("0", 40)+"\n") }, true},
		{"name that git refuses", func(l *lab, tip string) { put(l, "refs/heads/a..b", tip+"\n") }, true},
		{"link", func(l *lab, tip string) {
			if err := os.Symlink("side", l.repo+"/.git/refs/heads/linked"); err != nil {
				l.t.Fatal(err)
			}
		}, true},
		{"packed that was cut", func(l *lab, tip string) {
			l.git("pack-refs", "--all")
			b, err := os.ReadFile(l.repo + "/.git/packed-refs")
			if err != nil {
				l.t.Fatal(err)
			}
			put(l, "packed-refs", strings.TrimSuffix(string(b), "\n"))
		}, true},
		{"another way to store them", func(l *lab, tip string) { put(l, "reftable/tables.list", "") }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := basic(t)
			c.do(l, l.git("rev-parse", "HEAD"))
			g, err := findGit(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			for _, prefix := range []string{"refs/", "refs/heads/", "refs/caisson/", "refs/caisson/tabcdefghij/pin/"} {
				got, err := userRefs(context.Background(), l.repo+"/.git", prefix)
				if prefix == "refs/" && c.ask != errors.Is(err, errAskGit) {
					t.Errorf("git must be asked: %v, got %v", c.ask, err)
				}
				if err != nil {
					continue
				}
				want, err := listRefs(context.Background(), g, l.repo+"/.git", prefix)
				if err != nil {
					t.Fatal(err)
				}
				if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
					t.Errorf("%s\n got %v\nwant %v", prefix, got, want)
				}
			}
		})
	}
}

// A pin that fails, or that holds less than was seen, is found out beside the
// checkout: the two repositories say what is true.
func TestPinsBesideTheCheckout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		do     func(l *lab)
		shared bool
		note   string
	}{
		{"all held", func(l *lab) {}, true, ""},
		{"a ref without its object", func(l *lab) { l.write(".git/refs/heads/gone", strings.Repeat("12", 20)+"\n") }, true, "left out, its object is missing: refs/heads/gone"},
		{"refs that cannot be written", func(l *lab) { l.write(".git/refs/caisson", "in the way\n") }, false, "refs cannot be written"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := basic(t)
			r, err := Inspect(context.Background(), Options{Dir: l.repo, Env: l.env})
			if err != nil {
				t.Fatal(err)
			}
			c.do(l)
			if c.shared {
				if r, err = Inspect(context.Background(), Options{Dir: l.repo, Env: l.env}); err != nil {
					t.Fatal(err)
				}
			}
			at := l.top + "/objects"
			if err := errors.Join(os.Mkdir(at, 0o755), os.Symlink(l.repo+"/.git/objects", at+"/0")); err != nil {
				t.Fatal(err)
			}
			ws := Workspace{Task: "tabcdefghij", Dir: l.state, Token: "x"}
			p, err := Prepare(context.Background(), r, ws, Inside{ObjectsDir: at, UID: 1000, GID: 1000})
			if err != nil {
				t.Fatal(err)
			}
			if p.Ref.Shared != c.shared || !strings.Contains(strings.Join(p.Ref.Notes, "\n"), c.note) {
				t.Errorf("shared %v, notes %q", p.Ref.Shared, p.Ref.Notes)
			}
			_, err = os.Stat(ws.source() + "/.git/objects/info/alternates")
			if (err == nil) != c.shared {
				t.Errorf("alternates: %v", err)
			}
			dir, env := ws.source(), []string(nil)
			if out, err := l.tryGit(dir, env, "fsck", "--connectivity-only"); err != nil && c.note == "" {
				t.Errorf("%v %s", err, out)
			}
			if out, err := l.tryGit(dir, env, "status", "--porcelain"); err != nil || strings.TrimSpace(out) != "" {
				t.Errorf("%v %s", err, out)
			}
			out, err := l.tryGit(dir, env, "for-each-ref", "--format=%(refname)")
			if err != nil || strings.Contains(out, "gone") || !strings.Contains(out, "refs/heads/main") {
				t.Errorf("%v %s", err, out)
			}
			if w, err := Work(context.Background(), ws); err != nil || !w.Empty() {
				t.Errorf("%v %v", w, err)
			}
		})
	}
}
