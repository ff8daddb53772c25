//go:build linux

package repos

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// kinds are all kinds of repository, in the order of the document.
func kinds() []kind {
	var all []kind
	for _, g := range groups() {
		all = append(all, g.kinds...)
	}
	return all
}

type group struct {
	title string
	kinds []kind
}

func groups() []group {
	return []group{
		{"Places", places()}, {"Linked worktrees", worktrees()}, {"Without a checkout", bares()}, {"Objects that are elsewhere", borrowed()},
		{"Formats", formats()}, {"States", states()}, {"Submodules", submodules()}, {"Large files", contents()},
	}
}

// old is a reason not to run where git has no such format.
func gitKnows(args ...string) func(*place) string {
	return func(p *place) string {
		if r := p.shell(p.work, "git init -q "+strings.Join(args, " ")+" try.git; rm -rf try.git"); r.Exit != 0 {
			_ = os.RemoveAll(p.work + "/try.git")
			return "this git has no `git init " + strings.Join(args, " ") + "`"
		}
		return ""
	}
}

// read is a file's text.
func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// places are ordinary repositories in unusual places.
func places() []kind {
	return []kind{
		{name: "ordinary checkout", does: "works", make: `base repo`},
		{name: "sub-folder as working folder", does: "works; the task has the whole checkout", make: `base repo`, dir: "repo/d", top: "repo"},
		{name: "path that is a symbolic link", does: "works; inside, the source is at the real path", make: `base real; ln -s real repo`, top: "real"},
		{name: "`.git` is a symbolic link to a git directory", does: "works", make: `base repo; mv repo/.git elsewhere.git; ln -s ../elsewhere.git repo/.git`},
		{name: "`--separate-git-dir`", does: "works", make: `base --separate-git-dir elsewhere.git repo`},
		{name: "nested repository in the checkout", does: "works; the nested one is not in the task", make: `base repo; base repo/in; echo in/ >>repo/.git/info/exclude`,
			more: func(p *place, id string) {
				if out := p.in(id, "ls"); strings.Contains(out, "in\n") {
					p.t.Errorf("the nested repository is in the task: %s", out)
				}
			}},
		{name: "inside a nested repository", does: "works on the nested one", make: `base outer; base outer/repo`, dir: "outer/repo"},
		{name: "`core.worktree` names the checkout", does: "works", make: `base repo; git -C repo config core.worktree "$PWD/repo"`},
		{name: "`core.worktree` names another folder", does: "refused: start in that folder", make: `base repo; mkdir other; git -C repo config core.worktree "$PWD/other"`,
			refuse: []string{"names another folder as its work tree", "/other"}},
		{name: "`core.worktree` from a git directory elsewhere, no `.git` in the checkout", does: "refused: there is no repository around it", make: `base src; git clone -q --bare src dots.git; mkdir repo; git --git-dir dots.git config core.bare false; git --git-dir dots.git config core.worktree "$PWD/repo"; git --git-dir dots.git --work-tree repo checkout -q -f main`,
			refuse: []string{"no git repository there"}},
		{name: "read-only repository", does: "works with a self-contained clone; `apply` writes files where it may; `--source worktree` is refused", make: `base repo; chmod -R a-w repo/.git`,
			as:    "user",
			other: map[string][]string{"--source worktree": {"cannot be written by you", "--source clone"}},
			notes: []string{"self-contained clone"}, skip: "dirty home",
			after: func(p *place, id string) { p.sh(p.work, "chmod -R u+w repo/.git") }},
		{name: "repository of another user", does: "refused: `git config --global --add safe.directory` says that you trust it", make: `base repo; chown -R 4711:4711 repo`,
			as: "root", refuse: []string{"belongs to another user", "safe.directory"}},
		{name: "repository of another user that `safe.directory` names", does: "works with a self-contained clone; results leave as a bundle; `--source worktree` is refused", make: `base repo; chown -R 4711:4711 repo; git config --global --add safe.directory "$PWD/repo"`,
			as: "root", notes: []string{"self-contained clone"}, skip: "home dirty", other: map[string][]string{"--source worktree": {"cannot be written by you", "--source clone"}}},
		{name: "empty repository", does: "works; the first commit is made inside", make: `git init -q repo`,
			other: map[string][]string{"--source worktree": {"has none yet", "first commit"}}, skip: "edit",
			more: func(p *place, id string) { p.in(id, "echo a >a; git add a; git commit -qm first; echo b >b") },
			after: func(p *place, id string) {
				p.ok("branch", id, "back")
				p.ok("apply", "--yes", id)
				if out := p.sh(p.top, "cat a b; git show back:a back:b"); out != "a\nb\na\nb\n" {
					p.t.Errorf("%q", out)
				}
			}},
		{name: "HEAD on an unborn branch", does: "works; the task starts without files", make: `base repo; cd repo; git symbolic-ref HEAD refs/heads/new; git rm -rqf --cached .; rm -rf ./[a-z]*`,
			other: map[string][]string{"--source worktree": {"has none yet"}}, skip: "edit",
			more: func(p *place, id string) {
				p.in(id, "git log -1 main >/dev/null; echo a >a; git add a; git commit -qm first")
			}},
		{name: "detached HEAD", does: "works; HEAD is detached inside as well", make: `base repo; git -C repo checkout -q v1^0`,
			more: func(p *place, id string) { p.in(id, "! git symbolic-ref -q HEAD") }},
	}
}

