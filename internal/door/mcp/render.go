package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// structured is the answer as data. What the host saw and what the boundary
// claims have places of their own.
func structured(r *task.ToolResult) map[string]any {
	claimed := r.Claimed
	if string(claimed.Result) == "null" { // clients hold also a failed answer to the schema
		claimed.Result = nil
	}
	out := map[string]any{"task": r.Task, "call": r.Call, "digest": r.Digest, "observed": r.Observed, "claimed": claimed}
	if len(r.Refused) > 0 {
		out["refused"] = r.Refused
	}
	return out
}

// answer renders a call that ended.
func (s *Server) answer(p *pending) *sdk.CallToolResult {
	r := p.res
	out := &sdk.CallToolResult{StructuredContent: structured(r), Meta: sdk.Meta{"caisson/call": r.Call}}
	if f := r.Claimed.Failure; f != nil {
		out.IsError = true
		out.Content = append(out.Content, &sdk.TextContent{Text: f.Code + ": " + visible(f.Message)})
	} else {
		content, failed := s.content(p.tool, r)
		out.Content, out.IsError = content, failed
	}
	var read contract.ReadFileResult
	switch f := p.file; {
	case f == nil:
	case json.Unmarshal(r.Claimed.Result, &read) == nil && p.tool == contract.ReadFile:
		out.Content = append(out.Content, s.linkFile(r.Call, f, &read)...)
	default:
		_ = f.Close()
	}
	if len(r.Refused) > 0 {
		out.Content = append(out.Content, &sdk.TextContent{Text: ignored(r.Refused)})
	}
	return out
}

// content is a result as a model reads it best: a file's text as it is, a
// program's output with how it ended, lists a line each.
func (s *Server) content(tool string, r *task.ToolResult) (out []sdk.Content, failed bool) {
	text := func(format string, args ...any) {
		out = append(out, &sdk.TextContent{Text: fmt.Sprintf(format, args...)})
	}
	raw := func(t string) { out = append(out, &sdk.TextContent{Text: t}) }
	t, ok := contract.Lookup(tool)
	if !ok || len(r.Claimed.Result) == 0 {
		raw(plain(r))
		return out, false
	}
	res := t.Result()
	if err := json.Unmarshal(r.Claimed.Result, res); err != nil {
		raw(plain(r))
		return out, false
	}
	switch v := res.(type) {
	case *contract.ReadFileResult:
		out = fileContent(v)
	case *contract.WriteFileResult:
		verb := "wrote"
		if v.Created {
			verb = "created"
		}
		text("%s %s: %d bytes, sha256 %s", verb, v.Path, v.Size, v.SHA256)
		out = otherNames(out, v.OtherNames)
	case *contract.EditFileResult:
		text("edited %s: %d replacements, the first in line %d; sha256 %s", v.Path, v.Replacements, v.FirstLine, v.SHA256)
		out = otherNames(out, v.OtherNames)
	case *contract.NotebookEditResult:
		text("%s: %s of %s cell %d; now %d cells; sha256 %s", v.Path, v.Mode, v.CellType, v.Index, v.Cells, v.SHA256)
		out = otherNames(out, v.OtherNames)
	case *contract.ListDirResult:
		var b strings.Builder
		for _, e := range v.Entries {
			b.WriteString(visible(entry(e)) + "\n")
		}
		raw(list(b.String(), v.Truncated))
	case *contract.GlobResult:
		var b strings.Builder
		for _, f := range v.Files {
			b.WriteString(visible(f.Path) + "\n")
		}
		raw(list(b.String(), v.Truncated) + skipped(v.Skipped))
	case *contract.GrepResult:
		raw(list(found(v), v.Truncated) + skipped(v.Skipped))
	case *contract.ShellResult:
		if v.Shell != "" && v.State == "running" {
			text("shell %s runs in the background; shell_output reads it, shell_kill ends it", v.Shell)
			return out, false
		}
		raw(streams(v.Stdout, v.Stderr) + ended(r, v.State, v.Exit, v.Signal))
		// Whoever killed it, it did not get to its end.
		failed = v.Signal != 0 || r.Observed.Signal != 0
		if v.Output != "" {
			text("[the middle of the output is left out; all of it is in %s]", visible(v.Output))
		} else if v.Truncated {
			text("[the middle of the output is left out]")
		}
		out = append(out, s.link(v.Output, "text/plain", "the whole output of the command", 0)...)
	case *contract.ShellOutputResult:
		b := v.Text
		if v.Lost > 0 {
			b = fmt.Sprintf("[%d earlier bytes are gone]\n%s", v.Lost, b)
		}
		how := "[" + v.State + "]"
		if v.State != "running" {
			how = ended(r, v.State, v.Exit, v.Signal)
		}
		raw(lineEnd(b) + how)
	case *contract.ShellInputResult:
		text("shell %s was given %d bytes", v.Shell, v.Bytes)
	case *contract.ShellKillResult:
		text("shell %s: %s", v.Shell, ended(r, v.State, v.Exit, v.Signal))
	case *contract.ShellListResult:
		var b strings.Builder
		for _, sh := range v.Shells {
			fmt.Fprintf(&b, "%s %s, %d bytes: %s\n", sh.Shell, sh.State, sh.Bytes, visible(sh.Command))
		}
		raw(list(b.String(), false))
	case *contract.InstallDependenciesResult:
		raw(streams(v.Stdout, v.Stderr) + ended(r, "exited", v.Exit, 0))
	case *contract.FetchResult:
		switch {
		case v.Binary:
			text("[%d %s: %d bytes that are no text]", v.Status, visible(v.ContentType), v.Size)
		default:
			raw(v.Text)
			text("[%d from %s: %d bytes]", v.Status, visible(v.URL), v.Size)
		}
		if v.Truncated {
			text("[there is more of it]")
		}
	case *contract.RequestAccessResult:
		text("the task may reach %s", visible(strings.Join(v.Allowed, ", ")))
		if v.Note != "" {
			text("%s", visible(v.Note))
		}
	case *contract.PublishArtifactResult:
		text("published %s as %s: %d bytes, sha256 %s", v.Path, v.Artifact, v.Size, v.SHA256)
		out = append(out, s.link(v.Artifact, v.MIME, v.Title, v.Size)...)
	default:
		raw(plain(r))
	}
	return out, failed || r.Observed.Reason != ""
}

