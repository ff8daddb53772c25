//go:build linux

package oci

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend/oci"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

func ownerOf(st os.FileInfo) int {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}

func code(r harness.Result) string {
	var e struct{ Error struct{ Code string } }
	if json.Unmarshal([]byte(r.Stdout), &e) != nil {
		_ = json.Unmarshal([]byte(r.Stderr), &e)
	}
	return e.Error.Code
}

// The main job: a change is made inside and brought out, exactly.
func TestPath(t *testing.T) {
	both(t, func(t *testing.T, b string, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "one\n", "dir/b.txt": "two\n"})
		open := id.Open(t, repo, "--backend", b, "work")
		r := id.Caisson(t, repo, "exec", open, "--", "sh", "-c", `echo three >new.txt; rm dir/b.txt; echo more >>a.txt; printf 'x\n' >"odd
name"; chmod 755 a.txt; git add -A && git commit -qm inside && echo later >later.txt; exit 3`)
		if r.Exit != 3 {
			t.Fatal(r)
		}
		out := id.OK(t, repo, "diff", "--name-status", "-z", open)
		for _, want := range []string{"M\x00a.txt\x00", "D\x00dir/b.txt\x00", "A\x00new.txt\x00", "A\x00odd\nname\x00", "A\x00later.txt\x00"} {
			if !strings.Contains(out, want) {
				t.Errorf("the change lacks %q: %q", want, out)
			}
		}
		// Who owns a file inside is who owns it outside.
		v := harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", open))
		for _, f := range []string{"new.txt", "a.txt"} {
			st, err := os.Stat(filepath.Join(v.TaskDir, "source", f))
			if err != nil || ownerOf(st) != id.UID {
				t.Errorf("%s belongs to %d, want %d (%v)", f, ownerOf(st), id.UID, err)
			}
		}
		if v.Channel != "uid-split" || v.Backend != b {
			t.Errorf("channel %s of backend %s", v.Channel, v.Backend)
		}
		want := map[task.Axis]int{task.PRC: 2, task.FS: 2, task.NET: 4, task.KRN: 1, task.CPL: 2, task.CHN: 1, task.RES: 2}
		if b == oci.GVisor {
			want[task.KRN] = 2
		}
		if id.UID != 0 {
			want[task.RES] = 1 // no control group is the user's
		}
		for _, l := range v.Levels {
			if n, ok := want[l.Axis]; ok && l.Proved != n {
				t.Errorf("%s is proved as %d, want %d: %s", l.Axis, l.Proved, n, l.How)
			}
		}
		// Input, output and statuses pass as they are.
		cmd := id.Command(t.Context(), repo, harness.Bin(), "exec", open, "--", "sh", "-c", "wc -c; seq 1 20000 | cksum; kill -9 $$")
		cmd.Stdin = strings.NewReader(strings.Repeat("0123456789", 50000))
		if r := harness.Run(t, cmd); r.Exit != 137 || r.Stdout != "500000\n3231941463 108894\n" {
			t.Errorf("streams: %v", r)
		}
		if r := id.Caisson(t, repo, "exec", open, "--", "no-such-program"); r.Exit != 127 {
			t.Errorf("a program that is not there: %v", r)
		}
		id.OK(t, repo, "apply", "--allow-risky", open)
		if b, err := os.ReadFile(repo + "/later.txt"); err != nil || string(b) != "later\n" {
			t.Errorf("applied: %q %v", b, err)
		}
		id.OK(t, repo, "close", open)
		if refs := id.Git(t, repo, "for-each-ref", "refs/caisson/"+open); !strings.Contains(refs, "commit") {
			t.Errorf("the commit was not brought out: %q", refs)
		}
		if left, _ := filepath.Glob(id.State + "/oci/*"); len(left) > 0 {
			t.Errorf("bundles are left: %q", left)
		}
		if left, _ := filepath.Glob(id.Runtime + "/o-*"); len(left) > 0 {
			t.Errorf("runtimes' folders are left: %q", left)
		}
	})
}

// What is asked for and cannot be had is refused by name, before anything is made.
func TestRefused(t *testing.T) {
	each(t, func(t *testing.T, b string) {
		harness.Each(t, func(t *testing.T, id *harness.Identity) {
			repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
			for _, flags := range [][]string{{"--image", "debian"}, {"--grant", "userns"}} {
				r := id.Caisson(t, repo, append(append([]string{"run", "--json", "--backend", b}, flags...), "--", "true")...)
				if c := code(r); r.Exit == 0 || c != "unsupported" && c != "unavailable" && c != "usage" {
					t.Errorf("%q: code %q of %v", flags, c, r)
				}
			}
			if id.UID != 0 && b != oci.GVisor {
				if r := id.Caisson(t, repo, "run", "--json", "--backend", b, "--", "true"); code(r) != "unavailable" {
					t.Errorf("as a user: %v", r)
				}
			}
		})
	})
}