func relativePaths(p *place) bool {
	r := p.shell(p.work, "git worktree add -h 2>&1 || :")
	return strings.Contains(r.Stdout, "relative-paths")
}

// worktrees are linked worktrees.
func worktrees() []kind {
	linked := `base main; git -C main worktree add -q -b linked ../repo;`
	return []kind{
		{name: "linked worktree", does: "works", make: linked},
		{name: "main worktree that has linked ones", does: "works", make: `base repo; git -C repo worktree add -q -b linked ../linked`},
		{name: "linked worktree, locked", does: "works", make: linked + `git -C main worktree lock --reason why ../repo`},
		{name: "linked worktree, detached", does: "works", make: `base main; git -C main worktree add -q --detach ../repo`},
		{name: "linked worktree with relative pointers", does: "works", make: linked + `echo "gitdir: ../main/.git/worktrees/repo" >repo/.git; echo ../../../../repo/.git >main/.git/worktrees/repo/gitdir`},
		{name: "linked worktree with `extensions.relativeWorktrees`", does: "works with git 2.48 or newer", make: `base main; git -C main worktree add -q --relative-paths -b linked ../repo`,
			unfit: func(p *place) string {
				if !relativePaths(p) {
					return "this git makes no relative worktrees"
				}
				return ""
			}},
		{name: "the same, and git is older", does: "refused: install git 2.48", make: linked + `git -C main config core.repositoryformatversion 1; git -C main config extensions.relativeWorktrees true`,
			refuse: []string{"relativeworktrees", "2.48"},
			unfit: func(p *place) string {
				if relativePaths(p) {
					return "this git knows relative worktrees"
				}
				return ""
			}},
		{name: "linked worktree whose main checkout was moved", does: "refused: `git worktree repair`", make: linked + `mv main moved`,
			refuse: []string{"which is gone", "git worktree repair"}},
		{name: "linked worktree whose main checkout was removed but for `.git`", does: "works", make: linked + `rm -rf main/[a-z]*`},
		{name: "linked worktree that was moved itself", does: "refused: `git worktree repair`", make: linked + `mv repo away; mkdir -p repo; cp -a away/. repo; rm -rf away; echo /nowhere/.git >main/.git/worktrees/repo/gitdir`,
			refuse: []string{"does not name it back", "git worktree repair"}},
		{name: "linked worktree that was pruned", does: "refused: `git worktree repair`, or clone again", make: linked + `rm -rf main/.git/worktrees`,
			refuse: []string{"which is gone", "git worktree repair"}},
		{name: "linked worktree with its own configuration (`extensions.worktreeConfig`)", does: "works", make: linked + `git -C main config extensions.worktreeConfig true; git -C repo config --worktree core.autocrlf false`},
		{name: "linked worktree of a bare repository", does: "works", make: `base src; git clone -q --bare src main.git; git -C main.git worktree add -q ../repo main`},
		{name: "linked worktree of a bare repository, the configuration of each worktree apart", does: "works", make: `base src; git clone -q --bare src main.git; cd main.git; git config extensions.worktreeConfig true; git worktree add -q ../repo main; git config --unset core.bare; git config --file config.worktree core.bare true`},
		{name: "linked worktree, `core.bare=true` in the common configuration with `extensions.worktreeConfig`", does: "works", make: `base src; git clone -q --bare src main.git; cd main.git; git config extensions.worktreeConfig true; git worktree add -q ../repo main; git config core.bare true`, skip: "dirty home"},
		{name: "linked worktree of a bare repository in a `.git` folder", does: "works", make: `mkdir proj; base src; git clone -q --bare src proj/.git; git -C proj/.git worktree add -q ../repo main`, dir: "proj/repo"},
		{name: "linked worktree of a bare repository that a `.git` file names", does: "works", make: `mkdir proj; base src; git clone -q --bare src proj/.bare; echo "gitdir: ./.bare" >proj/.git; git -C proj worktree add -q repo main`, dir: "proj/repo"},
		{name: "linked worktree of a submodule", does: "works", make: `base src; base super; git -C super submodule --quiet add "$PWD/src" mod; git -C super commit -qm mod; git -C super/mod worktree add -q -b linked "$PWD/repo"`},
	}
}

