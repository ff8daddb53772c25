package schema

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

const document = "../../../../docs/tools.md"

// docs/tools.md is made of the types, their comments and the texts.
func TestDocument(t *testing.T) {
	got := render(t)
	if *update {
		if err := os.WriteFile(document, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(document)
	if err != nil || string(want) != got {
		t.Fatal("docs/tools.md is not what the contract says; look at the change, then: go test ./internal/worker/contract/schema -run Document -update")
	}
}

// rules are what holds for all file tools. Each sentence is tested in
// internal/worker/tools.
var rules = fmt.Sprintf(`# Tools

The contract of the tools that caisson offers to a model or a harness, version %d. Made from the program: `+"`go test ./internal/worker/contract/schema -run Document -update`"+`. Tools are called
through `+"`caisson mcp`, `caisson tool TASK TOOL ARGUMENTS`"+`, the control socket or the Go API; the schemas are those of MCP's `+"`tools/list`"+`.

## Arguments

One JSON object. A name that the tool does not have, at the top of the object, is ignored and recorded as refused: a model names a tool and its arguments and nothing else. Refused as a whole, with
`+"`bad_args`"+`: a name twice (also in another case), another type, something missing, an unknown name further down, text that is not Unicode, nesting deeper than %d, more than %d MiB. `+"`null`"+` is as if the name were absent.
The digest of a call is that of the task, the tool and the canonical arguments: names sorted, absent and empty ones left out, no white space.

## Paths

- Absolute, or relative to the task's source folder; at most %d bytes. Files are those that a command in the task sees, with its rights: what is read-only for it is read-only here.
- Links are followed as a program would, also out of the source folder, within the task. Never into `+"`/proc`, `/sys` and `/dev`"+` (`+"`outside`"+`), whichever way a path leads there.
- Only regular files. A pipe, socket or device is `+"`not_regular`"+`, at once.
- Writing to a link changes the file that it names; the link stays. Where that file does not exist it is made.

## Writing

- Atomic: a file of the same folder is written and renamed. Whoever opens the file sees the former content or the new one, whole. A refused, failed or canceled call changes nothing but folders that it made.
- The mode, extended attributes of the user and access lists stay. A new file has mode 0644 (0755 with `+"`executable`"+`), a new folder 0755. A file without the permission to write is refused, also in a folder where it could be replaced.
- A file with several names (hard links) becomes a file of its own: the others keep the former content; the result counts them in `+"`other_names`"+`.
- `+"`expect_sha256`"+` is held against the file as it is when the call is done; otherwise `+"`changed`"+`. Without it a change by another program at the same moment is seen too and nothing is written. A program that writes
  into the open file at that very moment, without renaming, is not seen.
- Nothing is flushed to the disk: a task's files are temporary until the host takes its result.

## Texts

- UTF-8, with or without a byte order mark; UTF-16 with one. Anything else without NUL bytes in its first %d bytes is taken for Latin-1, which keeps every byte; the result says so. The rest is binary: `+"`binary`"+` where a text is needed.
- Line ends are `+"`lf`, `crlf`, `cr`, `mixed` or `none`"+`. Lines are counted by LF. `+"`read_file`"+` returns them as they are; an edit matches CRLF by `+"`\\n`"+` and writes what the lines around it have.
- Files of more than %d MiB are not edited; they are read by lines, without their number and digest. `+"`read_file`"+` returns at most %d KiB of text and %d MiB of an image. Where a result does not hold all of a file, the host gets the open file beside it.
- A file that somebody changes while it is read is read anew, three times at most, then `+"`changed`"+`. One that only grows is read up to the size that it had.

## Failures

A failure is an answer, not an error of caisson: a code of this closed set and a sentence. Unless that says otherwise nothing was done.

`, contract.Version, contract.MaxDepth, contract.MaxArgs>>20, contract.MaxPath, 8000, contract.MaxContent>>20, contract.MaxInline>>10, contract.MaxImage>>20)

func render(t *testing.T) string {
	src := parse(t)
	var b strings.Builder
	b.WriteString(rules)
	b.WriteString("| code | |\n|---|---|\n")
	for _, c := range contract.Codes {
		if src.codes[string(c)] == "" {
			t.Errorf("the code %s has no comment", c)
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", c, src.codes[string(c)])
	}
	where := map[contract.Where]string{
		contract.Inside: "Done by the worker in the boundary.", contract.Program: "A program in the boundary.", contract.Host: "Done by the host from what it holds itself.",
	}
	for i, tool := range Tools() {
		c := contract.Tools[i]
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s", tool.Name, tool.Doc, where[c.Where])
		if tool.ReadOnly {
			b.WriteString(" Changes nothing.")
		}
		if tool.Destructive {
			b.WriteString(" May replace or remove what was there.")
		}
		if tool.Idempotent && !tool.ReadOnly {
			b.WriteString(" The same call twice leaves what one leaves.")
		}
		b.WriteString("\n\n")
		src.table(&b, "argument", reflect.TypeOf(c.Args()).Elem(), tool.Name, true)
		src.table(&b, "result", reflect.TypeOf(c.Result()).Elem(), "", false)
	}
	return b.String()
}

// source is what the comments of the contract's files say.
type source struct {
	codes  map[string]string            // by value
	fields map[string]map[string]string // by type and Go name
}

func parse(t *testing.T) *source {
	t.Helper()
	s := &source{map[string]string{}, map[string]map[string]string{}}
	fset := token.NewFileSet()
	files, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range files {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, "../"+e.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				if id, ok := n.Type.(*ast.Ident); ok && id.Name == "Code" && len(n.Values) == 1 {
					s.codes[strings.Trim(n.Values[0].(*ast.BasicLit).Value, `"`)] = oneLine(n.Comment)
				}
			case *ast.TypeSpec:
				st, ok := n.Type.(*ast.StructType)
				if !ok {
					return true
				}
				s.fields[n.Name.Name] = map[string]string{}
				for _, f := range st.Fields.List {
					text := strings.TrimSpace(oneLine(f.Doc) + " " + oneLine(f.Comment))
					for _, name := range f.Names {
						s.fields[n.Name.Name][name.Name] = text
					}
				}
			}
			return true
		})
	}
	return s
}

