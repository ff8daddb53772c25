package contract

import (
	"strings"
)

// Choices are the words that an argument may be, by tool and name. The first is
// what an absent one means.
var Choices = map[string][]string{
	ReadFile + ".as":            {"auto", "text", "base64"},
	WriteFile + ".encoding":     {"utf-8", "base64"},
	WriteFile + ".newline":      {"keep", "exact"},
	NotebookEdit + ".mode":      {"replace", "insert", "delete"},
	NotebookEdit + ".cell_type": {"code", "markdown", "raw"},
	Grep + ".output":            {"lines", "files", "count"},
	Fetch + ".method":           {"GET", "HEAD"},
}

// check refuses values that no run could make sense of.
func check(args any) *Failure {
	var c checker
	switch a := args.(type) {
	case *ReadFileArgs:
		c.path("path", a.Path, true)
		c.choice(ReadFile, "as", a.As)
		if a.As == "base64" && (a.Offset != 0 || a.Limit != 0) {
			c.bad("offset and limit count lines, which base64 has none of")
		}
		c.count("offset", a.Offset)
		c.count("limit", a.Limit)
	case *WriteFileArgs:
		c.path("path", a.Path, true)
		c.choice(WriteFile, "encoding", a.Encoding)
		c.choice(WriteFile, "newline", a.Newline)
		c.digest(a.ExpectSHA256)
		if a.CreateOnly && a.ExpectSHA256 != "" {
			c.bad("create_only and expect_sha256 exclude each other")
		}
		if len(a.Content) > MaxContent*4/3+4 || a.Encoding != "base64" && len(a.Content) > MaxContent {
			c.fail(Fail(TooBig, "content is longer than %d bytes", MaxContent))
		}
	case *EditFileArgs:
		c.path("path", a.Path, true)
		c.digest(a.ExpectSHA256)
		if len(a.Edits) == 0 {
			c.bad("edits is empty")
		}
		for i, e := range a.Edits {
			switch {
			case e.Old == "":
				c.bad("edits[%d].old is empty; write_file makes a new file", i)
			case e.Old == e.New:
				c.bad("edits[%d] changes nothing: old and new are the same", i)
			case e.Occurrence < 0:
				c.bad("edits[%d].occurrence counts from 1", i)
			case e.All && e.Occurrence > 0:
				c.bad("edits[%d]: replace_all and occurrence exclude each other", i)
			}
		}
	case *NotebookEditArgs:
		c.path("path", a.Path, true)
		c.choice(NotebookEdit, "mode", a.Mode)
		c.choice(NotebookEdit, "cell_type", a.CellType)
		c.digest(a.ExpectSHA256)
		if a.Index != nil && *a.Index < 0 {
			c.bad("index counts from 0")
		}
		if a.Index != nil && a.CellID != "" {
			c.bad("cell_id and index exclude each other")
		}
		if a.Index == nil && a.CellID == "" && a.Mode != "insert" {
			c.bad("cell_id or index must say which cell")
		}
		if a.Mode == "delete" && (a.Source != "" || a.CellType != "") {
			c.bad("source and cell_type make no sense when a cell is deleted")
		}
	case *ListDirArgs:
		c.path("path", a.Path, false)
		c.count("limit", int64(a.Limit))
	case *GlobArgs:
		c.path("path", a.Path, false)
		c.pattern("pattern", a.Pattern, true)
		c.count("limit", int64(a.Limit))
	case *GrepArgs:
		c.path("path", a.Path, false)
		c.pattern("pattern", a.Pattern, true)
		c.pattern("glob", a.Glob, false)
		c.choice(Grep, "output", a.Output)
		c.count("before", int64(a.Before))
		c.count("after", int64(a.After))
		c.count("limit", int64(a.Limit))
	case *ShellArgs:
		c.shell(a)
	case *ShellOutputArgs:
		c.name("shell", a.Shell)
		c.count("wait_ms", a.WaitMS)
		if a.From != nil {
			c.count("from", *a.From)
		}
	case *ShellInputArgs:
		c.name("shell", a.Shell)
		if a.Text == "" && !a.EOF {
			c.bad("neither text nor eof is given")
		}
	case *ShellKillArgs:
		c.name("shell", a.Shell)
	case *InstallDependenciesArgs:
		for _, s := range append([]string{a.Manager}, a.Args...) {
			c.noNUL("args", s)
		}
	case *PublishArtifactArgs:
		c.path("path", a.Path, true)
		c.noNUL("title", a.Title)
	case *FetchArgs:
		c.text("url", a.URL, true, MaxURL)
		c.choice(Fetch, "method", a.Method)
		c.count("max_bytes", int64(a.MaxBytes))
		if a.MaxBytes > MaxInline {
			c.bad("max_bytes is more than %d", MaxInline)
		}
	case *RequestAccessArgs:
		c.text("host", a.Host, true, 253)
		c.text("path", a.Path, false, MaxURL)
		c.text("reason", a.Reason, true, MaxReason)
		if a.Port < 0 || a.Port > 65535 {
			c.bad("port is no number from 1 to 65535")
		}
		if len(a.Methods) > 8 {
			c.bad("methods are more than 8")
		}
		for _, m := range a.Methods {
			c.text("methods", m, true, 32)
		}
	}
	return c.first
}

