package cli

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

var update = flag.Bool("update", false, "write docs/json.md anew")

const jsonDoc = "../../../docs/json.md"

// documents lists what each command prints with --json.
var documents = []struct {
	command, text string
	v             any
}{
	{"open, show, keep, resume", "One task.", task.View{}},
	{"ls", "The tasks.", door.ListOut{}},
	{"plan", "The decision. The exit status is 3 when `missing` is not empty.", task.PlanReport{}},
	{"run, exec, shell, check", "One line, the last of standard error: the other streams are the command's. `schema` names the command.", sessionResult{}},
	{"check without a command", "The checks that the policy of the task declares, on standard output.", task.CheckList{}},
	{"tool", "One tool call. `claimed.result` is of the tool's own schema. A tool that did nothing says why in `claimed.failure`, and the exit status is 1.", task.ToolResult{}},
	{"approve, deny without an ID", "What waits for a person.", door.QuestionsOut{}},
	{"approve, deny", "The question that was answered.", task.Question{}},
	{"tools", "The tool contract.", door.ToolsOut{}},
	{"mcp", "One line, the last of standard error, when the server ends.", mcpResult{}},
	{"log", "One line per event, as recorded. The first event has `seq` 1.", door.Event{}},
	{"diff", "The change set without contents; the patch is what `diff` prints without --json.", diffResult{}},
	{"apply", "What was changed or, with --dry-run, would be. When it is refused the error's `detail` is this document.", task.ApplyReport{}},
	{"branch", "The branch.", task.BranchReport{}},
	{"export", "What was written. With --patch and --bundle only together with -o.", task.ExportReport{}},
	{"close", "What was done or, with --dry-run, would be.", task.CloseReport{}},
	{"log --propose", "Rules that would have let out what was refused for want of one. Nothing of it is in force.", proposal{}},
	{"ports", "Where servers inside wait for connections, and which of them this machine offers.", task.PortsReport{}},
	{"allow", "What was added to what an open task may reach.", task.AllowReport{}},
	{"reap", "What was done or, with --dry-run, would be.", task.ReapReport{}},
	{"doctor", "What this machine can enforce.", task.DoctorReport{}},
	{"verify", "What held and what did not. The exit status is 1 when something broke or nothing was shown, 5 when a boundary could not be had.", task.VerifyAll{}},
	{"policy show, policy check", "What holds, and who set it where.", door.PolicyOut{}},
	{"policy explain", "The answer to one question.", door.ExplainOut{}},
	{"policy diff, policy check --within", "What differs. With --within the exit status is 4 when `within` is false.", door.CompareOut{}},
	{"policy test", "The table. The exit status is 1 when `failed` is not 0.", door.PolicyTestOut{}},
	{"init", "What was written or, with --print, would be.", door.InitOut{}},
	{"trust", "A person's trust in a repository.", door.TrustOut{}},
	{"version", "The program.", versionResult{}},
	{"every command, on failure", "In place of the result; the person's lines go to standard error as well.", errorDoc{}},
}

func TestJSONDocument(t *testing.T) {
	want := renderJSONDoc(t)
	if *update {
		if err := os.WriteFile(jsonDoc, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(jsonDoc)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/json.md does not describe what the program prints; look at the change, then: go test ./internal/door/cli -run JSONDocument -update")
	}
}

func renderJSONDoc(t *testing.T) []byte {
	t.Helper()
	d := &docWriter{comments: map[string]string{}, done: map[reflect.Type]bool{}}
	for _, dir := range []string{"../../task", "..", "."} {
		d.readComments(t, dir)
	}
	d.b.WriteString(`# JSON

What ` + "`--json`" + ` prints, one document per command. Made from the program's types: ` + "`go test ./internal/door/cli -run JSONDocument -update`" + `.

Fields are only added. A document names its schema; a change that a reader could trip over gets a new number. Times are RFC 3339,
durations nanoseconds, sizes bytes. "optional" fields are left out when empty. Texts are as recorded, not made safe for a terminal.
`)
	for _, doc := range documents {
		fmt.Fprintf(&d.b, "\n## %s\n\n%s\n", doc.command, doc.text)
		d.typ(reflect.TypeOf(doc.v))
		for len(d.queue) > 0 {
			next := d.queue[0]
			d.queue = d.queue[1:]
			fmt.Fprintf(&d.b, "\n### %s\n", next.Name())
			if c := d.comments[next.Name()]; c != "" {
				fmt.Fprintf(&d.b, "\n%s\n", c)
			}
			d.typ(next)
		}
	}
	d.b.WriteString("\n## Error codes\n\n| code | exit status | meaning |\n|---|---|---|\n")
	for _, c := range codeMeanings {
		fmt.Fprintf(&d.b, "| `%s` | %d | %s |\n", c.code, c.code.ExitStatus(), c.text)
	}
	d.b.WriteString("\nrun, exec, shell and check end with 125 for all of them but `not_executable` (126), `no_command` (127) and `canceled` (130).\n")
	return d.b.Bytes()
}

type docWriter struct {
	b        bytes.Buffer
	comments map[string]string // "Type" and "Type.Field"
	done     map[reflect.Type]bool
	queue    []reflect.Type
}

func (d *docWriter) readComments(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			gen, ok := n.(*ast.GenDecl)
			if !ok {
				return true
			}
			for _, s := range gen.Specs {
				ts, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				text := ts.Doc.Text()
				if text == "" && len(gen.Specs) == 1 {
					text = gen.Doc.Text()
				}
				d.comments[ts.Name.Name] = oneLine(text)
				if st, ok := ts.Type.(*ast.StructType); ok {
					for _, f := range st.Fields.List {
						for _, name := range f.Names {
							d.comments[ts.Name.Name+"."+name.Name] = oneLine(f.Doc.Text() + " " + f.Comment.Text())
						}
					}
				}
			}
			return true
		})
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func (d *docWriter) typ(t reflect.Type) {
	d.done[t] = true
	d.b.WriteString("\n| field | type | |\n|---|---|---|\n")
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		about := d.comments[t.Name()+"."+f.Name]
		if strings.Contains(opts, "omitempty") || strings.Contains(opts, "omitzero") {
			about = strings.TrimSuffix("optional; "+about, "; ")
		}
		fmt.Fprintf(&d.b, "| `%s` | %s | %s |\n", name, d.name(f.Type), strings.ReplaceAll(about, "|", `\|`))
	}
}

func (d *docWriter) name(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Time]():
		return "time"
	case reflect.TypeFor[task.Vector]():
		return "object: axis → level"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.name(t.Elem()) + " or null"
	case reflect.Slice:
		return "list of " + d.name(t.Elem())
	case reflect.Map:
		return "object"
	case reflect.Interface:
		return "any"
	case reflect.Struct:
		if !d.done[t] {
			d.done[t] = true
			d.queue = append(d.queue, t)
		}
		return "[" + t.Name() + "](#" + strings.ToLower(t.Name()) + ")"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	}
	return "number"
}
