package task

// Simple is one simple command of a call, as far as its words tell without
// anything being run. A command that starts another one ("sudo docker ps") is
// two of them.
//
// A rule about commands can hold for what Program and Argv show. It can be
// escaped by whatever is Partial, Opaque or RunsCode, so these never make a
// call more allowed.
type Simple struct {
	// Program is the last part of the program's path. Empty: it cannot be told,
	// and Opaque is set.
	Program string `json:"program"`
	// Argv is the literal words, the program's first, up to the first that is
	// not literal.
	Argv []string `json:"argv"`
	// Partial: more arguments follow, and they can be anything.
	Partial bool `json:"partial,omitempty"`
	// Opaque: it runs what no word of it shows: generated code, a name that is
	// put together when it runs, the input of a shell.
	Opaque bool `json:"opaque,omitempty"`
	// RunsCode: it runs code that the repository defines: a script, a test, a
	// build file.
	RunsCode bool `json:"runs_code,omitempty"`
	// Why says what makes it so, for a person.
	Why string `json:"why,omitempty"`
}