// noCheckout is what a bare repository refuses.
var noCheckout = map[string][]string{"--dirty": {"bare repository", "leave --dirty out"}, "--source checkout --trust": {"bare repository", "--source clone"}}

// bare brings the result of an open task into a repository without a checkout,
// in all ways that there are, once it did something.
func bare(p *place, id string) {
	p.t.Helper()
	p.in(id, `git commit -q --allow-empty -m empty; echo task >>a.txt`)
	p.refused("apply", p.do("apply", "--yes", id), "bare repository", "caisson branch")
	p.untouched("apply")
	if out := p.ok("show", "--json", id); !strings.Contains(out, `"bare": true`) && !strings.Contains(out, `"bare":true`) {
		p.t.Errorf("show does not say that there is no checkout: %s", out)
	}
	p.ok("branch", id, "bare-result")
	if out := p.sh(p.dir, "git diff --name-status HEAD bare-result; git log --format=%s -2 bare-result | tail -n 1; git branch -qD bare-result; rm -rf logs"); out != "M\ta.txt\nempty\n" {
		p.t.Errorf("branch: %q", out)
	}
	p.remember()
	p.in(id, `git reset -q --hard HEAD~1`)
}

// bares are repositories without a checkout.
func bares() []kind {
	return []kind{
		{name: "bare repository", does: "works; inside, the files are at its path. `branch`, `export` and refs bring the result back, `apply` is refused, and so are `--dirty` and `--source checkout`", make: `base src; git clone -q --bare src repo`,
			skip: "home dirty", other: noCheckout, more: bare, notes: []string{"bare repository"}},
		{name: "bare repository in a `.git` folder", does: "as above; the files are where that folder is", make: `base src; mkdir repo; git clone -q --bare src repo/.git`, skip: "home dirty", other: noCheckout, more: bare},
		{name: "bare repository that a `.git` file names", does: "as above", make: `base src; mkdir repo; git clone -q --bare src repo/.bare; echo "gitdir: ./.bare" >repo/.git`, skip: "home dirty", other: noCheckout, more: bare},
		{name: "bare repository in a `.git` folder with `extensions.worktreeConfig`", does: "as above", make: `base src; mkdir repo; git clone -q --bare src repo/.git; cd repo/.git; git config extensions.worktreeConfig true; git config --unset core.bare; git config --file config.worktree core.bare true`,
			skip: "home dirty", other: noCheckout, more: bare},
		{name: "bare repository without `core.bare`, its linked worktree beside", does: "as above", make: `base src; git clone -q --bare src repo; git -C repo worktree add -q ../linked; git -C repo config --unset core.bare`, skip: "home dirty", other: noCheckout, more: bare},
		{name: "bare repository without a commit", does: "works", make: `git init -q --bare repo`, skip: "edit home dirty worktree", other: noCheckout},
		{name: "bare repository inside a checkout", does: "refused: a clone can bring such a folder along; start in the checkout", make: `base repo; git clone -q --bare repo repo/sub`, dir: "repo/sub", top: "repo", refuse: []string{"inside the checkout", "start in"}},
		{name: "folder in a bare repository", does: "works, as in the repository", make: `base src; git clone -q --bare src repo`, dir: "repo/refs/heads", top: "repo", skip: "home dirty", other: noCheckout, more: bare},
		{name: "inside a git directory", does: "refused: start in the checkout", make: `base repo`, dir: "repo/.git/refs", top: "repo", refuse: []string{"the inside of a git directory", "git worktree add"}},
		{name: "inside a separate git directory", does: "refused, as above", make: `base --separate-git-dir=repo.git repo`, dir: "repo.git", top: "repo", refuse: []string{"the inside of a git directory", "start in the checkout"}},
		{name: "`core.bare=true` in the repository of a checkout", does: "refused: unset `core.bare`", make: `base repo; git -C repo config core.bare true`, refuse: []string{"core.bare"}},
	}
}

