//go:build linux

package results

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// plant is one thing in a task's folder that makes a git on the host start a
// program of the task's, and the plain git command that shows it.
type plant struct {
	name    string
	make    string // inside; $M leaves the mark when run on the host
	control string // outside, in a copy of the folder; empty: this git cannot be made to, see why
	why     string
	pty     bool // the control needs a terminal
}

// config plants a key whose value is the command.
func config(key, control string) plant {
	return plant{name: strings.NewReplacer("/", "_", ":", "_").Replace(key), make: fmt.Sprintf(`git config '%s' "$M"`, key), control: control}
}

// program plants a key that takes a program without arguments.
func program(key, control string) plant {
	return plant{name: key, make: fmt.Sprintf(`git config '%s' "$P"`, key), control: control}
}

// attrs are what the keys with free names need.
const attrs = `printf '*.x diff=d filter=f merge=m ident\n*.y filter=p\n*.t diff=t\n' >.gitattributes; mkdir -p .git/info; cp .gitattributes .git/info/attributes; for f in a.x a.y a.t; do date +%s%N >>$f; done`

func plants() []plant {
	hooks := []string{"pre-commit", "post-commit", "commit-msg", "prepare-commit-msg", "post-checkout", "post-merge", "pre-merge-commit", "post-rewrite", "pre-rebase", "pre-push", "pre-auto-gc", "post-index-change",
		"reference-transaction", "fsmonitor-watchman", "applypatch-msg", "pre-applypatch", "post-applypatch", "sendemail-validate", "pre-receive", "update", "post-receive", "post-update", "push-to-checkout", "proc-receive"}
	list := []plant{
		{name: "hooks", make: `mkdir -p .git/hooks; for h in ` + strings.Join(hooks, " ") + `; do printf '#!/bin/sh\n%s\n' "$M" >.git/hooks/$h; chmod +x .git/hooks/$h; done`, control: "git commit -qm x --allow-empty"},
		{name: "core.hooksPath", make: `mkdir -p hk; for h in ` + strings.Join(hooks, " ") + `; do printf '#!/bin/sh\n%s\n' "$M" >hk/$h; chmod +x hk/$h; done; git config core.hooksPath hk`, control: "git commit -qm x --allow-empty"},
		config("core.fsmonitor", "git status"),
		config("core.pager", "git --paginate log"),
		config("pager.diff", "git diff HEAD"),
		config("core.editor", "git commit --allow-empty"),
		config("sequence.editor", "git commit -qam x; git rebase -i HEAD~1"),
		config("core.sshCommand", "git fetch ssh://x.invalid/y"),
		program("core.askPass", "printf 'protocol=https\nhost=x.invalid\n\n' | setsid git credential fill"),
		program("credential.helper", "printf 'protocol=https\nhost=x.invalid\n\n' | setsid git -c core.askPass=true credential fill"),
		program("core.gitProxy", "git fetch git://x.invalid/y"),
		config("core.alternateRefsCommand", "git clone -q --bare . alt; echo \"$PWD/alt/objects\" >.git/objects/info/alternates; git push -q . HEAD:refs/heads/q"),
		program("gpg.program", "git commit -qS -m x --allow-empty"),
		program("gpg.ssh.program", "echo k >k; git -c gpg.format=ssh -c user.signingKey=k commit -qS -m x --allow-empty"),
		config("diff.external", "git diff HEAD"),
		config("diff.d.command", "git diff HEAD"),
		config("diff.t.textconv", "git diff HEAD"),
		config("filter.f.clean", "touch a.x; git add -A"),
		config("filter.f.smudge", "git add -A; rm -f a.x; git checkout -- a.x"),
		config("filter.p.process", "touch a.y; git add -A"),
		config("merge.m.driver", "git add -A; git commit -qm 1; git branch o HEAD~1; echo 1 >a.x; git commit -qam 2; git switch -qf o; echo 2 >a.x; git add -A; git commit -qm 3; git merge main"),
		config("alias.zz", ""),
		{name: "alias", make: `git config alias.zz "!$M"`, control: "git zz"},
		{name: "include.path", make: `printf '[core]\n\tfsmonitor = %s\n' "$M" >inc; git config include.path ../inc`, control: "git status"},
		{name: "includeIf", make: `printf '[core]\n\tfsmonitor = %s\n' "$M" >inc2; git config 'includeIf.gitdir:**.path' ../inc2`, control: "git status"},
		{name: "config.worktree", make: `git config extensions.worktreeConfig true; printf '[core]\n\tfsmonitor = %s\n' "$M" >.git/config.worktree`, control: "git status"},
		{name: "submodule.update", make: `git init -q sub; git -C sub commit -q --allow-empty -m s; git add sub; printf '[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n' >.gitmodules; git config submodule.sub.url "$PWD/sub"; git config submodule.sub.update "!$M"`,
			control: "git -c protocol.file.allow=always submodule init; git -C sub commit -q --allow-empty -m s2; git submodule update"},
		{name: "gitlink.fsmonitor", make: `git init -q nest; git -C nest commit -q --allow-empty -m s; git -C nest config core.fsmonitor "$M"; git add nest; git commit -qm nested`, control: "git status"},
		{name: "gitlink.filter", make: `git init -q nest; cd nest; echo '* filter=f' >.gitattributes; echo x >x; git add .; git commit -qm s; git config filter.f.clean "$M"; git config filter.f.required true; touch x; cd ..; git add nest; git commit -qm nested; echo y >nest/x`, control: "git --no-optional-locks status; git diff HEAD"},
		{name: "bare", make: `mkdir -p bare/hooks bare/objects bare/refs; echo 'ref: refs/heads/main' >bare/HEAD; printf '[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = %s\n[alias]\n\tzz = !%s\n' "$M" "$M" >bare/config`, control: "cd bare && git zz"},
		{name: "trailer", make: `git config trailer.k.key K; git config trailer.k.command "$M"`, control: "echo x | git interpret-trailers"},
		{name: "tar.command", make: `git config tar.zz.command "$M"`, control: "git archive --format=zz HEAD"},
		{name: "uploadpack", make: `git config remote.origin.url .; git config remote.origin.uploadpack "$M;false"`, control: "git fetch origin"},
		{name: "receivepack", make: `git config remote.origin.url .; git config remote.origin.receivepack "$M;false"`, control: "git push origin HEAD:refs/heads/zz"},
		{name: "ext", make: `git config protocol.ext.allow always; git config 'url.ext::sh -c touch% '"${M#touch }"'% #.insteadOf' evil:`, control: "git fetch evil:x"},
		{name: "vcs", make: `git config remote.origin.url 'ext::sh -c '"$(echo "$M" | sed 's/ /% /g')"; git config protocol.allow always`, control: "git fetch origin"},
		{name: "promisor", make: `git config remote.origin.url .; git config remote.origin.promisor true; git config extensions.partialClone origin; git config core.repositoryFormatVersion 1; git config remote.origin.uploadpack "$M;false"`,
			control: "git cat-file -p 1111111111111111111111111111111111111111"},
		{name: "recentObjectsHook", make: `git config gc.recentObjectsHook "$M"`, why: "newer than the oldest git that is tested"},
		{name: "packObjectsHook", make: `git config uploadpack.packObjectsHook "$M"`, why: "git reads it from the user's own configuration only"},
		{name: "difftool", make: `git config diff.tool e; git config difftool.e.cmd "$M"; git config difftool.prompt false`, control: "git difftool HEAD"},
		{name: "mergetool", make: `git config merge.tool e; git config mergetool.e.cmd "$M"`, why: "asked for by name only"},
		{name: "interactive.diffFilter", make: `git config interactive.diffFilter "$M"`, control: "echo q | git add -p"},
		{name: "fsmonitor.daemon", make: `git config core.fsmonitor true; git config core.untrackedCache true`, why: "no program of the task's"},
	}
	for i := range list {
		switch list[i].name {
		case "core.pager", "pager.diff", "interactive.diffFilter":
			list[i].pty = true
		}
	}
	return slices.DeleteFunc(list, func(p plant) bool { return p.name == "alias.zz" })
}

