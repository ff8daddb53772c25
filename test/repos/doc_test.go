//go:build linux

package repos

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var updateDocs = flag.Bool("update-docs", false, "write docs/repositories.md anew")

const document = "../../docs/repositories.md"

// TestDocument keeps the document and the kinds that the tests examine one.
func TestDocument(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(strings.ReplaceAll(intro, "\"", "`"))
	for _, g := range groups() {
		fmt.Fprintf(&b, "\n## %s\n\n| kind | what happens |\n|---|---|\n", g.title)
		for _, k := range g.kinds {
			fmt.Fprintf(&b, "| %s | %s |\n", k.name, k.does)
		}
	}
	if *updateDocs {
		if err := os.WriteFile(document, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, b.Bytes()) {
		t.Error("docs/repositories.md is not what the tests examine; look at the change, then: go test ./test/repos -run Document -update-docs")
	}
}

const intro = `# Repositories

What happens with a repository of each kind. *Works* means: git works inside, "diff" is exact, "apply", "branch" and "export" bring the result back, "--dirty" and
"--source worktree" work as well where the line says nothing else, and after the end everything of yours is as it was, byte by byte, but for refs below "refs/caisson/" and the
objects that they need. *Refused* means: before anything was made or changed, with the next step. Nothing is ever fetched, and no hook, filter or monitor of a repository runs.

Each line is a test: "go test ./test/repos"; this page is made by "go test ./test/repos -run Document -update-docs".
`
