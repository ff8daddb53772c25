package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
	"github.com/caisson-dev/caisson/internal/worker/contract/schema"
)

// TestContent renders a result of every tool, holds it to what a model reads and
// the structured answer to the schema that was announced.
func TestContent(t *testing.T) {
	one, seven := 1, 7
	png := []byte("\x89PNG\r\n")
	tested := map[string]bool{}
	for _, c := range []struct {
		name, tool string
		result     any
		observed   task.Observed
		want       string // "image MIME" for an image, "link URI" for a link
	}{
		{"lines", contract.ReadFile, contract.ReadFileResult{Kind: "text", Size: 9, Lines: 9, FirstLine: 1, LastLine: 2, Content: "a\x1b\nb\n", Truncated: true, NextOffset: 3}, task.Observed{}, "a\x1b\nb\n\n[lines 1 to 2 of 9; go on with offset 3]"},
		{"empty file", contract.ReadFile, contract.ReadFileResult{Path: "/e", Kind: "text"}, task.Observed{}, "[/e is empty]"},
		{"image", contract.ReadFile, contract.ReadFileResult{Path: "/i", Kind: "image", MIME: "image/png", Size: 6, Base64: base64.StdEncoding.EncodeToString(png)}, task.Observed{}, "image image/png\n[/i: image/png, 6 bytes]"},
		{"binary", contract.ReadFile, contract.ReadFileResult{Path: "/b", Kind: "binary", MIME: "application/zip", Size: 6}, task.Observed{}, `[/b: application/zip, 6 bytes, no text; as "base64" reads it]`},
		{"written", contract.WriteFile, contract.WriteFileResult{Path: "/w", Created: true, Size: 2, SHA256: "ab"}, task.Observed{}, "created /w: 2 bytes, sha256 ab"},
		{"edited", contract.EditFile, contract.EditFileResult{Path: "/w", Replacements: 2, FirstLine: 3, SHA256: "ab", OtherNames: 1}, task.Observed{}, "edited /w: 2 replacements, the first in line 3; sha256 ab\n[1 other names of the file keep the former content]"},
		{"notebook", contract.NotebookEdit, contract.NotebookEditResult{Path: "/n", Mode: "insert", CellType: "code", Cells: 2, SHA256: "ab"}, task.Observed{}, "/n: insert of code cell 0; now 2 cells; sha256 ab"},
		{"folder", contract.ListDir, contract.ListDirResult{Entries: []contract.DirEntry{{Name: "a\x1b", Kind: "file", Size: 1}, {Name: "d", Kind: "dir"}, {Name: "l", Kind: "link", Target: "x"}}, Truncated: true}, task.Observed{}, "a\\u{1b} (1 bytes)\nd/\nl -> x\n[there is more]"},
		{"glob", contract.Glob, contract.GlobResult{Files: []contract.FoundFile{{Path: "a.go"}}}, task.Observed{}, "a.go\n"},
		{"nothing", contract.Glob, contract.GlobResult{Files: []contract.FoundFile{}, Skipped: contract.Skipped{Unreadable: 2}}, task.Observed{}, "[nothing]\n[not searched: 2 unreadable]"},
		{"grep", contract.Grep, contract.GrepResult{Files: []contract.GrepFile{{Path: "a", Lines: []contract.GrepLine{{Number: 1, Text: "x\n"}, {Number: 2, Match: true, Text: "y\r\n"}, {Number: 9, Match: true, Text: "z", Cut: true}}}, {Path: "b", Count: 3}, {Path: "c"}}}, task.Observed{}, "a-1-x\na:2:y\n--\na:9:z [cut]\nb:3\nc\n"},
		{"shell", contract.Shell, contract.ShellResult{State: "exited", Exit: &one, Stdout: "out", Stderr: "err\n"}, task.Observed{Exit: &seven}, "out\n[standard error]\nerr\n[exit 7]"},
		{"shell, only claimed", contract.Shell, contract.ShellResult{State: "exited", Exit: &one}, task.Observed{}, "[exit 1]"},
		{"shell, killed", contract.Shell, contract.ShellResult{State: "timeout", Signal: 9, Truncated: true, Output: "/out/c1.out"}, task.Observed{Reason: "timeout"}, "[ended by signal 9; timeout]\n[the middle of the output is left out; all of it is in /out/c1.out]\nlink caisson://" + taskID + "/output/c1.out"},
		{"shell, killed by somebody", contract.Shell, contract.ShellResult{State: "exited", Signal: 9}, task.Observed{Signal: 9}, "[ended by signal 9]"},
		{"shell, output elsewhere", contract.Shell, contract.ShellResult{State: "exited", Exit: &one, Output: "/out/a%2fb"}, task.Observed{}, "[exit 1]\n[the middle of the output is left out; all of it is in /out/a%2fb]"},
		{"background", contract.Shell, contract.ShellResult{Shell: "s1", State: "running"}, task.Observed{}, "shell s1 runs in the background; shell_output reads it, shell_kill ends it"},
		{"shell_output", contract.ShellOutput, contract.ShellOutputResult{Shell: "s1", State: "running", Text: "t", Lost: 4}, task.Observed{}, "[4 earlier bytes are gone]\nt\n[running]"},
		{"shell_input", contract.ShellInput, contract.ShellInputResult{Shell: "s1", Bytes: 3}, task.Observed{}, "shell s1 was given 3 bytes"},
		{"shell_kill", contract.ShellKill, contract.ShellKillResult{Shell: "s1", State: "killed", Signal: 15}, task.Observed{}, "shell s1: [ended by signal 15; killed]"},
		{"shell_list", contract.ShellList, contract.ShellListResult{Shells: []contract.ShellInfo{{Shell: "s1", State: "running", Bytes: 3, Command: "x"}}}, task.Observed{}, "s1 running, 3 bytes: x\n"},
		{"install", contract.InstallDependencies, contract.InstallDependenciesResult{Manager: "npm", Exit: &one}, task.Observed{}, "[exit 1]"},
		{"fetch", contract.Fetch, contract.FetchResult{URL: "http://a/", Status: 200, ContentType: "text/plain", Size: 2, Text: "hi", Truncated: true}, task.Observed{}, "hi\n[200 from http://a/: 2 bytes]\n[there is more of it]"},
		{"fetch of no text", contract.Fetch, contract.FetchResult{Status: 200, ContentType: "image/png", Size: 2, Binary: true}, task.Observed{}, "[200 image/png: 2 bytes that are no text]"},
		{"request_access", contract.RequestAccess, contract.RequestAccessResult{Allowed: []string{"a:443"}, Note: "by proxy"}, task.Observed{}, "the task may reach a:443\nby proxy"},
		{"publish", contract.PublishArtifact, contract.PublishArtifactResult{Artifact: "a.txt", Path: "/a", MIME: "text/plain", Size: 1, SHA256: "ab"}, task.Observed{}, "published /a as a.txt: 1 bytes, sha256 ab\nlink caisson://" + taskID + "/output/a.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tested[c.tool] = true
			s := &Server{cfg: Config{Engine: newEngine(), Task: taskID}, outputs: map[string]output{}}
			raw, err := json.Marshal(c.result)
			if err != nil {
				t.Fatal(err)
			}
			p := &pending{tool: c.tool, res: &task.ToolResult{Task: taskID, Call: "c1", Tool: c.tool, Observed: c.observed, Claimed: task.Claimed{Result: raw}}}
			got := s.answer(p)
			var lines []string
			for _, x := range got.Content {
				switch x := x.(type) {
				case *sdk.TextContent:
					lines = append(lines, x.Text)
				case *sdk.ImageContent:
					lines = append(lines, "image "+x.MIMEType)
					if string(x.Data) != string(png) {
						t.Errorf("the image's bytes are %q", x.Data)
					}
				case *sdk.ResourceLink:
					lines = append(lines, "link "+x.URI)
				}
			}
			if text := strings.Join(lines, "\n"); text != c.want {
				t.Errorf("got  %q\nwant %q", text, c.want)
			}
			if got.IsError != (c.observed.Reason != "" || c.observed.Signal != 0) {
				t.Errorf("isError %v", got.IsError)
			}
			for _, info := range schema.Tools() {
				if info.Name == c.tool {
					holds(t, info.Output, got.StructuredContent)
				}
			}
		})
	}
	// The reason of a failure is in the text, and nothing beside it that a client would
	// show instead.
	lost := failure(&task.ToolResult{Task: taskID, Call: "c1", Claimed: task.Claimed{Result: json.RawMessage("null")}}, task.Errorf(task.CodeOutcomeUnknown, "tool", "lost"))
	if lost.StructuredContent != nil || !lost.IsError {
		t.Errorf("a lost call is answered with %+v", lost)
	}
	holds(t, schema.Tools()[0].Output, lost.Meta["caisson/result"])
	for _, x := range contract.Tools {
		if !tested[x.Name] {
			t.Errorf("no result of %s was rendered", x.Name)
		}
	}
}

