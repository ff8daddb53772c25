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

// Begins holds a command against the words of a rule, the first a program's
// name without a path. sure: the command begins with them, and is all there is.
// may: it begins with them, or what cannot be seen of it could. Code of the
// repository that it runs is not counted here; see RunsCode. A rule without
// words is never sure.
func (s Simple) Begins(words []string) (sure, may bool) {
	if s.Opaque || s.Program == "" || len(words) == 0 {
		return false, true
	}
	if s.Program != words[0] {
		return false, false
	}
	n := min(len(s.Argv), len(words))
	for i := 1; i < n; i++ {
		if s.Argv[i] != words[i] {
			return false, false
		}
	}
	if n < len(words) {
		return false, s.Partial
	}
	return true, true
}
