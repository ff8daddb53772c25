package detect

import (
	"strings"
	"sync"
)

// interpreter is a program that runs code.
type interpreter struct {
	shell bool
	code  string // options of one letter whose value is code
	long  string // longer options whose value is code, or that take code
	value string // options of one letter with a value that is not code
	verbs map[string]bool
}

var (
	shellKind  = &interpreter{shell: true, value: "oO"}
	pythonKind = &interpreter{code: "c", value: "WXQ"}
)

var interpreters = sync.OnceValue(func() map[string]*interpreter {
	return map[string]*interpreter{
		"sh": shellKind, "bash": shellKind, "dash": shellKind, "zsh": shellKind, "ksh": shellKind, "mksh": shellKind, "ash": shellKind, "rbash": shellKind, "yash": shellKind,
		"fish": {code: "cC", long: "--command --init-command"}, "csh": {code: "c"}, "tcsh": {code: "c"}, "nu": {code: "c", long: "--commands"}, "elvish": {code: "c"}, "xonsh": {code: "c"}, "osh": {code: "c"}, "ysh": {code: "c"}, "pwsh": {code: "cC", long: "-Command -EncodedCommand -command -ec -enc"}, "powershell": {code: "cC", long: "-Command -EncodedCommand -command -ec -enc"}, "cmd": {code: "c"},
		"python": pythonKind, "pypy": pythonKind, "ipython": pythonKind, "micropython": pythonKind, "jython": pythonKind, "coverage": {}, "python3": pythonKind,
		"node": {code: "ep", long: "--eval --print -pe", value: "rC"}, "nodejs": {code: "ep", long: "--eval --print", value: "r"}, "deno": {verbs: words("eval repl")}, "qjs": {code: "e"}, "tsx": {code: "ep", long: "--eval --print"}, "ts-node": {code: "ep", long: "--eval --print"},
		"perl": {code: "eE", value: "I"}, "ruby": {code: "e", value: "IrC"}, "irb": {}, "php": {code: "rBRE", value: "cdfz"}, "lua": {code: "e", value: "l"}, "luajit": {code: "e", value: "l"}, "tclsh": {}, "wish": {}, "expect": {code: "c"},
		"R": {code: "e"}, "Rscript": {code: "e"}, "julia": {code: "eE", value: "JLp"}, "elixir": {code: "e", long: "--eval --rpc-eval"}, "erl": {long: "-eval -s -run"}, "iex": {code: "e"}, "guile": {code: "ce"}, "racket": {code: "e"}, "scheme": {}, "sbcl": {long: "--eval --load"}, "clisp": {code: "x"}, "emacs": {long: "--eval -f --execute --batch"}, "ghci": {code: "e"}, "runghc": {code: "e"}, "runhaskell": {code: "e"},
		"groovy": {code: "e"}, "scala": {code: "e"}, "kotlinc": {}, "jshell": {}, "java": {}, "osascript": {code: "e"}, "gawk": {}, "swipl": {code: "gt"}, "gnuplot": {code: "e"}, "octave": {long: "--eval"}, "ocaml": {code: "e"}, "bb": {code: "e"}, "janet": {code: "e"}, "awk": {}, "mawk": {}, "nawk": {}, "m4": {}, "vim": {}, "vi": {}, "nvim": {}, "ex": {}, "ed": {}, "view": {}, "gvim": {}, "mono": {}, "wasmtime": {}, "wasmer": {}, "wine": {}, "source": {}, ".": {},
	}
})

// interpreterOf knows versions by their name: python3.12, ruby3.2, lua5.4.
func interpreterOf(name string) *interpreter {
	if in := interpreters()[name]; in != nil {
		return in
	}
	if base := strings.TrimRight(name, "0123456789.-"); base != name && base != "" {
		return interpreters()[base]
	}
	return nil
}

