//go:build linux

package source

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var updateDocs = flag.Bool("update-docs", false, "write docs/risky-files.md anew")

const riskyDoc = "../../docs/risky-files.md"

// TestRiskyDocument keeps the document and the table one.
func TestRiskyDocument(t *testing.T) {
	want := renderRiskyDoc()
	if *updateDocs {
		if err := os.WriteFile(riskyDoc, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(riskyDoc)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/risky-files.md is not what the rules say; look at the change, then: go test ./internal/source -run RiskyDocument -update-docs")
	}
}

func renderRiskyDoc() []byte {
	var b bytes.Buffer
	b.WriteString(`# Risky files

Files of a result that tools on your machine would execute or trust once they are in a checkout. ` + "`diff`, `apply`, `branch` and `export`" + ` list
them with one reason each, before anything reaches a checkout; ` + "`apply`" + ` asks, or needs ` + "`--allow-risky`" + `. Made from the program's rules:
` + "`go test ./internal/source -run RiskyDocument -update-docs`" + `.

## How to read the list

- It says where to look first. A file on it is not bad, and most are what you asked for: a change of a Makefile is listed because make runs it.
- A file that is not on it is still code that an agent wrote. Tests, sources and generated files run as soon as you build or test.
- Only changes count: added, modified, another type or mode. A deletion counts where the file protected something.
- There are no degrees. One file can be there under several rules, each with its own sentence.
- Names are compared without regard to case, the form of accents, characters that some file systems drop, trailing dots and spaces, and
  NTFS streams, at any depth, also below node_modules: ` + "`.ENVRC`, `.claude\\u200b/settings.json`" + ` and ` + "`sub/dir/.vscode/tasks.json`" + ` count.
- ` + "`*`" + ` in a name below stands for anything in one component; ` + "`name/**`" + ` for everything below a folder of that name.
  A link in the place of such a folder counts too: what it leads to has other names.
- A file counts under every name that it has through links of the tree: with a committed ` + "`.claude -> tools`, a change of\n  `tools/settings.json`" + ` is one of ` + "`.claude/settings.json`" + `.
- Paths with unusual bytes are shown quoted.

## What it cannot see

- What ordinary code does: a test that reads your keys, an import that runs on load, a build step in a listed language but an unlisted file.
- What a listed tool loads from files that it names itself, in a place of their own.
- Whether a new dependency, a new version or a container image is good. Lock files are compared by host and by install marks, not by hash.
- Settings of tools that are not in the table. Names are a closed list; a tool of tomorrow is missing until it is added.
- Ignored files and what no tree can hold (FIFOs, sockets, nested repositories): they do not leave a task this way.
- Links in your checkout that are not committed: they can lead a listed tool to a file of another name.

## Rules
`)
	order := []string{}
	for _, r := range riskRules {
		if !slices.Contains(order, r.id) {
			order = append(order, r.id)
		}
	}
	for _, id := range order {
		fmt.Fprintf(&b, "\n### %s\n", id)
		for _, r := range riskRules {
			if r.id != id {
				continue
			}
			fmt.Fprintf(&b, "\n%s%s.\n", strings.ToUpper(r.why[:1]), r.why[1:])
			if r.doc != "" {
				fmt.Fprintf(&b, "%s\n", r.doc)
			}
			if r.lost != "" {
				fmt.Fprintf(&b, "Deleted: %s.\n", r.lost)
			}
			if len(r.names) > 0 {
				names := slices.Clone(r.names)
				for i, n := range names {
					names[i] = "`" + n + "`"
				}
				b.WriteString("\n" + wrap(strings.Join(names, " "), 140) + "\n")
			}
		}
	}
	return b.Bytes()
}

// wrap breaks a text at spaces.
func wrap(s string, width int) string {
	var lines []string
	line := ""
	for _, w := range strings.Fields(s) {
		if line != "" && len(line)+1+len(w) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += w
	}
	return strings.Join(append(lines, line), "\n")
}
