package detect

import (
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// parsers are expensive to make. One that failed is not used again.
var parsers = sync.Pool{New: func() any { return syntax.NewParser(syntax.Variant(syntax.LangBash)) }}

// maxOpen bounds the brackets of a script, and with them how deep its parser
// recurses.
const maxOpen = 2000

// script analyses the text of a shell script.
func (a *analyser) script(text string) {
	if len(text) > maxText {
		a.opaque("a script of more than 64 KiB")
		return
	}
	if a.depth >= maxDepth {
		a.opaque("scripts inside of scripts, too deep")
		return
	}
	if a.quick(text) {
		return
	}
	a.parse(text)
}

// parse is the way of a script that is more than words.
func (a *analyser) parse(text string) {
	if len(text) > 4<<10 && nesting(text) > maxOpen {
		a.opaque("a script with too many commands inside of others")
		return
	}
	open := 0
	for i := range len(text) {
		switch text[i] {
		case '(', '{', '`', '[':
			open++
		case 0:
			a.opaque("a script with a NUL byte")
			return
		}
	}
	if open > maxOpen {
		a.opaque("a script with too many brackets")
		return
	}
	a.depth++
	defer func() { a.depth-- }()
	p := parsers.Get().(*syntax.Parser)
	f, err := p.Parse(strings.NewReader(text), "")
	if err != nil {
		a.opaque("not a script that bash can parse")
		return
	}
	parsers.Put(p)
	a.walk(f)
}

// keywords cannot be the name of a program.
var keywords = sync.OnceValue(func() map[string]bool {
	return map[string]bool{
		"if": true, "then": true, "else": true, "elif": true, "fi": true, "do": true, "done": true, "case": true, "esac": true, "while": true, "until": true, "for": true,
		"in": true, "function": true, "time": true, "select": true, "coproc": true, "let": true, "declare": true, "export": true, "local": true, "readonly": true, "typeset": true, "nameref": true, "alias": true,
	}
})

// nesting counts the words after which a command begins inside of another one.
func nesting(text string) (n int) {
	for w := range strings.FieldsSeq(text) {
		switch w {
		case "if", "while", "until", "for", "case", "do", "then", "else", "!", "select", "coproc", "time", "function":
			n++
		}
	}
	return n
}

// plainText reports whether words separated by blanks are all there is.
func plainText(s string) bool {
	for i := range len(s) {
		if !plainByte[s[i]] {
			return false
		}
	}
	return true
}

var plainByte = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(" \t-_./:@%+,=", byte(c)) >= 0
	}
	return t
}()

// walk visits every command of a parsed script, those in substitutions too.
func (a *analyser) walk(f *syntax.File) {
	code := false       // a value or argument holds a substitution as text
	arithmetic := false // and something may evaluate it
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.FuncDecl:
			if a.funcs == nil {
				a.funcs = map[string]bool{}
			}
			if n.Name != nil {
				a.funcs[n.Name.Value] = true
			}
			for _, l := range n.Names {
				a.funcs[l.Value] = true
			}
		case *syntax.ArithmCmd, *syntax.ArithmExp, *syntax.LetClause, *syntax.CStyleLoop, *syntax.TestClause:
			arithmetic = true
		case *syntax.ParamExp:
			arithmetic = arithmetic || n.Slice != nil || n.Index != nil
		case *syntax.SglQuoted:
			code = code || strings.Contains(n.Value, "$(") || strings.Contains(n.Value, "`")
		case *syntax.Lit:
			code = code || strings.Contains(n.Value, `\$(`) || strings.Contains(n.Value, "\\`")
		}
		return true
	})
	if code && arithmetic {
		a.opaque("arithmetic may run a substitution that a value holds")
	}
	syntax.Walk(f, func(n syntax.Node) bool {
		if n != nil && a.depth == a.outer+1 {
			a.line = int(n.Pos().Line())
		}
		switch n := n.(type) {
		case *syntax.Stmt:
			a.statement(n)
		case *syntax.CallExpr:
			a.expr(n)
		case *syntax.DeclClause:
			a.declare(n)
		case *syntax.CoprocClause:
			a.emit(nil, "coproc", effProcess, "")
		case *syntax.WordIter:
			if n.Name != nil {
				a.assign(n.Name.Value, word{})
			}
		case *syntax.ParamExp:
			if n.Exp != nil && n.Param != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) {
				a.assign(n.Param.Value, word{})
			}
			if n.Exp != nil && n.Exp.Op == syntax.OtherParamOps && n.Exp.Word != nil && n.Exp.Word.Lit() == "P" {
				a.opaque("${…@P} runs what the value holds")
			}
		}
		return true
	})
}

