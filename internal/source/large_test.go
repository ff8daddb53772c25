//go:build linux

package source

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/source/git"
)

// TestLargeFiles looks at large files again and again: what was stored by an
// earlier look is not stored again, and the tree is always the one that storing
// everything anew gives, whatever converts them.
func TestLargeFiles(t *testing.T) {
	limit := largeFile
	defer func() { largeFile = limit }()
	for name, c := range map[string]struct {
		setup string // of the user's repository
		make  string // in the task
		then  []string
		known []string // found by the last look
	}{
		"plain":            {make: `cp /bin/sh big; cp /bin/sh exec; chmod 755 exec; chmod 644 big`, then: []string{`echo >>big`, `chmod 755 big`}, known: []string{"big", "exec"}},
		"names":            {make: `cp /bin/sh ' a b'; cp /bin/sh -- -x; cp /bin/sh "$(printf 'u\303\274')"; cp /bin/sh "$(printf 'l\nb')"; cp /bin/sh '"q'; cp /bin/sh 'b\s'`, known: []string{" a b", "-x", "uü"}},
		"unfit":            {make: `cp /bin/sh big; mkdir s; cp /bin/sh 's/.GIT'`, known: []string{"big"}},
		"folder and file":  {make: `rm -r dir; cp /bin/sh dir; rm README; mkdir README; cp /bin/sh README/x`, then: []string{`rm dir; mkdir dir; cp /bin/sh dir/y`}, known: []string{"README/x", "dir/y"}},
		"text by rule":     {setup: `echo '*.t text eol=lf' >.gitattributes`, make: `yes "$(printf 'l\r')" | head -n 5000 >x.t; yes "$(printf 'l\r')" | head -n 5000 >x.u`, known: []string{"x.u"}},
		"rule later":       {make: `yes "$(printf 'l\r')" | head -n 5000 >x.t`, then: []string{`echo '*.t text eol=lf' >.gitattributes`}},
		"rule goes":        {setup: `echo '*.t text eol=lf' >.gitattributes`, make: `yes "$(printf 'l\r')" | head -n 5000 >x.t`, then: []string{`rm .gitattributes`, `true`}},
		"no text":          {setup: `echo '* -text -filter' >.gitattributes`, make: `yes "$(printf 'l\r')" | head -n 5000 >x.t`, known: []string{"x.t"}},
		"ident":            {setup: `echo '*.c ident' >.gitattributes`, make: `yes '$Id: x $' | head -n 5000 >x.c`},
		"encoding":         {setup: `echo '*.w working-tree-encoding=UTF-16LE' >.gitattributes`, make: `yes ab | head -n 5000 >x.w`},
		"filter":           {setup: `echo '*.f filter=lfs' >.gitattributes`, make: `yes ab | head -n 5000 >x.f`},
		"auto":             {setup: `git config core.autocrlf input; echo x >y`, make: `yes "$(printf 'l\r')" | head -n 5000 >x.t`},
		"a rule by folder": {make: `mkdir -p p/q; yes "$(printf 'l\r')" | head -n 5000 >p/q/x.t; cp p/q/x.t p/x.t`, then: []string{`echo '*.t text' >p/q/.gitattributes`, `true`}, known: []string{"p/x.t"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := basic(t)
			if c.setup != "" {
				l.sh(c.setup)
				l.git("add", "-A")
				l.git("commit", "-qm", "setup")
			}
			o := l.open(Options{})
			in := func(script string) {
				t.Helper()
				cmd := exec.Command("sh", "-ec", script)
				cmd.Dir = o.p.Source
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", script, err, out)
				}
			}
			tree := func(limit int64) string {
				t.Helper()
				largeFile = limit
				_, _, tree, err := o.ws.lookAt(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				return tree
			}
			for _, script := range append([]string{c.make}, append(c.then, "true")...) {
				in(script)
				first := tree(1000)
				if again, anew := tree(1000), tree(1<<40); first != anew || again != anew {
					t.Errorf("after %s: first %s, again %s, anew %s", script, first, again, anew)
				}
			}
			// What the last look has found.
			largeFile = 1000
			s, err := o.ws.loadState()
			if err != nil {
				t.Fatal(err)
			}
			st, err := o.ws.newStage()
			if err != nil {
				t.Fatal(err)
			}
			defer st.remove(context.Background())
			if _, err := o.ws.scan(context.Background(), s, st); err != nil {
				t.Fatal(err)
			}
			g, err := findGit(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := o.ws.known(context.Background(), g, o.ws.shadow(), recording{work: st.path, index: o.ws.shadow() + "/" + baseIndex, large: st.large})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range c.known {
				mode, oid, _ := strings.Cut(got[p], " ")
				if !git.IsOID(oid) || mode != "100644" && mode != "100755" {
					t.Errorf("%q was not found again: %q", p, got[p])
				}
				delete(got, p)
			}
			for p := range got {
				t.Errorf("%q was found, which git converts", p)
			}
			if _, err := os.Stat(o.ws.shadow() + "/" + largeList); (err == nil) != (len(c.known) > 0 || c.then != nil) {
				t.Errorf("the list: %v", err)
			}
		})
	}
}
