//go:build linux

package exact

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// refNames are branches that git allows and that a tool may take for something else.
func refNames(id string) []string {
	return []string{"v1+build", "feat#12", "日本", "@x", "it's", "a\"b", "$(touch${IFS}pwned)", "`touch${IFS}pwned`", "a;b", "a|b&c", "x%20y", "-lead", "--upload-pack=x", "HEAD", "FETCH_HEAD", "refs/heads/main", "heads/main",
		"Feat", "feat", "cafe\u0301", "caf\u00e9", "fea/a/b/c/d/e", "dotted.name.x", "a,b", "{x}", "é\u202egnp", "\u200bzero", "\xff\xfe", "=", "!x", "%s%n", "deadbeef", "main-1-gdeadbee", "stash", "origin/main", "caisson/" + id,
		strings.Repeat("n", 200), strings.Repeat("deep/", 40) + "x", "0", "1", "-", "--", "con", "nul.txt", "x@y", "a@", "tags/v1"}
}

// TestRefs starts from refs of any name and in any form: the base is the commit
// that git finds, or the ambiguity is refused, and a branch keeps its name inside.
func TestRefs(t *testing.T) {
	one(t, "", func(w *world) {
		t := w.t
		w.repo = w.Repo(t, map[string]string{"a.txt": "a\n"})
		for i := range 3 {
			w.git("commit", "-q", "--allow-empty", "-m", fmt.Sprintf("commit %d", i))
		}
		head, back := w.git("rev-parse", "HEAD"), w.git("rev-parse", "HEAD~2")
		taken := w.open() // a branch may be named as a task is
		names := append(refNames(taken), taken)
		var list strings.Builder
		for _, n := range names {
			if w.shell(w.repo, nil, "git check-ref-format 'refs/heads/"+strings.ReplaceAll(n, "'", `'\''`)+"'").Exit == 0 {
				fmt.Fprintf(&list, "create refs/heads/%s\x00%s\x00", n, back)
			} else {
				t.Errorf("git does not allow %q: a dead case", n)
			}
		}
		if r := w.shell(w.repo, []byte(list.String()), "git update-ref -z --stdin"); r.Exit != 0 {
			t.Fatal(r)
		}
		w.git("tag", "v1", head)
		w.git("tag", "-a", "-m", "x", "annotated", back)
		w.git("tag", "both", head)
		w.git("branch", "both", back)
		w.git("tag", "alike", back)
		w.git("branch", "alike", back)
		// A branch whose name is the name of another object.
		w.sh(w.repo, "git update-ref refs/heads/"+head+" "+back)
		const users = "git for-each-ref | grep -v '\trefs/caisson/'"
		before := w.sh(w.repo, users)

		type plan struct {
			Source struct{ Base, Branch string }
		}
		for _, n := range names {
			full := "refs/heads/" + n
			r := w.do("plan", "--json", "--base="+full, "--", "true")
			if v := harness.Decode[plan](t, r.Stdout); r.Exit != 0 || v.Source.Base != back || v.Source.Branch != n && !strings.Contains(n, "\xff") {
				t.Errorf("--base %q: %+v %v", full, v, r)
			}
			// As git takes the short form: or refused where it can mean two.
			short := w.do("plan", "--json", "--base="+n, "--", "true")
			want := strings.TrimSpace(w.shell(w.repo, nil, "git rev-parse -q --verify --end-of-options '"+strings.ReplaceAll(n, "'", `'\''`)+"^{commit}' 2>/dev/null").Stdout)
			if short.Exit != 0 {
				w.refusedJSON(short)
				if want == back && n != "tags/v1" {
					t.Errorf("--base %q is refused, git finds %s: %.300s", n, want, short.Stdout)
				}
			} else if v := harness.Decode[plan](t, short.Stdout); v.Source.Base != want {
				t.Errorf("--base %q is %s, git has %q", n, v.Source.Base, want)
			}
			if short.Exit != 0 { // the document is exact, the words for a person are clear
				w.clear(w.do("plan", "--base="+n, "--", "true"))
			}
		}
		for _, rev := range []string{"HEAD^", "HEAD~2", "@", "@~1", "main^{commit}", "main^0", "v1", "annotated", "refs/tags/annotated", "heads/both", "tags/both", ":/commit 1", "HEAD^{/commit 0}", "main@{0}", head, back, head[:9], "alike", "annotated^{}", "annotated~1", "v1-0-g" + back[:8], "HEAD^^", "@{0}"} {
			r := w.do("plan", "--json", "--base", rev, "--", "true")
			want := w.git("rev-parse", "--verify", "--end-of-options", rev+map[bool]string{true: "^{commit}"}[!strings.HasPrefix(rev, ":/")])
			if v := harness.Decode[plan](t, r.Stdout); r.Exit != 0 || v.Source.Base != want {
				t.Errorf("--base %q is %s, want %s: %.300s", rev, v.Source.Base, want, r.Stdout)
			}
		}
		// The 40 digits are the object; no branch stands at a commit that it does not have.
		if v := harness.Decode[plan](t, w.ok("plan", "--json", "--base", head, "--", "true")); v.Source.Branch != "" {
			t.Errorf("the object %s is taken for the branch %s", head, v.Source.Branch)
		}
		for _, rev := range []string{"both", "nowhere", "HEAD^9", "HEAD:a.txt", "main^{tree}", "", "a b", "..", "main..v1", "^main", "x.lock", "main\n", "--all", "-", strings.Repeat("x", 5000), "\x1b]0;x\x07"} {
			r := w.do("plan", "--json", "--base="+rev, "--", "true")
			if rev == "" || rev == "-" {
				continue // the default; a branch of that name
			}
			if r.Exit == 0 {
				t.Errorf("--base %q is taken: %v", rev, r)
				continue
			}
			w.refusedJSON(r)
			w.clear(w.do("plan", "--base="+rev, "--", "true"))
		}

		// All of them are there inside, and a commit on each comes home under its name.
		id := w.open("--base", "refs/heads/日本")
		if got := w.in(id, "git symbolic-ref HEAD"); got != "refs/heads/日本\n" {
			t.Errorf("HEAD inside is %q", got)
		}
		const list2 = "git for-each-ref --format='%(objectname) %(refname)' refs/heads refs/tags"
		if got, want := w.in(id, list2), w.sh(w.repo, list2); got != want {
			t.Errorf("the refs inside differ %s", first(got, want))
		}
		w.in(id, `git for-each-ref --format='%(refname)' refs/heads >/tmp/refs
while IFS= read -r ref; do c=$(git commit-tree -p "$ref" -m "on $ref" "$ref^{tree}"); printf 'update %s\000%s\000\000' "$ref" "$c"; done </tmp/refs >/tmp/up; git update-ref -z --stdin </tmp/up`)
		inside := w.in(id, list2)
		r := w.do("close", "--keep", "never", id)
		if r.Exit != 0 {
			t.Error(r)
		}
		w.clear(r)
		home := w.sh(w.repo, "git for-each-ref --format='%(objectname) %(refname)' refs/caisson/"+id+"/heads")
		numbered := 0
		for _, l := range strings.Split(strings.TrimSpace(inside), "\n") {
			oid, ref, _ := strings.Cut(l, " ")
			name, ok := strings.CutPrefix(ref, "refs/heads/")
			switch {
			case !ok || strings.Contains(home, oid+" refs/caisson/"+id+"/heads/"+name+"\n"):
			case strings.Contains(home, oid+" refs/caisson/"+id+"/heads/"):
				numbered++ // beside a name that is the same where case or accents do not count
			default:
				t.Errorf("the commit on %q did not come home: %v", name, r)
			}
		}
		if numbered > 4 {
			t.Errorf("%d branches came home under another name: %s", numbered, home)
		}
		w.ok("close", taken)
		if now := w.sh(w.repo, users); now != before {
			t.Errorf("refs of the user changed %s", first(now, before))
		}
		w.git("fsck", "--strict", "--no-dangling")
		w.homeUntouched()
	})
}

// refusedJSON checks the document of a refusal: typed, with a next step.
func (w *world) refusedJSON(r harness.Result) {
	w.t.Helper()
	v := harness.Decode[struct {
		Error struct{ Code, Message, Hint string }
	}](w.t, r.Stdout)
	if v.Error.Code == "" || v.Error.Code == "internal" || v.Error.Message == "" || v.Error.Hint == "" {
		w.t.Errorf("not a clear refusal: %q %+v", r.Args[1:], v)
	}
}