// statement looks at what belongs to a statement, not to its command.
func (a *analyser) statement(s *syntax.Stmt) {
	if s.Background || s.Coprocess || s.Disown {
		a.emit(nil, "&", effProcess, "")
	}
	for _, r := range s.Redirs {
		if r.Word == nil {
			continue
		}
		w := literalWord(r.Word)
		switch {
		case !w.lit:
		case strings.HasPrefix(w.s, "/dev/tcp/"), strings.HasPrefix(w.s, "/dev/udp/"):
			a.emit([]word{{"<>", true}, w}, "<>", effMutate, "")
		case diskDevice(w.s) && r.Op != syntax.RdrIn:
			a.emit([]word{{">", true}, w}, ">", effKernel|effDestroy, "")
		case kernelFile(w.s):
			a.emit([]word{{"<>", true}, w}, "<>", effKernel, "")
		}
	}
}

// expr analyses one simple command of a script.
func (a *analyser) expr(c *syntax.CallExpr) {
	for _, as := range c.Assigns {
		if as.Name != nil {
			a.assign(as.Name.Value, valueOf(as))
		}
	}
	if len(c.Args) == 0 {
		return
	}
	var few [12]word
	ws := few[:0]
	for _, w := range c.Args {
		ws = append(ws, literalWord(w))
	}
	a.call(ws)
}

// declare looks at the variables that export and its kin set.
func (a *analyser) declare(d *syntax.DeclClause) {
	for _, as := range d.Args {
		switch {
		case as.Name != nil && !as.Naked:
			a.assign(as.Name.Value, valueOf(as))
		case as.Name == nil && as.Value != nil:
			if w := literalWord(as.Value); !w.lit {
				a.opaque(d.Variant.Value + " of a name that is not literal")
			} else if k, v, ok := strings.Cut(w.s, "="); ok {
				a.assign(k, word{v, true})
				if strings.ContainsAny(k, "`(") {
					a.opaque("a subscript that may run a substitution")
				}
			}
		}
	}
}

func valueOf(as *syntax.Assign) word {
	if as.Value == nil {
		return word{"", as.Array == nil}
	}
	return literalWord(as.Value)
}

// literalWord resolves quotes. A word that depends on anything but its own
// letters is not literal: variables, substitutions, globs, braces, the home
// folder, escapes of $'…'.
func literalWord(w *syntax.Word) word {
	if len(w.Parts) == 1 {
		if l, ok := w.Parts[0].(*syntax.Lit); ok && !strings.ContainsAny(l.Value, "\\*?[{~") {
			return word{l.Value, true}
		}
	}
	var b strings.Builder
	for i, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			if p.Value == "[" && len(w.Parts) == 1 || p.Value == "{}" {
				b.WriteString(p.Value)
				continue
			}
			if i == 0 && strings.HasPrefix(p.Value, "~") {
				return word{}
			}
			for j := 0; j < len(p.Value); j++ {
				switch c := p.Value[j]; c {
				case '\\':
					j++
					if j < len(p.Value) && p.Value[j] != '\n' {
						b.WriteByte(p.Value[j])
					}
				case '*', '?', '[', '{':
					return word{}
				default:
					b.WriteByte(c)
				}
			}
		case *syntax.SglQuoted:
			if p.Dollar {
				return word{}
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			if p.Dollar {
				return word{}
			}
			for _, q := range p.Parts {
				l, ok := q.(*syntax.Lit)
				if !ok {
					return word{}
				}
				for j := 0; j < len(l.Value); j++ {
					c := l.Value[j]
					if c == '\\' && j+1 < len(l.Value) && strings.IndexByte("$`\"\\\n", l.Value[j+1]) >= 0 {
						j++
						if l.Value[j] != '\n' {
							b.WriteByte(l.Value[j])
						}
						continue
					}
					b.WriteByte(c)
				}
			}
		default:
			return word{}
		}
	}
	return word{b.String(), true}
}
