package detect

import (
	"path"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// Look returns the content of a file of the repository, by its path from the
// top, or nil where there is none that can be read. Command asks it for the
// files that give a script its body.
type Look func(name string) []byte

// Analysis is what a command says about itself.
type Analysis struct {
	// Simple is its simple commands. A verdict on the command is the strictest
	// one of them. Empty: nothing runs.
	Simple []task.Simple
	// Facts are what it will need, each once, with a rule CMD-nn.
	Facts []task.Fact
}

// Command analyses a command that runs as it is, without a shell. With look the
// bodies of the scripts it names ("npm test", "make build") are analysed too.
func Command(argv []string, look Look) Analysis {
	a := analyser{look: look}
	if len(argv) > maxWords {
		a.opaque("it has more than 4096 words")
		return a.done()
	}
	var few [12]word
	ws := few[:0]
	for _, s := range argv {
		ws = append(ws, word{s, true})
	}
	a.call(ws)
	return a.done()
}

// Script analyses the text of a shell script, as given to sh -c.
func Script(text string, look Look) Analysis {
	a := analyser{look: look}
	a.script(text)
	return a.done()
}

const (
	maxWords  = 4096
	maxText   = 64 << 10
	maxSimple = 500 // simple commands of one analysis
	maxDepth  = 8   // of scripts inside of words
	maxNested = 16  // of programs that start others
)

// word is one word of a command; s is its value where it is literal.
type word struct {
	s   string
	lit bool
}

// analyser collects the simple commands of one command or script.
type analyser struct {
	simple  []task.Simple
	effects []effect // of each
	places  []string // of each, where it is not the command itself
	at      []int    // its line in the outermost script, or 0
	look    Look
	place   string // the file that the script stands in, where it is not the command itself
	base    int    // the line of that file at which the script begins
	line    int    // of the script
	outer   int    // depth of what stands in the file itself
	dir     string // in the repository, where "cd" led
	depth   int
	nest    int
	funcs   map[string]bool
	scripts map[string]bool // bodies that were analysed, so that a script may call itself
	full    bool
}

// emit adds a simple command. ws may be empty.
func (a *analyser) emit(ws []word, name string, e effect, why string) {
	if len(a.simple) >= maxSimple {
		if !a.full {
			a.full = true
			a.add(task.Simple{Opaque: true, Why: "more than 500 commands"}, effOpaque)
		}
		return
	}
	n := 0
	for n < len(ws) && ws[n].lit {
		n++
	}
	words := make([]string, n)
	for i := range n {
		words[i] = ws[i].s
	}
	if e&effOpaque == 0 {
		if w := hides(name, words); w != "" {
			e, why = e|effOpaque, w
		}
	}
	s := task.Simple{Argv: words, Program: name, Partial: n < len(ws), Opaque: e&effOpaque != 0 || name == "", RunsCode: e&effRepo != 0, Why: why}
	switch {
	case why != "":
	case s.Opaque:
		s.Why = "what it runs cannot be told from its words"
	case s.RunsCode:
		s.Why = "runs code of the repository"
	case s.Partial:
		s.Why = "an argument is not literal"
	}
	a.add(s, e)
}

func (a *analyser) add(s task.Simple, e effect) {
	a.simple = append(a.simple, s)
	a.effects = append(a.effects, e)
	at := a.place
	if at != "" {
		at += ":" + strconv.Itoa(a.base+max(a.line, 1)-1)
	}
	a.places = append(a.places, at)
	a.at = append(a.at, a.line)
}

// lines returns the line of the script in which simple command i stands, or 0.
func (a *analyser) lines(i int) int { return a.at[i] }

// opaque adds a command that nothing is known of.
func (a *analyser) opaque(why string) { a.emit(nil, "", effOpaque, why) }

func (a *analyser) done() Analysis {
	var seen effect
	out := Analysis{Simple: a.simple}
	for i, e := range a.effects {
		fresh := e &^ seen
		if fresh == 0 {
			continue
		}
		seen |= fresh
		at := a.places[i]
		if at == "" {
			at = show(&a.simple[i])
		}
		out.Facts = append(out.Facts, fresh.facts("CMD-", at, "")...)
	}
	return out
}

// show names a command without its arguments, which may hold a secret: the
// program and its verb.
func show(s *task.Simple) string {
	if s.Program == "" {
		return "a command: " + s.Why
	}
	if p := programs()[s.Program]; p != nil && len(p.verbs) > 0 {
		if v1, v2 := p.verb(s.Argv); v2 != "" && p.has(v1+" "+v2) {
			return s.Program + " " + v1 + " " + v2
		} else if p.has(v1) {
			return s.Program + " " + v1
		}
	}
	return s.Program
}

func (p *program) has(verb string) bool { _, ok := p.verbs[verb]; return ok }

// verb returns the first two words of argv that are neither an option nor the
// value of one.
func (p *program) verb(argv []string) (first, second string) {
	for i := 1; i < len(argv); i++ {
		w := argv[i]
		if strings.HasPrefix(w, "-") && w != "-" {
			if p.values[w] {
				i++
			}
			continue
		}
		if strings.HasPrefix(w, "+") && i == 1 {
			continue // cargo +nightly
		}
		if first == "" {
			first = w
			continue
		}
		return first, w
	}
	return first, ""
}

// effect says what a call of p does. The words after argv are not literal
// where partial.
func (p *program) effect(argv []string, partial bool) effect {
	e := p.always
	if len(p.verbs) == 0 && p.other == 0 {
		return e // a name of nameTable
	}
	v1, v2 := p.verb(argv)
	if v1 == "" {
		if p.has(last(argv)) {
			return e | p.verbs[last(argv)] // an option that is a verb: --version
		}
		if partial && len(p.verbs) > 0 {
			return e | p.other | effOpaque
		}
		if partial {
			return e | p.other | p.none
		}
		return e | p.none
	}
	if v2 != "" {
		if x, ok := p.verbs[v1+" "+v2]; ok {
			return e | x
		}
	}
	if x, ok := p.verbs[v1]; ok {
		return e | x
	}
	return e | p.other
}

func last(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	return argv[len(argv)-1]
}

// programName is the name by which the tables know a program.
func programName(p string) string {
	if strings.IndexByte(p, '/') >= 0 {
		p = path.Base(p)
	}
	if i := strings.LastIndexByte(p, '\\'); i >= 0 {
		p = p[i+1:]
	}
	for _, ext := range []string{".exe", ".cmd", ".bat"} {
		if s, ok := strings.CutSuffix(p, ext); ok && s != "" {
			return s
		}
	}
	return p
}

// inRepo says that a program is named by a path that leads into the task's
// files, or may.
func inRepo(p string) bool {
	return strings.IndexByte(p, '/') > 0 || strings.HasPrefix(p, "~") || strings.HasPrefix(p, "/tmp/") || strings.HasPrefix(p, "/home/")
}

// call analyses one simple command without its assignments.
func (a *analyser) call(ws []word) {
	if len(ws) == 0 {
		return
	}
	if len(a.simple) >= maxSimple {
		a.opaque("")
		return
	}
	if a.nest >= maxNested || len(ws) > maxWords {
		a.opaque("more programs that start others, or more words, than anybody writes")
		return
	}
	a.nest++
	defer func() { a.nest-- }()
	if !ws[0].lit || ws[0].s == "" {
		a.emit(nil, "", effOpaque, "the name of the program is not literal")
		return
	}
	name := programName(ws[0].s)
	var extra effect
	why := ""
	if inRepo(ws[0].s) {
		extra, why = effRepo, "a program in the repository"
	}
	switch {
	case strings.HasPrefix(ws[0].s, "/proc/"), strings.HasPrefix(ws[0].s, "/dev/"):
		a.emit(ws, "", effOpaque, "a program by a descriptor or a process")
		return
	case strings.HasPrefix(name, "ld-") || strings.HasPrefix(name, "ld.so"):
		a.emit(ws, name, effOpaque, "the loader starts any program")
		a.call(ws[1:])
		return
	}
	if w := wrappers()[name]; w != nil {
		a.emit(ws, name, extra|w.effect, why)
		a.unwrap(w, ws)
		return
	}
	if f := specials()[name]; f != nil {
		f(a, ws, name, extra)
		return
	}
	if in := interpreterOf(name); in != nil {
		a.interpret(in, ws, name, extra)
		return
	}
	p := programs()[name]
	if p == nil {
		switch {
		case a.funcs[name]:
			why = "a function of the script, whose body is looked at where it stands"
		case extra == 0:
			extra, why = effUnknown, "not a program that is known"
		}
		a.emit(ws, name, extra, why)
		if extra&effRepo != 0 {
			a.file(ws[0].s)
		}
		return
	}
	argv, partial := literal(ws)
	e := p.effect(argv, partial)
	for _, w := range argv[1:] {
		if strings.HasPrefix(w, "/dev/") && (diskDevice(w) || kernelFile(w)) {
			e |= effKernel
		}
	}
	a.emit(ws, name, extra|e, why)
	if e&effRepo != 0 && a.look != nil {
		a.body(name, argv)
	}
}

// literal returns the literal words at the start of ws.
func literal(ws []word) (argv []string, partial bool) {
	argv = make([]string, 0, len(ws))
	for _, w := range ws {
		if !w.lit {
			return argv, true
		}
		argv = append(argv, w.s)
	}
	return argv, false
}

// nested analyses a script that is a word of a command.
func (a *analyser) nested(ws []word, i int, what string) {
	switch {
	case i >= len(ws):
		a.opaque(what + " without a script")
	case !ws[i].lit:
		a.opaque("the script of " + what + " is not literal")
	default:
		a.script(ws[i].s)
	}
}