// borrowed are repositories that have their objects elsewhere.
func borrowed() []kind {
	note := []string{"borrows objects"}
	return []kind{
		{name: "alternates, absolute", does: "works with a self-contained clone", make: `base src; git clone -q --shared src repo`, notes: note},
		{name: "alternates, relative", does: "works with a self-contained clone", make: `base src; git clone -q --shared src repo; echo ../../../src/.git/objects >repo/.git/objects/info/alternates`, notes: note},
		{name: "alternates in a chain", does: "works with a self-contained clone", make: `base src; git clone -q --shared src mid; (cd mid; echo mid >mid; git add mid; git commit -qm mid); git clone -q --shared mid repo; echo ../../../src/.git/objects >mid/.git/objects/info/alternates`, notes: note},
		{name: "alternates with a space in the path", does: "works with a self-contained clone", make: `base "a src"; git clone -q --shared "a src" repo`, notes: note},
		{name: "alternates, quoted, with a line break in the path", does: "refused: rename that folder, or `git repack -a -d` and remove the alternates", make: `n=$(printf 'a\nb'); base "$n"; git clone -q --no-local "$n" repo; printf '"%s/a\\nb/.git/objects"\n' "$PWD" >repo/.git/objects/info/alternates`,
			refuse: []string{"quote or line break"}},
		{name: "alternates that are gone, nothing needed from them", does: "works with a self-contained clone", make: `base repo; echo /nowhere/objects >repo/.git/objects/info/alternates`, notes: note},
		{name: "alternates that are gone, and objects with them", does: "refused: objects are missing", make: `base src; git clone -q --shared src repo; rm -rf src`, refuse: []string{"git fsck"}},
		{name: "shallow clone", does: "works; the task's history ends where yours does", make: `base src; git clone -q --depth 1 "file://$PWD/src" repo`, notes: []string{"shallow repository"}},
		{name: "shallow clone, `--history base`", does: "works", make: `base src; git clone -q --depth 1 "file://$PWD/src" repo`, flags: []string{"--history", "base"}},
		{name: "shallow clone, `--history none`", does: "works", make: `base src; git clone -q --depth 1 "file://$PWD/src" repo`, flags: []string{"--history", "none"}},
		{name: "shallow clone whose history was deepened", does: "works", make: `base src; git clone -q --depth 1 "file://$PWD/src" repo; git -C repo fetch -q --unshallow`},
		{name: "partial clone (`--filter=blob:none`)", does: "refused; `--history none` and `--source worktree` work when the base's files are there", make: partialClone("blob:none") + `; mv src gone`,
			refuse: []string{"partial clone", "--history none"}},
		{name: "partial clone, `--history none`", does: "works with what is there of the base; nothing is fetched", make: partialClone("blob:none") + `; mv src gone`, flags: []string{"--history", "none"},
			other: map[string][]string{"--history base": {"partial clone"}, "--history full": {"partial clone"}, "--dirty": {"partial clone"}}},
		{name: "partial clone without the base's files", does: "refused: `git checkout` fetches them", make: partialClone("blob:none") + ` --no-checkout; mv src gone; git -C repo update-ref --no-deref HEAD HEAD`,
			refuse: []string{"partial clone"}, other: map[string][]string{"--history none": {"objects of the base", "git archive"}, "--source worktree": {"objects of the base", "git archive"}}},
		{name: "partial clone without trees (`--filter=tree:0`)", does: "refused, or `--history none`, as above", make: partialClone("tree:0") + `; mv src gone`, refuse: []string{"partial clone", "--history none"}},
	}
}

// partialClone clones by the protocol, so that a filter acts; then what it came from is gone.
func partialClone(filter string) string {
	return `base src; git -C src config uploadpack.allowFilter true; git -C src config uploadpack.allowAnySHA1InWant true; git clone -q --filter=` + filter + ` "file://$PWD/src" repo`
}

