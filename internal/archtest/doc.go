// Package archtest holds the rules of this source tree as tests: who may
// import whom, which outside module lives in which room, who may start
// processes, what every package, file and skip must carry.
//
// Its limit: tests only. It reads source text in-process with go/parser; it
// compiles nothing, starts nothing and is imported by nobody.
package archtest