// holds validates a structured answer against the announced schema.
func holds(t *testing.T, result json.RawMessage, answer any) {
	t.Helper()
	raw, err := answerSchema(result)
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	_ = json.Unmarshal(data, &v)
	if err := r.Validate(v); err != nil {
		t.Errorf("the structured answer is not of the schema: %v\n%s", err, data)
	}
}

// FuzzMessages feeds a server whatever a client may send: it ends when the stream
// does, calls nothing but its tools, and answers no question.
func FuzzMessages(f *testing.F) {
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"f","version":"0"}}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"shell","arguments":{"command":"x","backend":"host"}}}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"shell","arguments":{"command":"ask"},"requestState":"x","inputResponses":{"approval":{"action":"accept","content":{"decision":"allow"}}}}}`,
		`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"read_file","arguments":[],"_meta":{"progressToken":1}}}`,
		`{"jsonrpc":"2.0","id":5,"method":"resources/read","params":{"uri":"caisson://t/output/../x"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`,
		`{"jsonrpc":"2.0","id":"elicit","result":{"action":"accept","content":{"decision":"allow"}}}`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `{`, "\x00\xff", `{"jsonrpc":"2.0","id":6,"method":"tools/call"}`, `{"jsonrpc":"2.0","id":6,"method":"tools/call","params":null}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		e := newEngine()
		e.expires = time.Millisecond
		s, err := New(t.Context(), Config{Engine: e, Task: taskID, Beat: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		in, client := io.Pipe()
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Stdio(t.Context(), in, discard{}) }()
		_, _ = io.WriteString(client, hello+line+"\n")
		_ = client.Close()
		<-done
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, c := range e.calls {
			if _, ok := s.tools[c.Tool]; !ok || !json.Valid(c.Args) {
				t.Errorf("the engine was asked for %q with %q", c.Tool, c.Args)
			}
		}
		for _, a := range e.answers {
			if a.by.Door != "mcp-elicitation" {
				t.Errorf("answered by %+v", a.by)
			}
		}
	})
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }

// FuzzForm: only the two words of the form decide, and only in a form that was sent.
func FuzzForm(f *testing.F) {
	f.Add("accept", `{"decision":"allow"}`)
	f.Add("accept", `{"decision":"ALLOW"}`)
	f.Add("decline", `{"decision":"allow"}`)
	f.Add("accept", `{"decision":["allow"]}`)
	f.Add("accept", `{"Decision":"allow"}`)
	f.Fuzz(func(t *testing.T, action, content string) {
		var c map[string]any
		_ = json.Unmarshal([]byte(content), &c)
		permit, decided := chosen(&sdk.ElicitResult{Action: action, Content: c})
		want := action == "accept" && c["decision"] == "allow"
		if permit != want || permit && !decided {
			t.Errorf("%s %s: permit %v, decided %v", action, content, permit, decided)
		}
	})
}

// FuzzNames: what is linked is below the store, in one way of writing.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"c1.out", "a.b-c_d", "a/b", "../x", "/x", "a//b", ".x", "a/.x", "a%2e", "a?b", "a b", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if !plainName(name) {
			return
		}
		if strings.Contains(name, "..") && strings.Contains(fmt.Sprintf("/%s/", name), "/../") || strings.HasPrefix(name, "/") || strings.ContainsAny(name, "/%?#\x00\\ ") {
			t.Errorf("%q is taken", name)
		}
	})
}
