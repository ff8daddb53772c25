package task

// Risk is one file of a result that a tool on the host would execute or trust
// once it is in a checkout: a hook, an editor's settings, a link that leaves
// the tree. The rules are listed in docs/risky-files.md.
type Risk struct {
	Path string `json:"path"` // quoted where it is not plain text
	Rule string `json:"rule"` // closed set, for example "agent-settings"
	Why  string `json:"why"`
	Raw  []byte `json:"-"` // the exact path
}

// RiskyFiles counts the files that risks are about.
func RiskyFiles(rs []Risk) int {
	seen := map[string]bool{}
	for _, r := range rs {
		seen[r.Path] = true
	}
	return len(seen)
}

// FileChange is one entry of a change set in a report.
type FileChange struct {
	Status  string `json:"status"`                // A, M, D, T or R, as git
	Path    string `json:"path"`                  // with U+FFFD for bytes that are not UTF-8
	Bytes   string `json:"path_base64,omitempty"` // the exact name, when it is not UTF-8
	OldMode string `json:"old_mode"`              // octal, as git; 000000: was not there
	NewMode string `json:"new_mode"`              // 000000: is not there any more
}

// Conflict is one path that keeps a result from being applied.
type Conflict struct {
	Path  string `json:"path"` // quoted where it is not plain text
	Why   string `json:"why"`
	Hunks string `json:"hunks,omitempty"` // text with conflict markers around what differs
}

// DiffReport is what `diff` found beside the patch itself.
type DiffReport struct {
	Schema       string        `json:"schema"` // "caisson.diff/1"
	ID           ID            `json:"id"`
	Start        string        `json:"start"` // tree the task began with
	Tree         string        `json:"tree"`  // tree of its files now
	Files        int           `json:"files"` // changed, added and deleted
	Risky        []Risk        `json:"risky"`
	From         string        `json:"from"` // "files", or "refs" when only the rescued result is left
	Verification *Verification `json:"verification,omitempty"`
}

// ApplyReport is what `apply` did or, with --dry-run, would do.
type ApplyReport struct {
	Schema       string        `json:"schema"` // "caisson.apply/1"
	ID           ID            `json:"id"`
	DryRun       bool          `json:"dry_run"`
	Checkout     string        `json:"checkout"` // the folder that is changed
	Digest       string        `json:"digest"`   // of exactly this change of exactly this checkout: what a person agrees to
	Changes      []FileChange  `json:"changes"`  // of the checkout
	Already      int           `json:"already"`  // files that are as wanted before anything is done
	Risky        []Risk        `json:"risky"`
	Conflicts    []Conflict    `json:"conflicts"` // not empty: nothing was changed
	Applied      bool          `json:"applied"`
	From         string        `json:"from"` // "files" or "refs"
	Verification *Verification `json:"verification,omitempty"`
	Notes        []string      `json:"notes,omitempty"`
}

// BranchReport is what `branch` made.
type BranchReport struct {
	Schema       string        `json:"schema"` // "caisson.branch/1"
	ID           ID            `json:"id"`
	Branch       string        `json:"branch"`  // full ref name
	Object       string        `json:"object"`  // the commit it names
	Base         string        `json:"base"`    // the commit the task began at
	Commits      int           `json:"commits"` // on the branch and not in the base
	Files        int           `json:"files"`   // that differ from the base
	Created      bool          `json:"created"` // false: it was there with this very commit
	Risky        []Risk        `json:"risky"`
	From         string        `json:"from"` // "files" or "refs"
	Verification *Verification `json:"verification,omitempty"`
	Notes        []string      `json:"notes,omitempty"`
}

// ExportReport is what `export` wrote.
type ExportReport struct {
	Schema       string        `json:"schema"` // "caisson.export/1"
	ID           ID            `json:"id"`
	Form         string        `json:"form"` // "patch", "bundle" or "dir"
	To           string        `json:"to"`   // absolute path; "-" is standard output
	Files        int           `json:"files"`
	Bytes        int64         `json:"bytes"`
	Object       string        `json:"object,omitempty"` // of a bundle: the commit it holds
	Risky        []Risk        `json:"risky"`
	From         string        `json:"from"` // "files" or "refs"
	Verification *Verification `json:"verification,omitempty"`
	Notes        []string      `json:"notes,omitempty"`
}