// formats are repository formats.
func formats() []kind {
	return []kind{
		{name: "SHA-256", does: "works", make: `base --object-format=sha256 repo`, unfit: gitKnows("--object-format=sha256")},
		{name: "SHA-256 linked worktree", does: "works", make: `base --object-format=sha256 main; git -C main worktree add -q -b linked ../repo`, unfit: gitKnows("--object-format=sha256")},
		{name: "refs in a reftable", does: "refused: `git refs migrate --ref-format=files`", make: `base --ref-format=reftable repo`, unfit: gitKnows("--ref-format=reftable"), refuse: []string{"reftable", "git refs migrate"}},
		{name: "`extensions.refStorage=reftable` where git knows none", does: "refused, as above", make: `base repo; git -C repo config core.repositoryformatversion 1; git -C repo config extensions.refStorage reftable`, refuse: []string{"reftable", "git refs migrate"}},
		{name: "an unknown `extensions.*`", does: "refused by its name", make: `base repo; git -C repo config core.repositoryformatversion 1; git -C repo config extensions.fromTheFuture 1`, refuse: []string{"fromthefuture"}},
		{name: "`repositoryformatversion` 2 or more", does: "refused", make: `base repo; git -C repo config core.repositoryformatversion 99`, refuse: []string{"99"}},
		{name: "`extensions.preciousObjects`", does: "works", make: `base repo; git -C repo config core.repositoryformatversion 1; git -C repo config extensions.preciousObjects true`},
	}
}

// states are repositories in a state.
func states() []kind {
	diverged := `base repo; cd repo; git checkout -q -b side; echo s >a.txt; git commit -qam s; git checkout -q main; echo m >a.txt; git commit -qam m;`
	// What was in progress is still in progress afterwards, and git inside does not know of it.
	busy := func(p *place, id string) {
		p.in(id, "! test -e .git/MERGE_HEAD; ! test -e .git/CHERRY_PICK_HEAD; ! test -e .git/REVERT_HEAD; ! test -e .git/BISECT_LOG; ! test -d .git/rebase-merge; git checkout -q -f HEAD")
	}
	conflict := map[string][]string{"--dirty": {"a.txt", "resolve"}}
	return []kind{
		{name: "packed refs only", does: "works", make: `base repo; git -C repo pack-refs --all`},
		{name: "commit-graph, multi-pack-index and bitmaps", does: "works", make: `base repo; cd repo; git repack -q -a -d -b; echo 3 >>b.txt; git commit -qam third; git repack -q; git multi-pack-index write; git commit-graph write --reachable`},
		{name: "many packs", does: "works", make: `base repo; cd repo; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo $i >>b.txt; git commit -qam $i; git repack -q; done; true`, more: func(p *place, id string) { p.in(id, "test $(git rev-list --count HEAD) = 22; git fsck") }},
		{name: "split index", does: "works", make: `base repo; git -C repo update-index --split-index`},
		{name: "index of version 4", does: "works", make: `base repo; git -C repo update-index --index-version 4`},
		{name: "untracked cache", does: "works", make: `base repo; git -C repo update-index --force-untracked-cache`},
		{name: "`core.fsmonitor` with a program", does: "works; the program is not run", make: `base repo; cd repo; printf '#!/bin/sh\ntouch %s/fsmonitor\n' "$MARKS" >.git/hooks/monitor; chmod +x .git/hooks/monitor; git config core.fsmonitor .git/hooks/monitor`},
		{name: "sparse checkout, cone", does: "works; the task has every file of the base", make: `base repo; git -C repo sparse-checkout set --cone x`, notes: []string{"sparse checkout"}, skip: "home", after: sparseHome},
		{name: "sparse checkout, patterns", does: "works; the task has every file of the base", make: `base repo; git -C repo sparse-checkout set --no-cone '/*' '!/d/'`, notes: []string{"sparse checkout"}, skip: "home", after: sparseHome},
		{name: "sparse index", does: "works; the task has every file of the base", make: `base repo; git -C repo sparse-checkout set --cone --sparse-index x`, notes: []string{"sparse checkout"}, skip: "home", after: sparseHome},
		{name: "replace refs", does: "works; the task sees the commits as they are", make: `base repo; cd repo; git replace -f HEAD "$(git commit-tree -m other HEAD^{tree})"`},
		{name: "grafts", does: "works; the task sees the commits as they are", make: `base repo; cd repo; git rev-parse HEAD >.git/info/grafts`, more: func(p *place, id string) { p.in(id, "test $(git rev-list --count HEAD) = 2") }},
		{name: "in the middle of a merge", does: "works from the commit; `--dirty` is refused until the conflicts are resolved", make: diverged + `git merge -q side || :`, skip: "home", more: busy, other: conflict},
		{name: "in the middle of a cherry-pick", does: "as above", make: diverged + `git cherry-pick side || :`, skip: "home", more: busy, other: conflict},
		{name: "in the middle of a rebase", does: "as above", make: diverged + `git rebase -q side || :`, skip: "home", more: busy, other: conflict},
		{name: "in the middle of a merge without conflicts", does: "works; `--dirty` carries the files, and a note says that the merge is not known inside", make: `base repo; cd repo; git checkout -q -b side; echo s >s; git add s; git commit -qm s; git checkout -q main; echo m >m; git add m; git commit -qm m; git merge -q --no-commit side`, skip: "home", more: busy},
		{name: "in the middle of a bisect", does: "works; the bisect is not known inside", make: `base repo; cd repo; for i in 1 2 3 4; do echo $i >c; git add c; git commit -qm $i; done; git bisect start -q HEAD v1 >/dev/null`, skip: "home", more: busy},
		{name: "HEAD is not readable", does: "refused: `git fsck`", make: `base repo; echo garbage >repo/.git/HEAD`, refuse: []string{"git fsck"}},
		{name: "HEAD names a commit that is gone", does: "refused: `git fsck`", make: `base repo; echo 1111111111111111111111111111111111111111 >repo/.git/refs/heads/main`, refuse: []string{"git fsck"}},
		{name: "the base's objects are missing", does: "refused: `git fsck`", make: `base repo; cd repo; o=$(git rev-parse HEAD:a.txt); rm -f .git/objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-)`, refuse: []string{"git fsck"}},
		{name: "objects of the history are missing", does: "works with `--history none`", make: `base repo; cd repo; o=$(git rev-parse HEAD^:b.txt); rm -f .git/objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-)`, flags: []string{"--history", "none"}},
		{name: "a ref names an object that is gone", does: "works; that ref is left out, and a note says so", make: `base repo; echo 1111111111111111111111111111111111111111 >repo/.git/refs/heads/broken`, notes: []string{"broken"}},
		{name: "20,000 refs", does: "works", make: "n=2000;" + manyRefs},
	}
}

