// Package detect looks at a command and at the files of a repository and says
// what they will need: facts about a task, each with the rule that found it and
// the place it was found in.
//
// Its limit: it only ever raises. It runs nothing, opens nothing and follows no
// link: bytes come from the caller, and only so many of them are read. What it
// does not find proves nothing; what it cannot read is reported as unknown.
package detect
