package detect

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
)

var updateDocs = flag.Bool("update-docs", false, "write docs/detectors.md anew")

const detectorsDoc = "../../docs/detectors.md"

// TestDetectorsDocument keeps the document and the tables one.
func TestDetectorsDocument(t *testing.T) {
	want := renderDoc()
	if *updateDocs {
		if err := os.WriteFile(detectorsDoc, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(detectorsDoc)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/detectors.md is not what the tables say; look at the change, then: go test ./internal/detect -run DetectorsDocument -update-docs")
	}
}

func renderDoc() []byte {
	var b bytes.Buffer
	b.WriteString(`# Detectors

What caisson finds in a command and in a repository at its base commit. Each rule adds a fact about the task; a fact only ever raises what the task needs, and nothing that is
*not* found lowers it. An operator switches a rule off by its id, with a reason, and that is recorded. Made from the program's tables:
` + "`go test ./internal/detect -run DetectorsDocument -update-docs`" + `.

## How to read a finding

- The place is ` + "`FILE:LINE`" + ` in the base commit, or the program and verb of the command. Values of settings are never shown, only their names and the hosts of addresses.
- *certain* was read from what has one meaning; *likely* goes by a name or a convention; *guess* may well be otherwise. What stands in a folder of examples or test data is a guess.
- A file that is too large, no UTF-8, a link or cannot be parsed gives the value *unknown*, which counts as the riskiest.
- ` + "`CMD-nn`" + ` is about the command that was given; ` + "`SCR-nn`" + ` is the same about a command in a file of the repository, which may never run; all others are about files.

## What it cannot see

- What code does: tests, build files and scripts in languages other than shell are only known to run.
- Names that are put together when they run, downloads, and files that are written later.
- Whether an image is what its name says, and what the environment points at when the task runs.

## Commands: CMD-nn and SCR-nn

SCR-nn looks at ` + scriptFiles + `.

| nn | characteristic | value | what was found |
|---|---|---|---|
`)
	for _, r := range effectRules {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.num, r.what, r.value, r.doc)
	}
	b.WriteString("\n## Files\n\n| id | characteristic | value | looks at | what was found |\n|---|---|---|---|---|\n")
	for _, d := range scanRules {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", d.ID, d.What, d.Value, d.Looks, d.Doc)
	}
	return b.Bytes()
}