const nestedModules = `base src; base mid; git -C mid submodule --quiet add "$PWD/src" in; git -C mid commit -qm in; base repo; git -C repo submodule --quiet add "$PWD/mid" mod; git -C repo submodule --quiet update --init --recursive; git -C repo config -f .gitmodules submodule.mod.url https://user@nowhere.invalid/mid; git -C repo config submodule.mod.url https://user@nowhere.invalid/mid; git -C repo config submodule.recurse true; git -C repo commit -qam mod`

const manyRefs = `base repo; cd repo; h=$(git rev-parse HEAD); [ ! "$LONG" ] || n=20000; seq $((n/20)) | awk '{print "commit refs/heads/other/"$1"\ncommitter T <t@x> "$1" +0000\ndata 2\nx\n\nfrom refs/heads/main^0\n"}' | git fast-import --quiet; seq $n | sed "s|.*|create refs/heads/many/&/b $h|" | git update-ref --stdin; git pack-refs --all`

// sparseHome: what lies outside of the sparse checkout is in the way of apply by name.
func sparseHome(p *place, id string) {
	p.refused("apply", p.do("apply", "--yes", id), "git sparse-checkout add")
	p.sh(p.top, "git sparse-checkout disable")
	p.ok("apply", "--yes", id)
	if out := p.sh(p.top, "git status --porcelain"); out != " M a.txt\n M b.txt\n D d/c.txt\n?? new.txt\n?? unt.txt\n" {
		p.t.Errorf("apply: %q", out)
	}
}