// checker keeps the first thing that is wrong.
type checker struct{ first *Failure }

func (c *checker) fail(f *Failure) {
	if c.first == nil {
		c.first = f
	}
}

func (c *checker) bad(format string, args ...any) { c.fail(Fail(BadArgs, format, args...)) }

func (c *checker) noNUL(name, s string) {
	if strings.ContainsRune(s, 0) {
		c.bad("%s holds a NUL", name)
	}
}

func (c *checker) path(name, s string, need bool)    { c.text(name, s, need, MaxPath) }
func (c *checker) pattern(name, s string, need bool) { c.text(name, s, need, MaxPattern) }

func (c *checker) text(name, s string, need bool, most int) {
	c.noNUL(name, s)
	if need && s == "" {
		c.bad("%s is empty", name)
	}
	if len(s) > most {
		c.bad("%s is longer than %d bytes", name, most)
	}
}

func (c *checker) name(name, s string) {
	if s == "" || len(s) > 64 {
		c.bad("%s is no shell's name", name)
	}
}

func (c *checker) count(name string, n int64) {
	if n < 0 {
		c.bad("%s is negative", name)
	}
}

func (c *checker) choice(tool, name, s string) {
	words := Choices[tool+"."+name]
	for _, w := range words {
		if s == "" || s == w {
			return
		}
	}
	c.bad("%s must be one of: %s", name, strings.Join(words, ", "))
}

func (c *checker) digest(s string) {
	if s != "" && (len(s) != 64 || strings.Trim(s, "0123456789abcdef") != "") {
		c.bad("expect_sha256 must be 64 lower-case hexadecimal digits")
	}
}

func (c *checker) shell(a *ShellArgs) {
	c.path("cwd", a.Dir, false)
	c.count("timeout_ms", a.TimeoutMS)
	switch {
	case a.Command == "" && len(a.Argv) == 0:
		c.bad("command or argv must be given")
	case a.Command != "" && len(a.Argv) > 0:
		c.bad("command and argv exclude each other")
	case len(a.Argv) > 0 && a.Argv[0] == "":
		c.bad("argv[0] is empty")
	}
	c.noNUL("command", a.Command)
	for _, s := range a.Argv {
		c.noNUL("argv", s)
	}
	for k, v := range a.Env {
		c.noNUL("env", k+v)
		if k == "" || strings.Contains(k, "=") {
			c.bad("env holds a name that is none: %q", cut(k, 60))
		}
	}
}