// plain is a result that has no form of its own.
func plain(r *task.ToolResult) string {
	if len(r.Claimed.Result) > 0 {
		return string(r.Claimed.Result)
	}
	return ended(r, "", r.Claimed.Exit, r.Claimed.Signal)
}

func fileContent(v *contract.ReadFileResult) (out []sdk.Content) {
	note := func(format string, args ...any) {
		out = append(out, &sdk.TextContent{Text: fmt.Sprintf(format, args...)})
	}
	switch {
	case v.Kind == "image" && v.Base64 != "":
		data, err := base64.StdEncoding.DecodeString(v.Base64)
		if err != nil {
			note("the image's data cannot be read")
			return out
		}
		out = append(out, &sdk.ImageContent{Data: data, MIMEType: v.MIME})
		note("[%s: %s, %d bytes]", visible(v.Path), visible(v.MIME), v.Size)
	case v.Base64 != "":
		note("%s", v.Base64)
		note("[%s: base64 of %d bytes]", visible(v.Path), v.Size)
	case v.Kind == "text" && v.Size == 0:
		note("[%s is empty]", visible(v.Path))
	case v.Kind == "text":
		out = append(out, &sdk.TextContent{Text: v.Content})
		if v.Truncated && v.NextOffset > 0 {
			note("[lines %d to %d%s; go on with offset %d]", v.FirstLine, v.LastLine, of(v.Lines), v.NextOffset)
		} else if v.Truncated || v.CutLine {
			note("[lines %d to %d%s; the last one is not whole]", v.FirstLine, v.LastLine, of(v.Lines))
		}
	default:
		note("[%s: %s, %d bytes, no text; as \"base64\" reads it]", visible(v.Path), visible(v.MIME), v.Size)
	}
	return out
}

func of(lines int64) string {
	if lines < 0 {
		return ""
	}
	return fmt.Sprintf(" of %d", lines)
}

func otherNames(out []sdk.Content, n int) []sdk.Content {
	if n > 0 {
		out = append(out, &sdk.TextContent{Text: fmt.Sprintf("[%d other names of the file keep the former content]", n)})
	}
	return out
}

func entry(e contract.DirEntry) string {
	switch e.Kind {
	case "dir":
		return e.Name + "/"
	case "link":
		return e.Name + " -> " + e.Target
	case "file":
		return fmt.Sprintf("%s (%d bytes)", e.Name, e.Size)
	}
	return e.Name + " (" + e.Kind + ")"
}

// found renders what a search found, as grep does.
func found(v *contract.GrepResult) string {
	var b strings.Builder
	for _, f := range v.Files {
		name := visible(f.Path)
		switch {
		case len(f.Lines) > 0:
		case f.Count > 0:
			fmt.Fprintf(&b, "%s:%d\n", name, f.Count)
		default:
			b.WriteString(name + "\n")
		}
		for i, l := range f.Lines {
			if i > 0 && l.Number > f.Lines[i-1].Number+1 && hasContext(f.Lines) {
				b.WriteString("--\n")
			}
			sep := "-"
			if l.Match {
				sep = ":"
			}
			cut := ""
			if l.Cut {
				cut = " [cut]"
			}
			fmt.Fprintf(&b, "%s%s%d%s%s%s\n", name, sep, l.Number, sep, strings.TrimRight(l.Text, "\r\n"), cut)
		}
		if f.Binary {
			fmt.Fprintf(&b, "[%s is binary from there]\n", name)
		}
	}
	return b.String()
}

// skipped says what a search did not look at: silence would read as "not there".
func skipped(s contract.Skipped) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{s.Unreadable, "unreadable"}, {s.Binary, "binary"}, {s.TooLarge, "too large"}, {s.TooDeep, "too deep"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if parts == nil {
		return ""
	}
	return "\n[not searched: " + strings.Join(parts, ", ") + "]"
}

func hasContext(lines []contract.GrepLine) bool {
	for _, l := range lines {
		if !l.Match {
			return true
		}
	}
	return false
}

func list(lines string, truncated bool) string {
	switch {
	case lines == "":
		return "[nothing]"
	case truncated:
		return lines + "[there is more]"
	}
	return lines
}

// streams joins what a program wrote.
func streams(stdout, stderr string) string {
	if stderr == "" {
		return lineEnd(stdout)
	}
	return lineEnd(stdout) + "[standard error]\n" + lineEnd(stderr)
}

func lineEnd(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}

// ended says how a program ended: as the host saw it, where it did.
func ended(r *task.ToolResult, state string, exit *int, signal int) string {
	if r.Observed.Exit != nil || r.Observed.Signal != 0 {
		exit, signal = r.Observed.Exit, r.Observed.Signal
	}
	how := "ended"
	switch {
	case signal != 0:
		how = fmt.Sprintf("ended by signal %d", signal)
	case exit != nil:
		how = fmt.Sprintf("exit %d", *exit)
	case state != "":
		how = visible(state)
	}
	if r.Observed.Reason != "" {
		how += "; " + visible(r.Observed.Reason)
	} else if state == "timeout" || state == "killed" {
		how += "; " + state
	}
	return "[" + how + "]"
}