// submodules are repositories with others in them.
func submodules() []kind {
	super := `base src; base repo; git -C repo submodule --quiet add "$PWD/src" mod; git -C repo commit -qm mod;`
	filled, empty := []string{"have their files, without git"}, []string{"submodule", "empty"}
	// has checks a file of the submodule, and that git inside takes no offence.
	has := func(files ...string) func(*place, string) {
		return func(p *place, id string) {
			p.in(id, "test -f "+strings.Join(files, " && test -f ")+"; git submodule status >/dev/null; git diff --quiet HEAD")
		}
	}
	none := func(p *place, id string) {
		if out := p.in(id, "ls -A mod"); out != "" {
			p.t.Errorf("the submodule's folder is not empty: %q", out)
		}
	}
	return []kind{
		{name: "submodule", does: "works; the task has the files of the commit that is recorded, taken from your repository, without git in them. A change of them is in no result: `close` keeps the folder (status 7)", make: super, notes: filled, more: has("mod/b.txt", "mod/d/c.txt")},
		{name: "submodule in which the task changes a file", does: "as above", make: super, notes: filled, skip: "edit dirty worktree",
			more: func(p *place, id string) {
				p.in(id, edit+"; echo task >>mod/a.txt; git status --porcelain")
				if got := p.changes(id); !slices.Equal(got, wanted) {
					p.t.Errorf("the change set is %q", got)
				}
			},
			after: func(p *place, id string) {
				if got := read(p.t, p.State+"/tasks/"+id+"/kept/files/mod/a.txt"); got != "a\ntask\n" {
					p.t.Errorf("kept: %q", got)
				}
				p.OK(p.t, p.Dir, "close", "--discard", id)
			}},
		{name: "submodule whose checkout is at another commit", does: "works; the task has the files of the commit that is recorded", make: super + `(cd repo/mod; echo other >>a.txt; git commit -qam other); git -C repo submodule --quiet update`, notes: filled,
			more: func(p *place, id string) { p.in(id, `test "$(cat mod/a.txt)" = a`) }},
		{name: "submodule that was never initialised", does: "works; the folder is empty, and a note says how to fetch it", make: super + `git clone -q repo new; rm -rf repo; mv new repo`, notes: append(empty, "git submodule update --init"), more: none},
		{name: "submodule that was deinitialised", does: "works; the files are there, from what `.git/modules` still has", make: super + `git -C repo submodule --quiet deinit mod`, notes: filled, more: has("mod/b.txt")},
		{name: "submodule whose repository is in its folder", does: "works; the files are there", make: `base src; base repo; git clone -q src repo/mod; cd repo; git config -f .gitmodules submodule.mod.path mod; git config -f .gitmodules submodule.mod.url ../src; git add .; git commit -qm mod`, notes: filled, more: has("mod/b.txt")},
		{name: "repository in the repository that `.gitmodules` does not know", does: "works; the folder is empty, and a note says so", make: `base src; base repo; git clone -q src repo/mod; git -C repo add mod; git -C repo commit -qm mod`, notes: empty, more: none},
		{name: "submodules in submodules, their hosts out of reach", does: "works; all files are there; nothing is asked of the network", make: nestedModules, notes: filled, more: has("mod/b.txt", "mod/in/b.txt")},
		{name: "submodules of a linked worktree", does: "works; the files are there", make: `base src; base main; git -C main submodule --quiet add "$PWD/src" mod; git -C main commit -qm mod; git -C main worktree add -q -b linked ../repo; git -C repo submodule --quiet update --init; git -C main submodule --quiet deinit mod; rm -rf main/.git/modules`, notes: filled, more: has("mod/b.txt")},
		{name: "submodule, the repository of which borrows objects", does: "works; the folder is empty, since what it borrows from could be anything", make: super + `(cd repo/.git/modules/mod; git repack -q -a -d; echo "$PWD/../../../../src/.git/objects" >objects/info/alternates)`, notes: empty, more: none},
		{name: "submodule, the repository of which is a link", does: "works; the folder is empty, since the link could lead anywhere", make: super + `mv repo/.git/modules/mod away.git; ln -s ../../../away.git repo/.git/modules/mod; git config -f away.git/config core.worktree ../repo/mod`, notes: empty, more: none, skip: "dirty home worktree"},
		{name: "submodule with a name that leads out", does: "works; the folder is empty", make: super + `cd repo; sed -i 's|"mod"|"../../../src/.git"|' .gitmodules; git add .gitmodules; git commit -qm out; rm -rf .git/modules mod/.git; mkdir -p mod`, notes: empty, more: none, skip: "edit dirty home worktree"},
		{name: "a task adds a submodule", does: "works; `close` keeps the task's files, since the submodule's commits are in no other place (status 7); `close --discard` removes them", make: `base repo`, skip: "edit dirty worktree",
			more: func(p *place, id string) {
				p.in(id, "git clone -q . /tmp/other; git -c protocol.file.allow=always submodule --quiet add /tmp/other mod; git commit -qm mod; cd mod; echo x >x; git add x; git commit -qm deep")
			},
			after: func(p *place, id string) {
				if _, err := os.Stat(p.State + "/tasks/" + id + "/kept/files/.git/modules/mod/HEAD"); err != nil {
					p.t.Errorf("the submodule's repository is not kept: %v", err)
				}
				p.OK(p.t, p.Dir, "close", "--discard", id)
				if _, err := os.Stat(p.State + "/tasks/" + id + "/source"); err == nil {
					p.t.Error("discarded, and the files are still there")
				}
			}},
		{name: "inside a submodule", does: "works on the submodule alone", make: `base src; base super; git -C super submodule --quiet add "$PWD/src" mod; git -C super commit -qm mod`, dir: "super/mod"},
		{name: "inside a submodule whose repository is in its folder", does: "works on the submodule alone", make: `base src; base super; git clone -q src super/mod; git -C super add mod; git -C super commit -qm mod`, dir: "super/mod"},
		{name: "inside a submodule of a linked worktree", does: "works on the submodule alone", make: `base src; base super; git -C super submodule --quiet add "$PWD/src" mod; git -C super commit -qm mod; git -C super worktree add -q -b linked ../linked; git -C linked submodule --quiet update --init`, dir: "linked/mod"},
	}
}

