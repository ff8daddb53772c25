package source

import "slices"

// riskRule is one kind of risky file. A rule with names holds for every changed
// path that matches one of them; the others have code of their own. The table
// is closed: docs/risky-files.md is made from it and a test compares.
type riskRule struct {
	id  string
	why string // one sentence, without the full stop
	// names are patterns over folded names, see riskNames. They match at any
	// depth, so that a folder which becomes a checkout of its own is covered.
	names []string
	// lost: a deletion counts as well, because the file protects something.
	lost string
	// look judges by content whether the change of a file with one of names
	// counts; nil: every change does.
	look riskLook
	doc  string // what a reader should know beside why; may be empty
}

// The rules that are judged by code and have no names.
const (
	ruleName       = "deceptive-name"
	ruleTwin       = "twin-name"
	ruleLink       = "symlink"
	ruleGitlink    = "gitlink"
	ruleExecutable = "executable"
	ruleMode       = "file-mode"
	ruleBareRepo   = "bare-repository"
	rulePolicy     = "policy"
	ruleTooMany    = "too-many"
	ruleUnread     = "not-examined"
)

// hookNames are the programs that git starts by name from a folder of hooks.
var hookNames = []string{
	"applypatch-msg", "commit-msg", "fsmonitor-watchman", "p4-changelist", "p4-post-changelist", "p4-pre-submit",
	"p4-prepare-changelist", "post-applypatch", "post-checkout", "post-commit", "post-index-change", "post-merge", "post-receive",
	"post-rewrite", "post-update", "pre-applypatch", "pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase",
	"pre-receive", "prepare-commit-msg", "proc-receive", "push-to-checkout", "reference-transaction", "sendemail-validate", "update",
}

func hooksIn(dir string) []string {
	var out []string
	for _, n := range hookNames {
		out = append(out, dir+"/"+n)
	}
	return out
}

// riskRules is the table. The first rule that matches a name counts, so the
// more telling ones come first.
var riskRules = slices.Concat(trustedRules, buildRules, installedRules, codeRules)
