package boundary

import (
	"encoding/json"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// addAsked puts on record what a reader of the log needs to know of a call's
// arguments: which lines were read, how many an edit puts in and takes out.
func addAsked(body map[string]any, args any) {
	switch a := args.(type) {
	case *contract.ReadFileArgs:
		if a.Offset != 0 || a.Limit != 0 {
			body["offset"], body["limit"] = max(a.Offset, 1), a.Limit
		}
	case *contract.WriteFileArgs:
		if a.Encoding != "base64" {
			body["lines"] = lineCount(a.Content)
		}
	case *contract.EditFileArgs:
		added, removed := 0, 0
		for _, e := range a.Edits {
			in, out := changedLines(e.Old, e.New)
			added, removed = added+in, removed+out
			if e.All {
				return // how many places there are only the file says
			}
		}
		body["added"], body["removed"] = added, removed
	}
}

// lineCount counts lines, the last one also without its end.
func lineCount(s string) int {
	n := strings.Count(s, "\n")
	if s != "" && !strings.HasSuffix(s, "\n") {
		n++
	}
	return n
}

// changedLines counts the lines of one replacement without those that both texts
// begin or end with.
func changedLines(before, after string) (added, removed int) {
	a, b := strings.SplitAfter(before, "\n"), strings.SplitAfter(after, "\n")
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return lineCount(strings.Join(b, "")), lineCount(strings.Join(a, ""))
}

// addSaid puts numbers of a result on record, as the inside said them.
func addSaid(claimed map[string]any, tool string, c *task.Claimed) {
	if c.Failure != nil || len(c.Result) == 0 {
		return
	}
	switch tool {
	case contract.Grep, contract.Glob, contract.ListDir, contract.EditFile, contract.WriteFile:
	default:
		return // nothing of it is numbers; it may be long
	}
	var r struct {
		Matches      *int64            `json:"matches"`
		Files        []json.RawMessage `json:"files"`
		Entries      []json.RawMessage `json:"entries"`
		Replacements *int64            `json:"replacements"`
		Created      *bool             `json:"created"`
		Truncated    bool              `json:"truncated"`
	}
	if json.Unmarshal(c.Result, &r) != nil {
		return
	}
	switch tool {
	case contract.Grep:
		claimed["files"] = len(r.Files)
		if r.Matches != nil {
			claimed["matches"] = *r.Matches
		}
	case contract.Glob:
		claimed["files"] = len(r.Files)
	case contract.ListDir:
		claimed["entries"] = len(r.Entries)
	case contract.EditFile:
		if r.Replacements != nil {
			claimed["replacements"] = *r.Replacements
		}
	case contract.WriteFile:
		if r.Created != nil {
			claimed["created"] = *r.Created
		}
	}
	if r.Truncated {
		claimed["truncated"] = true
	}
}