func oneLine(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	return strings.ReplaceAll(strings.Join(strings.Fields(c.Text()), " "), "|", "\\|")
}

// table renders the fields of a type, and of the types in it.
func (s *source) table(b *strings.Builder, head string, t reflect.Type, at string, args bool) {
	if t.NumField() == 0 {
		fmt.Fprintf(b, "No %ss.\n\n", head)
		return
	}
	fmt.Fprintf(b, "| %s | type | |\n|---|---|---|\n", head)
	s.rows(b, t, "", at, args)
	b.WriteString("\n")
}

func (s *source) rows(b *strings.Builder, t reflect.Type, prefix, at string, args bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, need := contract.Field(f)
		name = prefix + name
		text := s.fields[t.Name()][f.Name]
		if args {
			text = fields[at+"."+name]
			if words := contract.Choices[at+"."+name]; words != nil {
				text = strings.TrimSuffix("`"+strings.Join(words, "`, `")+"`; "+text, "; ")
			}
			if need {
				text = strings.TrimSuffix("required; "+text, "; ")
			}
		}
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct {
			inner = inner.Elem()
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, kind(f.Type), text)
		if inner.Kind() == reflect.Struct {
			sub := name + "."
			if f.Type.Kind() == reflect.Slice {
				sub = name + "[]."
			}
			s.rows(b, inner, sub, at, args)
		}
	}
}

func kind(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return kind(t.Elem())
	case t == reflect.TypeFor[[]byte]():
		return "base64"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return "list of objects"
	}
	return strings.TrimPrefix(strings.TrimPrefix(contract.TypeName(t), "a "), "an ")
}
