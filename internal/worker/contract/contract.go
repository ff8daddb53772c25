// Package contract is version 1 of the tool contract: the names of the tools,
// their arguments, their results, their limits. docs/tools.md says what they mean.
//
// Its limit: plain values that host and worker share; it reads no file and runs
// nothing. It is linked into the worker, so it needs nothing but the standard
// library.
package contract

// Version of the contract.
const Version = 1

// The tools.
const (
	ReadFile            = "read_file"
	WriteFile           = "write_file"
	EditFile            = "edit_file"
	NotebookEdit        = "notebook_edit"
	ListDir             = "list_dir"
	Glob                = "glob"
	Grep                = "grep"
	Shell               = "shell"
	ShellOutput         = "shell_output"
	ShellInput          = "shell_input"
	ShellKill           = "shell_kill"
	ShellList           = "shell_list"
	InstallDependencies = "install_dependencies"
	PublishArtifact     = "publish_artifact"
	Fetch               = "fetch"
	RequestAccess       = "request_access"
)

// Where a tool is carried out.
type Where int

// The places.
const (
	Inside  Where = iota + 1 // by the worker in the boundary
	Program                  // a program started in the boundary
	Host                     // by the host, from what it holds itself
)

// The arguments. Paths are absolute, or relative to the task's source.
type (
	// ReadFileArgs asks for a file or some lines of it.
	ReadFileArgs struct {
		Path   string `json:"path"`
		Offset int64  `json:"offset,omitempty"` // first line, from 1
		Limit  int64  `json:"limit,omitempty"`  // lines
		As     string `json:"as,omitempty"`     // "auto", "text", "base64"
	}
	// WriteFileArgs asks for a file with exactly this content.
	WriteFileArgs struct {
		Path         string `json:"path"`
		Content      string `json:"content"`
		Encoding     string `json:"encoding,omitempty"` // of content: "utf-8", "base64"
		Newline      string `json:"newline,omitempty"`  // "keep" the line endings, encoding and mark of the text before; "exact"
		Executable   *bool  `json:"executable,omitempty"`
		CreateOnly   bool   `json:"create_only,omitempty"`
		ExpectSHA256 string `json:"expect_sha256,omitempty"` // of the file before
	}
	// Edit is one exact replacement.
	Edit struct {
		Old string `json:"old"`
		New string `json:"new"`
		All bool   `json:"replace_all,omitempty"`
		// Occurrence is which one, from 1; 0: there must be just one.
		Occurrence int `json:"occurrence,omitempty"`
	}
	// EditFileArgs asks for all edits, in order, or none.
	EditFileArgs struct {
		Path         string `json:"path"`
		Edits        []Edit `json:"edits"`
		ExpectSHA256 string `json:"expect_sha256,omitempty"`
	}
	// NotebookEditArgs asks for a change of one cell of a Jupyter notebook.
	NotebookEditArgs struct {
		Path         string `json:"path"`
		Mode         string `json:"mode,omitempty"` // "replace", "insert", "delete"
		CellID       string `json:"cell_id,omitempty"`
		Index        *int   `json:"index,omitempty"`     // from 0
		CellType     string `json:"cell_type,omitempty"` // "code", "markdown", "raw"
		Source       string `json:"source,omitempty"`
		ExpectSHA256 string `json:"expect_sha256,omitempty"`
	}
	// ListDirArgs asks for the entries of a folder.
	ListDirArgs struct {
		Path  string `json:"path,omitempty"`
		Limit int    `json:"limit,omitempty"`
	}
	// GlobArgs asks for files by name.
	GlobArgs struct {
		Pattern  string `json:"pattern"`
		Path     string `json:"path,omitempty"`
		Limit    int    `json:"limit,omitempty"`
		NoIgnore bool   `json:"no_ignore,omitempty"`
		Hidden   bool   `json:"hidden,omitempty"`
	}
	// GrepArgs asks for lines that match.
	GrepArgs struct {
		Pattern    string `json:"pattern"` // RE2
		Path       string `json:"path,omitempty"`
		Glob       string `json:"glob,omitempty"`
		Fixed      bool   `json:"fixed,omitempty"`
		IgnoreCase bool   `json:"ignore_case,omitempty"`
		Word       bool   `json:"word,omitempty"`
		Multiline  bool   `json:"multiline,omitempty"`
		Before     int    `json:"before,omitempty"`
		After      int    `json:"after,omitempty"`
		Output     string `json:"output,omitempty"` // "lines", "files", "count"
		Limit      int    `json:"limit,omitempty"`
		NoIgnore   bool   `json:"no_ignore,omitempty"`
		Hidden     bool   `json:"hidden,omitempty"`
	}
	// ShellArgs asks for a program: a script for /bin/sh, or an argument vector.
	ShellArgs struct {
		Command    string            `json:"command,omitempty"`
		Argv       []string          `json:"argv,omitempty"`
		Dir        string            `json:"cwd,omitempty"`
		Env        map[string]string `json:"env,omitempty"`
		TimeoutMS  int64             `json:"timeout_ms,omitempty"`
		Stdin      string            `json:"stdin,omitempty"`
		PTY        bool              `json:"pty,omitempty"`
		Background bool              `json:"background,omitempty"`
	}
	// ShellOutputArgs asks for what a background shell wrote.
	ShellOutputArgs struct {
		Shell  string `json:"shell"`
		From   *int64 `json:"from,omitempty"`    // byte position; nil: after what was read last
		WaitMS int64  `json:"wait_ms,omitempty"` // for something new or the end
	}
	// ShellInputArgs writes to a background shell.
	ShellInputArgs struct {
		Shell string `json:"shell"`
		Text  string `json:"text,omitempty"`
		EOF   bool   `json:"eof,omitempty"`
	}
	// ShellKillArgs ends a background shell and all it started.
	ShellKillArgs struct {
		Shell string `json:"shell"`
	}
	// ShellListArgs asks for the background shells.
	ShellListArgs struct{}
	// InstallDependenciesArgs asks for the declared dependencies.
	InstallDependenciesArgs struct {
		Manager string   `json:"manager,omitempty"`
		Args    []string `json:"args,omitempty"`
	}
	// PublishArtifactArgs names a file of the output store.
	PublishArtifactArgs struct {
		Path  string `json:"path"`
		Title string `json:"title,omitempty"`
	}
	// FetchArgs asks for what is at a URL.
	FetchArgs struct {
		URL      string `json:"url"`
		Method   string `json:"method,omitempty"` // "GET", "HEAD"
		MaxBytes int    `json:"max_bytes,omitempty"`
	}
	// RequestAccessArgs asks a person to let the task reach one destination.
	RequestAccessArgs struct {
		Host    string   `json:"host"`
		Port    int      `json:"port,omitempty"`
		Methods []string `json:"methods,omitempty"`
		Path    string   `json:"path,omitempty"`
		Reason  string   `json:"reason"`
	}
)