// interpret analyses a call of an interpreter: code in its words, a file, a
// module, or nothing, which means its input.
func (a *analyser) interpret(in *interpreter, ws []word, name string, extra effect) {
	switch name {
	case "awk", "gawk", "mawk", "nawk":
		a.awk(ws, name)
		return
	case "vim", "vi", "nvim", "ex", "ed", "view", "gvim":
		a.emit(ws, name, effOpaque|extra, "an editor runs commands")
		return
	case "source", ".":
		a.emit(ws, name, effOpaque|effRepo, "what a sourced file defines changes what later words mean")
		return
	}
	i := 1
	for i < len(ws) {
		o := ws[i]
		if !o.lit {
			a.emit(ws, name, effOpaque|extra, "an argument of an interpreter is not literal")
			return
		}
		s := o.s
		if s == "-" || s == "--" && !in.shell {
			break
		}
		if in.verbs[s] {
			a.emit(ws, name, effOpaque|extra, "an interpreter with code")
			return
		}
		if len(s) < 2 || s[0] != '-' && !(in.shell && s[0] == '+') {
			break
		}
		i++
		key, _, _ := strings.Cut(s, "=")
		if in.long != "" && hasWord(in.long, key) {
			a.emit(ws, name, effOpaque|extra, "an interpreter with code")
			return
		}
		if strings.HasPrefix(s, "--") {
			if in.shell && (s == "--rcfile" || s == "--init-file") {
				a.opaque("a shell with a start file")
				i++
			}
			continue
		}
		letters := s[1:]
		if in.shell {
			if strings.IndexByte(letters, 'c') >= 0 {
				for i < len(ws) && ws[i].lit && len(ws[i].s) > 1 && ws[i].s[0] == '-' {
					i++ // bash -c -e 'script'
				}
				a.emit(ws[:1], name, extra, "")
				a.shellCode(ws, i, name)
				return
			}
			if strings.IndexByte(letters, 's') >= 0 {
				a.emit(ws, name, effOpaque|extra, "a shell that reads commands from its input")
				return
			}
			if strings.ContainsAny(letters, in.value) {
				i++
			}
			continue
		}
	cluster:
		for j := range len(letters) {
			c := letters[j]
			switch {
			case strings.IndexByte(in.code, c) >= 0:
				a.emit(ws, name, effOpaque|extra, "an interpreter with code")
				return
			case c == 'm' && in == pythonKind:
				if j+1 < len(letters) {
					a.module(append([]word{{letters[j+1:], true}}, ws[i:]...), ws, name, extra)
				} else {
					a.module(ws[i:], ws, name, extra)
				}
				return
			case strings.IndexByte(in.value, c) >= 0:
				if j+1 == len(letters) {
					i++
				}
				break cluster
			}
		}
	}
	rest := ws[min(i, len(ws)):]
	if len(rest) == 0 && len(ws) == 2 && (ws[1].s == "--version" || ws[1].s == "-V" || ws[1].s == "-v" || ws[1].s == "--help") {
		a.emit(ws, name, extra, "")
		return
	}
	if len(rest) == 0 || rest[0].s == "-" || rest[0].s == "/dev/stdin" || strings.HasPrefix(rest[0].s, "/dev/fd/") || strings.HasPrefix(rest[0].s, "/proc/") {
		a.emit(ws, name, effOpaque|extra, "an interpreter that reads code from its input")
		return
	}
	// A file: what it does is known by its name, if at all.
	e := effRepo | extra
	if p := programs()[programName(rest[0].s)]; p != nil && (len(p.verbs) > 0 || p.other != effUnknown) {
		argv, partial := literal(rest)
		e |= p.effect(argv, partial)
	}
	if name == "php" && hasLetter(ws, "-S") || name == "deno" && rest[0].s == "serve" {
		e |= effProcess | effPort
	}
	a.emit(ws, name, e, "")
	if in.shell {
		a.file(rest[0].s)
	}
}

// shellCode analyses the script at ws[i], with $0 and on after it.
func (a *analyser) shellCode(ws []word, i int, name string) {
	was := a.funcs
	a.funcs = nil // another process
	if i < len(ws) && ws[i].lit && strings.Contains(ws[i].s, "{}") {
		a.opaque("names are put into a script")
	}
	a.nested(ws, i, name)
	a.funcs = was
}

// module analyses python -m.
func (a *analyser) module(rest, ws []word, name string, extra effect) {
	if len(rest) == 0 || !rest[0].lit {
		a.emit(ws, name, effOpaque|extra, "a module that is not literal")
		return
	}
	e := effRepo | extra
	switch m := rest[0].s; m {
	case "http.server", "SimpleHTTPServer", "pydoc":
		e |= effProcess | effPort
	case "timeit", "pdb", "cProfile", "trace", "code":
		e |= effOpaque
	case "json.tool", "compileall", "py_compile", "tokenize", "ast", "calendar", "base64":
		e = extra
	case "venv", "ensurepip", "virtualenv":
		e |= effInstall
	default:
		first, _, _ := strings.Cut(m, ".")
		if p := programs()[first]; p != nil {
			argv, partial := literal(rest)
			e |= p.effect(argv, partial)
		}
	}
	a.emit(ws, name, e, "")
}

// awk runs commands and opens files from its program.
func (a *analyser) awk(ws []word, name string) {
	for _, w := range ws[1:] {
		if !w.lit {
			a.emit(ws, name, effOpaque, "an argument of an interpreter is not literal")
			return
		}
		if w.s == "-f" || strings.HasPrefix(w.s, "--file") || strings.HasPrefix(w.s, "-f") {
			a.emit(ws, name, effRepo, "")
			return
		}
		for _, bad := range []string{"system", "|", "getline", "@load", "@include", "/inet/"} {
			if strings.Contains(w.s, bad) {
				a.emit(ws, name, effOpaque, "an awk program that may start others")
				return
			}
		}
	}
	a.emit(ws, name, 0, "")
}

func hasWord(list, w string) bool {
	for x := range strings.FieldsSeq(list) {
		if x == w {
			return true
		}
	}
	return false
}

// hasLetter reports whether one of the literal words is opt.
func hasLetter(ws []word, opt string) bool {
	for _, w := range ws {
		if w.lit && w.s == opt {
			return true
		}
	}
	return false
}