// hostPaths runs every command of ours that reads a task or what it made.
// Their statuses are not of interest, only what they cause.
func (p *place) hostPaths(id string) (all []harness.Result) {
	p.t.Helper()
	out := p.Dir + "/out"
	p.Mkdir(p.t, out)
	n := fmt.Sprint(len(id), len(all))
	for _, args := range [][]string{
		{"show", id}, {"ls", "--all"}, {"log", id}, {"diff", id}, {"diff", "--json", id}, {"diff", "--stat", id}, {"diff", "--name-status", "-z", id}, {"diff", id, "--", "a.x"}, {"close", "--dry-run", id},
		{"apply", "--dry-run", id}, {"branch", id, "from-task-" + id}, {"export", "--patch", "-o", out + "/" + id + n + ".patch", id}, {"export", "--bundle", "-o", out + "/" + id + n + ".bundle", id},
		{"export", "--dir", out + "/" + id + n + ".d", id}, {"keep", "--for", "1h", "--reason", "to look at it", id}, {"reap", "--dry-run"}, {"reap"},
	} {
		all = append(all, p.do(args...))
	}
	all = append(all, p.do("apply", "--allow-risky", "--yes", id))
	return all
}

// last ends a task in the ways there are: kept, resumed, closed, and looked at after.
func (p *place) last(id string) (all []harness.Result) {
	p.t.Helper()
	for _, args := range [][]string{{"close", "--keep", "always", id}, {"diff", id}, {"resume", id}, {"close", "--keep", "never", id}, {"diff", id}, {"apply", "--dry-run", id}, {"branch", id, "again-" + id}, {"export", "--patch", id}, {"reap"}} {
		all = append(all, p.do(args...))
	}
	return all
}

