package contract

// Limits of the searching tools. A limit of a call that is 0 is the default; a
// larger one than the maximum is the maximum.
const (
	ListDefault = 1000
	ListMax     = 10000
	GlobDefault = 1000
	GlobMax     = 10000
	GrepDefault = 1000  // lines that match, or files
	GrepMax     = 10000 // the same
	GrepContext = 100   // lines before, and after
	GrepText    = 512 << 10
	GrepLineMax = 1000 // bytes of one line that a result shows
)

// The results of the searching tools. What is not UTF-8 has U+FFFD in place of
// what cannot be shown, and its bytes beside.
type (
	// ListDirResult is a folder, sorted by name as bytes.
	ListDirResult struct {
		Path    string     `json:"path"`
		Entries []DirEntry `json:"entries"`
		Total   int        `json:"total"` // entries of the folder
		// Truncated: there are more than Entries has. They are the first by name.
		Truncated bool `json:"truncated,omitempty"`
	}
	// DirEntry is one name in a folder.
	DirEntry struct {
		Name      string `json:"name"`
		NameBytes []byte `json:"name_base64,omitempty"`
		Kind      string `json:"kind"` // "file", "dir", "link", "fifo", "socket", "device", "gone"
		Size      int64  `json:"size"` // of a file, bytes
		Mode      string `json:"mode"` // permission bits, octal: "0644"
		Modified  string `json:"modified"`
		// Target of a link, as it stands in it, and its bytes where they are not UTF-8.
		Target      string `json:"target,omitempty"`
		TargetBytes []byte `json:"target_base64,omitempty"`
	}
	// GlobResult is files whose path matches: the files of a folder before those
	// of its folders, each sorted by name as bytes.
	GlobResult struct {
		Path      string      `json:"path"` // of the folder; those of the files are relative to it
		Files     []FoundFile `json:"files"`
		Truncated bool        `json:"truncated,omitempty"`
		Skipped   Skipped     `json:"skipped"`
	}
	// FoundFile is one path.
	FoundFile struct {
		Path      string `json:"path"`
		PathBytes []byte `json:"path_base64,omitempty"`
		Kind      string `json:"kind"` // "file", "link", "dir"
	}
	// GrepResult is what matched, in the order of GlobResult.
	GrepResult struct {
		Path     string     `json:"path"` // of the folder; those of the files are relative to it
		Files    []GrepFile `json:"files"`
		Matches  int        `json:"matches"`  // the sum of Count
		Searched int        `json:"searched"` // files that were read
		// Truncated: a limit ended the search; there may be more.
		Truncated bool    `json:"truncated,omitempty"`
		Skipped   Skipped `json:"skipped"`
	}
	// GrepFile is one file with a match.
	GrepFile struct {
		Path      string     `json:"path"`
		PathBytes []byte     `json:"path_base64,omitempty"`
		Count     int        `json:"count,omitempty"` // lines that match; absent with output "files"
		Lines     []GrepLine `json:"lines,omitempty"` // with output "lines"
		// Binary: a zero byte ended the search of this file; its text is not shown
		// from there.
		Binary   bool   `json:"binary,omitempty"`
		Encoding string `json:"encoding,omitempty"` // "utf-16le", "utf-16be"; else bytes as they are
	}
	// GrepLine is one line that matches or stands beside one that does.
	GrepLine struct {
		Number    int    `json:"line"` // from 1
		Match     bool   `json:"match,omitempty"`
		Column    int    `json:"column,omitempty"` // of the first match, in bytes, from 1
		Text      string `json:"text"`
		TextBytes []byte `json:"text_base64,omitempty"`
		Cut       bool   `json:"cut,omitempty"` // the line is longer than Text, which has the match in it
	}
	// Skipped counts what a search did not look at though it was asked to.
	Skipped struct {
		Unreadable int `json:"unreadable,omitempty"` // no permission, or an error of the disk
		Special    int `json:"special,omitempty"`    // neither file nor folder nor link
		Binary     int `json:"binary,omitempty"`     // a zero byte near the start
		TooLarge   int `json:"too_large,omitempty"`  // for a search over lines, or of an encoding
		TooDeep    int `json:"too_deep,omitempty"`   // folders whose path is too long
		LongLines  int `json:"long_lines,omitempty"` // files with a line that was searched in pieces
	}
)
