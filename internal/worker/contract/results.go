package contract

// The results. Everything in them was said by the worker, so it is a claim.
// Paths are absolute, as a tool would name them.
type (
	// ReadFileResult is a file or some lines of it.
	ReadFileResult struct {
		Path string `json:"path"`
		Kind string `json:"kind"` // "text", "image", "binary"
		MIME string `json:"mime"`
		Size int64  `json:"size"` // of the file, bytes
		Mode string `json:"mode"` // octal, as "0644"
		// SHA256 of the whole file; empty where it was not read to its end.
		SHA256   string `json:"sha256,omitempty"`
		Encoding string `json:"encoding,omitempty"` // of a text: "utf-8", "utf-16le", "utf-16be", "latin-1"
		BOM      bool   `json:"bom,omitempty"`      // the text begins with a byte order mark
		Newline  string `json:"newline,omitempty"`  // "lf", "crlf", "cr", "mixed", "none"
		// Lines is how many the file has; 0 for an empty one, -1 where it was not
		// read to its end.
		Lines     int64  `json:"lines"`
		FirstLine int64  `json:"first_line,omitempty"` // in Content, from 1
		LastLine  int64  `json:"last_line,omitempty"`
		Content   string `json:"content,omitempty"` // text, as UTF-8, its line endings as they are
		Base64    string `json:"base64,omitempty"`  // of an image or of what was asked for so
		// Truncated: there is more of it than asked for or than a result may hold.
		Truncated  bool  `json:"truncated,omitempty"`
		NextOffset int64 `json:"next_offset,omitempty"` // first line that is not in Content; 0: none
		CutLine    bool  `json:"cut_line,omitempty"`    // the last line is not whole
	}
	// WriteFileResult is a file that was written.
	WriteFileResult struct {
		Path    string `json:"path"`
		Created bool   `json:"created"`
		Size    int64  `json:"size"`
		Mode    string `json:"mode"`
		SHA256  string `json:"sha256"`
		Before  string `json:"sha256_before,omitempty"` // of the file that was there, where it was read
		// Encoding and Newline of the text as it was written.
		Encoding string `json:"encoding,omitempty"`
		Newline  string `json:"newline,omitempty"`
		// OtherNames is how many hard links keep the former content.
		OtherNames int `json:"other_names,omitempty"`
	}
	// EditFileResult is a file that was edited.
	EditFileResult struct {
		Path         string `json:"path"`
		Replacements int    `json:"replacements"`
		FirstLine    int64  `json:"first_line"` // of the first change, in the new text
		Size         int64  `json:"size"`
		SHA256       string `json:"sha256"`
		Before       string `json:"sha256_before"`
		Encoding     string `json:"encoding"`
		Newline      string `json:"newline"`
		OtherNames   int    `json:"other_names,omitempty"`
	}
	// NotebookEditResult is a notebook of which one cell was changed.
	NotebookEditResult struct {
		Path       string `json:"path"`
		Mode       string `json:"mode"`
		Index      int    `json:"index"` // of the cell; of a deleted one: where it was
		CellID     string `json:"cell_id,omitempty"`
		CellType   string `json:"cell_type"`
		Cells      int    `json:"cells"` // how many there are now
		Size       int64  `json:"size"`
		SHA256     string `json:"sha256"`
		Before     string `json:"sha256_before"`
		OtherNames int    `json:"other_names,omitempty"`
	}
	// ShellResult is a program that ended, or one that runs in the background.
	ShellResult struct {
		Shell     string `json:"shell,omitempty"` // of a background one: its name for the other tools
		State     string `json:"state"`           // "exited", "running", "killed", "timeout"
		Exit      *int   `json:"exit,omitempty"`
		Signal    int    `json:"signal,omitempty"`
		Stdout    string `json:"stdout"` // also of a terminal
		Stderr    string `json:"stderr,omitempty"`
		Truncated bool   `json:"truncated,omitempty"` // the middle of an output is left out
		Output    string `json:"output,omitempty"`    // file of the output store with all of it
	}
	// ShellOutputResult is what a background shell wrote.
	ShellOutputResult struct {
		Shell  string `json:"shell"`
		State  string `json:"state"`
		Exit   *int   `json:"exit,omitempty"`
		Signal int    `json:"signal,omitempty"`
		Text   string `json:"text"`
		From   int64  `json:"from"`           // byte position of Text
		Next   int64  `json:"next"`           // where to go on
		Lost   int64  `json:"lost,omitempty"` // bytes before From that are not kept any more
	}
	// ShellInputResult is how many bytes a shell was given.
	ShellInputResult struct {
		Shell string `json:"shell"`
		Bytes int64  `json:"bytes"`
	}
	// ShellKillResult is a background shell that was ended.
	ShellKillResult struct {
		Shell  string `json:"shell"`
		State  string `json:"state"`
		Exit   *int   `json:"exit,omitempty"`
		Signal int    `json:"signal,omitempty"`
	}
	// ShellInfo is one background shell.
	ShellInfo struct {
		Shell   string `json:"shell"`
		Command string `json:"command"`
		State   string `json:"state"`
		Exit    *int   `json:"exit,omitempty"`
		Bytes   int64  `json:"bytes"` // written so far
	}
	// ShellListResult is the background shells of the task.
	ShellListResult struct {
		Shells []ShellInfo `json:"shells"`
	}
	// InstallDependenciesResult is what an installation wrote.
	InstallDependenciesResult struct {
		Manager string `json:"manager"`
		Exit    *int   `json:"exit,omitempty"`
		Stdout  string `json:"stdout,omitempty"`
		Stderr  string `json:"stderr,omitempty"`
	}
	// PublishArtifactResult is a file that the host took over.
	PublishArtifactResult struct {
		Artifact string `json:"artifact"` // its name in the output store
		Path     string `json:"path"`
		Title    string `json:"title,omitempty"`
		MIME     string `json:"mime"`
		Size     int64  `json:"size"`
		SHA256   string `json:"sha256"`
	}
	// FetchResult is what a server answered.
	FetchResult struct {
		URL         string `json:"url"` // that answered, after redirections
		Status      int    `json:"status"`
		ContentType string `json:"content_type,omitempty"`
		Size        int64  `json:"size"`             // bytes of the body that were read
		Text        string `json:"text,omitempty"`   // of a body that is text, as UTF-8
		Binary      bool   `json:"binary,omitempty"` // it is none, and is left out
		Truncated   bool   `json:"truncated,omitempty"`
	}
	// RequestAccessResult is a destination that the task may reach now.
	RequestAccessResult struct {
		Allowed []string `json:"allowed"`
		Already bool     `json:"already,omitempty"` // it could before, and nobody was asked
		Note    string   `json:"note,omitempty"`
	}
)
