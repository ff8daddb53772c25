package contract

// Limits of the contract.
const (
	MaxArgs     = 32 << 20 // bytes of one call's arguments
	MaxDepth    = 16       // of their nesting
	MaxPath     = 4095     // bytes
	MaxContent  = 16 << 20 // bytes of a file that write_file takes in its arguments, or that is edited
	MaxEdits    = 256
	MaxPattern  = 16 << 10  // bytes of a pattern
	MaxInline   = 256 << 10 // bytes of text in one result of read_file
	MaxImage    = 5 << 20   // bytes of an image or of base64 data in one result
	MaxWhole    = 16 << 20  // bytes up to which a file is read to its end to count and hash it
	DefaultRead = 2000      // lines
	MaxURL      = 4000      // bytes
	MaxReason   = 500       // bytes of a reason for a person
)

// Tool is one tool of the contract.
type Tool struct {
	Name   string
	Where  Where
	Args   func() any // a pointer to the zero value of its arguments
	Result func() any // of its result
}

// Tools are all of them, in the order of the document.
var Tools = []Tool{
	{ReadFile, Inside, zero[ReadFileArgs], zero[ReadFileResult]},
	{WriteFile, Inside, zero[WriteFileArgs], zero[WriteFileResult]},
	{EditFile, Inside, zero[EditFileArgs], zero[EditFileResult]},
	{NotebookEdit, Inside, zero[NotebookEditArgs], zero[NotebookEditResult]},
	{ListDir, Inside, zero[ListDirArgs], zero[ListDirResult]},
	{Glob, Inside, zero[GlobArgs], zero[GlobResult]},
	{Grep, Inside, zero[GrepArgs], zero[GrepResult]},
	{Shell, Program, zero[ShellArgs], zero[ShellResult]},
	{ShellOutput, Host, zero[ShellOutputArgs], zero[ShellOutputResult]},
	{ShellInput, Host, zero[ShellInputArgs], zero[ShellInputResult]},
	{ShellKill, Host, zero[ShellKillArgs], zero[ShellKillResult]},
	{ShellList, Host, zero[ShellListArgs], zero[ShellListResult]},
	{InstallDependencies, Program, zero[InstallDependenciesArgs], zero[InstallDependenciesResult]},
	{PublishArtifact, Host, zero[PublishArtifactArgs], zero[PublishArtifactResult]},
	{Fetch, Host, zero[FetchArgs], zero[FetchResult]},
	{RequestAccess, Host, zero[RequestAccessArgs], zero[RequestAccessResult]},
}

func zero[T any]() any { return new(T) }

// Lookup returns the tool of that name.
func Lookup(name string) (Tool, bool) {
	for _, t := range Tools {
		if t.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}
