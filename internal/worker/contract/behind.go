package contract

import "strings"

// Behind is a feature of a harness that works on the host's files and screen. It
// does not survive that its tools work in a boundary, and is refused by name: a
// stand-in would be believed.
type Behind struct {
	Feature string
	Names   []string // tools that ask for it, in small letters and digits alone
	Why     string   // and what serves instead
}

// Behinds are all of them, in the order of the document.
var Behinds = []Behind{
	{
		Feature: "file-history checkpoints",
		Names:   []string{"checkpoint", "createcheckpoint", "restorecheckpoint", "listcheckpoints", "rewind", "rewindfiles", "filehistory", "undoedit", "restorefile", "snapshotfiles"},
		Why:     "a harness copies files before it edits them on the host, and these files are not there; commit inside, or see `caisson diff` and `caisson branch` on the host",
	},
	{
		Feature: "diffs in the host's editor",
		Names:   []string{"opendiff", "closediff", "closealldifftabs", "acceptdiff", "rejectdiff", "savedocument", "checkdocumentdirty", "showdiff", "idediff"},
		Why:     "an editor on the host would show and save its own copy of the file, not the task's; `caisson diff` shows the change set, and a rule makes edits ask with their diff",
	},
	{
		Feature: "the host editor's state",
		Names:   []string{"getdiagnostics", "getopeneditors", "getcurrentselection", "getlatestselection", "getworkspacefolders", "openfile", "executecode"},
		Why:     "what an editor on the host has open and says of it is about other files; run the checker inside with shell",
	},
}

// StaysBehind says why a tool of that name is not carried into a task; empty: it
// is none of these. Servers put their own name and "__" before a tool's.
func StaysBehind(tool string) string {
	if i := strings.LastIndex(tool, "__"); i >= 0 {
		tool = tool[i+2:]
	}
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}, cut(tool, 60))
	for _, b := range Behinds {
		for _, n := range b.Names {
			if name == n {
				return b.Feature + ": " + b.Why
			}
		}
	}
	return ""
}
