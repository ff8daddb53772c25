package detect

import (
	"strings"
	"sync"
)

// gitCommandKeys of the configuration hold a command or lead to one.
var gitCommandKeys = []string{
	"core.pager", "core.sshcommand", "core.editor", "core.fsmonitor", "core.hookspath", "core.askpass", "core.gitproxy", "core.alternaterefscommand", "core.attributesfile", "core.worktree",
	"sequence.editor", "diff.external", "gpg.program", "uploadpack.packobjectshook", "sendemail.smtpserver", "init.templatedir", "include.path", "protocol.ext.allow", "protocol.allow", "interactive.difffilter", "credential.helper", "web.browser", "receive.procreceiverefs",
}

// gitCommandKey reports whether a setting can make git start something.
func gitCommandKey(key string) bool {
	key = strings.ToLower(key)
	for _, k := range gitCommandKeys {
		if key == k {
			return true
		}
	}
	for _, p := range []string{"alias.", "pager.", "includeif.", "filter.", "credential.", "gpg.", "browser.", "remote.", "url.", "submodule.", "hook."} {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	for _, s := range []string{".textconv", ".command", ".driver", ".cmd", ".path", ".helper", ".program", ".editor", ".trustexitcode", ".tool"} {
		if strings.HasSuffix(key, s) {
			return true
		}
	}
	return false
}

// gitVerbs that change only the task's own repository have no effect here.
var gitVerbs = sync.OnceValue(func() map[string]effect {
	return map[string]effect{
		"push": effMutate | effVisible | effCredDev, "send-email": effMutate | effVisible | effCredDev, "send-pack": effMutate | effVisible | effCredDev, "http-push": effMutate | effVisible | effCredDev,
		"fetch": effRead, "pull": effRead, "clone": effRead, "ls-remote": effRead, "fetch-pack": effRead, "archive-remote": effRead, "p4": effOpaque, "svn": effRead | effMutate, "cvsimport": effRead, "request-pull": effRead,
		"lfs": effRead, "daemon": effProcess | effPort, "instaweb": effProcess | effPort, "credential": effCredDev, "credential-store": effCredDev, "credential-cache": effCredDev,
		"filter-branch": effOpaque, "filter-repo": effOpaque, "difftool": effOpaque, "mergetool": effOpaque, "gui": effOpaque, "citool": effOpaque, "gitk": effOpaque, "hook": effRepo, "fsmonitor--daemon": effProcess, "maintenance": 0,
	}
})

const gitPlainVerbs = `add am annotate apply archive bisect blame branch bugreport bundle cat-file check-attr check-ignore check-mailmap check-ref-format checkout checkout-index cherry cherry-pick clean column commit commit-graph commit-tree config
 count-objects describe diagnose diff diff-files diff-index diff-tree fast-export fast-import fmt-merge-msg for-each-ref for-each-repo format-patch fsck gc get-tar-commit-id grep hash-object help index-pack init interpret-trailers log ls-files ls-tree mailinfo
 mailsplit merge merge-base merge-file merge-index merge-tree mktag mktree multi-pack-index mv name-rev notes pack-objects pack-redundant pack-refs patch-id prune prune-packed quiltimport range-diff read-tree rebase reflog refs remote repack replace
 rerere reset restore rev-list rev-parse revert rm shortlog show show-branch show-index show-ref sparse-checkout stage stash status stripspace submodule switch symbolic-ref tag unpack-file unpack-objects update-index update-ref
 update-server-info var verify-commit verify-pack verify-tag version whatchanged worktree write-tree --version --help --exec-path --html-path`

var gitPlain = lazyWords(gitPlainVerbs)

// git has settings, variables, options and addresses that name commands.
func (a *analyser) git(ws []word, name string, extra effect) {
	i := 1
	var settings []string
	for i < len(ws) {
		w := ws[i]
		if !w.lit {
			a.emit(ws, name, effOpaque|extra, "an option or the verb of git is not literal")
			return
		}
		if len(w.s) < 2 || w.s[0] != '-' {
			break
		}
		key, val, has := strings.Cut(w.s, "=")
		switch key {
		case "-c", "--config-env":
			if has && key == "--config-env" {
				settings = append(settings, val)
			} else if i++; i < len(ws) && ws[i].lit {
				settings = append(settings, ws[i].s)
			} else {
				a.opaque("a setting of git is not literal")
			}
		case "-C":
			i++
		case "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--attr-source":
			if key == "--git-dir" {
				a.opaque("a git directory of its own has settings of its own")
			}
			if !has {
				i++
			}
		case "--exec-path":
			if has {
				a.opaque("git's own programs are taken from elsewhere")
			}
		case "--version", "--help", "-h", "-v", "--html-path", "--man-path", "--info-path":
			a.emit(ws, name, extra, "")
			return
		}
		i++
	}
	verb := ""
	if i < len(ws) {
		if !ws[i].lit {
			a.emit(ws, name, effOpaque|extra, "the verb of git is not literal")
			return
		}
		verb = ws[i].s
	}
	e, known := gitVerbs()[verb]
	why := ""
	if !known && !gitPlain()[verb] && verb != "" {
		e, why = effOpaque, "an alias of git, or a program of that name"
	}
	args := ws[min(i+1, len(ws)):]
	e |= a.gitArgs(verb, args)
	a.emit(ws, name, e|extra, why)
	for _, s := range settings {
		key, val, _ := strings.Cut(s, "=")
		if !gitCommandKey(key) {
			continue
		}
		a.opaque("git -c " + key + " can name a command")
		if v, ok := strings.CutPrefix(val, "!"); ok || strings.HasSuffix(strings.ToLower(key), "command") || strings.EqualFold(key, "core.pager") || strings.EqualFold(key, "core.editor") {
			a.script(v)
		}
	}
	a.gitStarts(verb, args)
}

// gitArgs says what the arguments add to a verb's effect.
func (a *analyser) gitArgs(verb string, args []word) (e effect) {
	for _, w := range args {
		if !w.lit {
			if verb == "push" {
				e |= effDestroy
			}
			continue
		}
		switch {
		case strings.Contains(w.s, "ext::"), strings.Contains(w.s, "fd::"):
			e |= effOpaque
		case strings.HasPrefix(w.s, "-oProxyCommand"):
			e |= effOpaque
		case verb == "push" && (w.s == "-f" || w.s == "--force" || strings.HasPrefix(w.s, "--force-with-lease") || w.s == "--delete" || w.s == "-d" || w.s == "--mirror" || w.s == "--prune" || strings.HasPrefix(w.s, "+") || strings.HasPrefix(w.s, ":")):
			e |= effDestroy
		}
	}
	if len(args) > 0 && args[0].lit {
		switch verb + " " + args[0].s {
		case "remote update", "remote show", "remote prune", "submodule update", "submodule add":
			e |= effRead
		}
	}
	return e
}

// shortens reports whether an option is a long one, or as much of it as tells it
// from others.
func shortens(key, option string) bool { return len(key) > 4 && strings.HasPrefix(option, key) }

// gitStarts analyses what the options of a verb start.
func (a *analyser) gitStarts(verb string, args []word) {
	for i, w := range args {
		if !w.lit {
			continue
		}
		key, val, has := strings.Cut(w.s, "=")
		starts := false
		switch verb {
		case "fetch", "pull", "clone", "ls-remote", "push", "archive", "fetch-pack", "send-pack":
			starts = shortens(key, "--upload-pack") || shortens(key, "--receive-pack") || shortens(key, "--exec") || verb == "clone" && (key == "-u" || key == "-c" || key == "--config")
			if verb == "clone" && (key == "-c" || key == "--config") {
				set := val
				if !has && i+1 < len(args) {
					set = args[i+1].s
				}
				k, _, _ := strings.Cut(set, "=")
				if starts = gitCommandKey(k); starts {
					a.opaque("git clone " + key + " " + k + " can name a command")
					starts = false
				}
			}
		case "rebase":
			starts = shortens(key, "--exec") || key == "-x"
		case "difftool":
			starts = shortens(key, "--extcmd") || key == "-x"
		case "grep":
			if o, ok := strings.CutPrefix(w.s, "-O"); ok && o != "" {
				val, has = o, true
			}
			starts = shortens(key, "--open-files-in-pager") || strings.HasPrefix(key, "-O")
		case "send-email":
			starts = key == "--smtp-server" || key == "--to-cmd" || key == "--cc-cmd" || key == "--sendmail-cmd"
		case "submodule", "bisect":
			if i == 0 && (w.s == "foreach" || w.s == "run") {
				j := 1
				for j < len(args) && args[j].lit && strings.HasPrefix(args[j].s, "-") {
					j++
				}
				if w.s == "run" {
					a.call(args[j:])
				} else if j < len(args) {
					a.joined(args[j:], "git submodule foreach", false)
				}
				return
			}
		case "config":
			if gitCommandKey(w.s) && i+1 < len(args) {
				a.opaque("git config " + w.s + " can name a command")
				return
			}
		case "for-each-repo", "maintenance", "hook":
			starts = i == 0 && (w.s == "run" || w.s == "start")
			if starts {
				a.opaque("git " + verb + " " + w.s)
				starts = false
			}
		}
		if !starts {
			continue
		}
		a.opaque("git " + verb + " " + key + " names a command")
		switch {
		case has:
			a.script(val)
		case i+1 < len(args):
			a.nested(args, i+1, "git "+verb)
		}
	}
}