// afterPaths is what hostPaths and last may change in the user's repository.
var afterPaths = []string{`\.git/(logs/)?refs/heads/(from-task|again|got)-.*`}

// planting is the script that plants it. What is planted may act at once, and
// make a later git fail.
func (p *place) planting(pl plant) string {
	prog := p.Tmp + "/programs/" + pl.name
	if _, err := os.Lstat(prog); err != nil {
		p.Write(p.t, prog, "#!/bin/sh\n"+p.mark(pl.name)+"\n", 0o755)
	}
	return fmt.Sprintf("( M='%s'; P='%s'\n%s\n) || :\n", p.mark(pl.name), prog, pl.make)
}

// TestPlanted is P10, A2 and A3: configuration, hooks, attributes and drivers
// of every kind in a task, and every path of ours over it. The control runs
// plain git on a copy of the same folder, and each plant must then act.
func TestPlanted(t *testing.T) {
	base := map[string]string{"a.x": "x\n", "a.y": "y\n", "a.t": "t\n", "b.txt": "b\n"}
	each(t, base, func(p *place) {
		p.git("commit", "-q", "--allow-empty", "-m", "second")
		p.git("branch", "other")
		p.remember()
		// All at once: no command of ours may start any of them.
		id := p.open()
		script := attrs + "\n"
		for _, pl := range plants() {
			script += p.planting(pl)
		}
		p.in(id, script)
		all := p.hostPaths(id)
		p.unmarked("everything planted, task open")
		all = append(all, p.last(id)...)
		p.unmarked("everything planted, task ended")
		for _, r := range all {
			if strings.Contains(r.Stderr, "panic") || r.Exit == 2 {
				p.t.Errorf("not a clear answer: %v", r)
			}
		}
		if d := p.git("diff", "--name-only", "HEAD", "--", ".git"); d != "" {
			p.t.Errorf("%s", d)
		}
	})
}

// TestPlantedControl shows that the plants of TestPlanted act on plain git.
func TestPlantedControl(t *testing.T) {
	t.Parallel()
	id := harness.NewIdentity(t, "control", harness.UserOf())
	p := newPlace(t, id, map[string]string{"a.x": "x\n", "a.y": "y\n", "a.t": "t\n", "b.txt": "b\n"})
	p.git("commit", "-q", "--allow-empty", "-m", "second")
	p.sh(p.repo, "rm -f .git/hooks/*") // samples
	for _, pl := range plants() {
		dir := filepath.Join(p.Tmp, "c-"+pl.name)
		p.sh(p.Dir, "cp -a '"+p.repo+"' '"+dir+"'")
		r := p.shell(dir, attrs+"\n"+p.planting(pl))
		_ = os.Remove(filepath.Join(p.marks, pl.name)) // planting may set it off already
		if pl.control == "" {
			p.t.Logf("%s: no control: %s", pl.name, pl.why)
			continue
		}
		cmd := p.Command(t.Context(), dir, "/bin/sh", "-c", pl.control)
		cmd.Env = append(cmd.Env, "PAGER=cat", "GIT_PAGER_IN_USE=")
		if pl.pty {
			harness.OnTerminal(t, cmd, p.UID).Wait()
		} else {
			r = harness.Run(t, cmd)
		}
		if !exists(filepath.Join(p.marks, pl.name)) {
			t.Errorf("%s: the control does not act: a dead test: %v", pl.name, r)
		}
	}
}