// contents are repositories whose content is not all in commits.
func contents() []kind {
	pointer := `base repo; cd repo; printf '*.bin filter=lfs diff=lfs merge=lfs -text\n' >.gitattributes; printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 1\n' 1 >p.bin; git add -A; git commit -qm lfs;`
	lfs := []string{"Git LFS"}
	isPointer := func(p *place, id string) {
		if out := p.in(id, "head -1 p.bin"); out != "version https://git-lfs.github.com/spec/v1\n" {
			p.t.Errorf("p.bin inside: %q", out)
		}
	}
	return []kind{
		{name: "Git LFS, the host has no git-lfs", does: "works; files are pointers, and a note says so", make: pointer + `git config filter.lfs.process 'nowhere-lfs process'; git config filter.lfs.required true`, notes: lfs, more: isPointer, skip: "dirty home"},
		{name: "Git LFS, the host has git-lfs and the content", does: "works; files are pointers inside, your content stays as it is, also with `--dirty` and `apply`", make: `base repo; cd repo; git lfs install --local >/dev/null; git lfs track '*.bin' >/dev/null; echo content >p.bin; git add -A; git commit -qm lfs`, notes: lfs, more: isPointer,
			unfit: func(p *place) string {
				if r := p.shell(p.work, "git lfs version"); r.Exit != 0 {
					return "git-lfs is not installed"
				}
				return ""
			},
			after: func(p *place, id string) {
				if got := read(p.t, p.top+"/p.bin"); got != "content\n" {
					p.t.Errorf("p.bin of the checkout is %q", got)
				}
			}},
		{name: "Git LFS, content that the checkout lacks", does: "works; files are pointers on both sides", make: `base src; cd src; git lfs install --local >/dev/null; git lfs track '*.bin' >/dev/null; echo content >p.bin; git add -A; git commit -qm lfs; cd ..; GIT_LFS_SKIP_SMUDGE=1 git clone -q src repo; git -C repo config remote.origin.url https://user@nowhere.invalid/src; git -C repo lfs install --local --skip-smudge >/dev/null`, notes: lfs, more: isPointer,
			unfit: func(p *place) string {
				if r := p.shell(p.work, "git lfs version"); r.Exit != 0 {
					return "git-lfs is not installed"
				}
				return ""
			}},
		{name: "a filter that is required and missing", does: "works; no filter runs", make: `base repo; cd repo; echo '*.txt filter=gone' >.git/info/attributes; git config filter.gone.clean nowhere-filter; git config filter.gone.smudge nowhere-filter; git config filter.gone.required true`, skip: "dirty home"},
	}
}
