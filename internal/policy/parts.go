package policy

import (
	"reflect"
)

// Part says what a key inside a pattern, a rule or a question means, wherever
// these stand.
type Part struct {
	In    string // what holds it
	Key   string
	Doc   string
	Words string
}

// Parts lists them.
var Parts = []Part{
	{"what may be reached", "egress", "Endpoints of the network. A part that is not given is any; host or cidr is always given.", "list"},
	{"what may be reached", "mounts", "Paths of the host, links resolved, with everything below them. A text alone is its path.", "list"},
	{"what may be reached", "env", "Names of variables; a * at the end is any rest.", "AWS_*"},
	{"what may be reached", "credentials", "Handles of credentials; a * at the end is any rest.", "npm-read"},
	{"what may be reached", "grants", "Abilities.", "ptrace, userns"},
	{"what may be reached", "commands", "Commands by their first words. Only deny has them: a command is denied and never granted.", "list"},
	{"egress", "host", "One name, *.NAME (one label more), **.NAME (any number more, at least one), ** (every name) or @origin (the hosts of the repository's remotes).", "example.com"},
	{"egress", "cidr", "A range of addresses, held against the address that is connected to.", "10.0.0.0/8"},
	{"egress", "ports", "Ports, and ranges of them.", "443, 8000-8100"},
	{"egress", "methods", "HTTP methods. A rule with methods or a path has TLS to what it names end at the gate, where the rest of the place is not allowed as a whole. Where nobody can read the method all the same, what is granted for some is not granted, and what is denied for some is denied.", "GET, POST"},
	{"egress", "path", "A path of the URL and everything below it.", "/api"},
	{"mounts", "path", "An absolute path; ~ is the home of the task's owner. A denied path also denies what is above it, for it would come along.", "~/.ssh"},
	{"mounts", "mode", "Not given: ro where it is granted, both where it is denied. A denied rw denies writing only.", "ro, rw"},
	{"commands", "argv", "The program's name as found on the person's PATH, or its absolute path, and words.", "[git, fetch]"},
	{"tool rules", "tool", "The tool's name, with * and ?.", "shell"},
	{"tool rules", "command", "First words of a command, of the tools that are given one. One that runs what its words do not show may be any.", "[git, push]"},
	{"tool rules", "path", "An absolute path and everything below it, of the file tools. Which files a command reaches is bounded by the boundary.", "/etc"},
	{"tool rules", "host", "A host, as in egress, of fetch and request_access; base.egress, deny.egress and outward.ask hold for every connection.", "example.com"},
	{"tool rules", "methods", "HTTP methods, of the same tools.", "POST"},
	{"tool rules", "credential", "A credential's handle; a * at the end is any rest. Refused in this version, whose calls name none.", "npm-read"},
	{"tool rules", "reason", "Why, for the person who is asked.", "text"},
	{"tests", "name", "What the line is called in the output.", "text"},
	{"tests", "egress", "HOST:PORT, or METHOD URL.", "GET https://example.com/x"},
	{"tests", "mount", "A path, as in mounts.", "~/.ssh"},
	{"tests", "env", "A variable's name.", "AWS_PROFILE"},
	{"tests", "credential", "A credential's handle.", "npm-read"},
	{"tests", "grant", "An ability.", "ptrace"},
	{"tests", "command", "A command, its program by absolute path or name.", "[git, push]"},
	{"tests", "tool", "A tool; with command, path or egress beside it.", "shell"},
	{"tests", "path", "The path that a file tool is given.", "/etc/passwd"},
	{"tests", "expect", "The answer.", "allow, ask, deny"},
	{"services.{}.ready", "exec", "A command that ends with 0.", "list of words"},
	{"services.{}.ready", "http", "A URL that answers with 2xx.", "http://localhost:8080/health"},
	{"services.{}.ready", "tcp", "A port that takes a connection.", "5432"},
	{"services.{}.ready", "log", "A text that its output shows.", "ready to accept connections"},
	{"services.{}.ready", "protocol", "Its own protocol.", "postgres"},
	{"services.{}.ready", "period", "Time between two looks.", "1s"},
	{"services.{}.ready", "timeout", "Time for one look.", "5s"},
	{"services.{}.ready", "failures", "Looks that may fail.", "30"},
	{"services.{}.depends_on", "condition", "What it waits for.", "started, healthy, completed"},
}

// holder names, for types that stand in several places, what Parts calls them.
var holder = map[reflect.Type]string{
	reflect.TypeFor[Authority](): "what may be reached", reflect.TypeFor[Egress](): "egress", reflect.TypeFor[Mount](): "mounts", reflect.TypeFor[Command](): "commands",
	reflect.TypeFor[CallRule](): "tool rules", reflect.TypeFor[Expectation](): "tests", reflect.TypeFor[Question](): "tests",
	reflect.TypeFor[Readiness](): "services.{}.ready", reflect.TypeFor[Dependency](): "services.{}.depends_on",
}

// PartOf says what a key of a type that Parts describes means; empty for others.
func PartOf(t reflect.Type, key string) string {
	for _, p := range Parts {
		if in := holder[t]; in != "" && p.In == in && p.Key == key {
			return p.Doc
		}
	}
	return ""
}
