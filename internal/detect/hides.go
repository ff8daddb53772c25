package detect

import (
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// compilers are known by these names, also with a version behind and the name of
// a target before.
var compilers = lazyWords("gcc g++ cc c++ c89 c99 cpp clang clang++ gfortran gccgo ld ld.bfd ld.gold ld.lld lld ar nm ranlib nvcc tcc")

// compiler returns the name of the list by which a program is known, or "".
func compiler(name string) string {
	for _, n := range []string{name, strings.TrimRight(name, "0123456789.-")} {
		if compilers()[n] {
			return n
		}
		if i := strings.LastIndexByte(n, '-'); i > 0 && compilers()[n[i+1:]] {
			return n[i+1:]
		}
	}
	return ""
}

// hides says why the words of a command that otherwise touches files name a
// program or code to be run; "" where they do not. It errs on the side of
// suspicion: what it names is asked about, not refused.
func hides(name string, argv []string) string {
	if len(argv) < 2 {
		if name == "ftp" || name == "lftp" || name == "telnet" {
			return name + " starts commands that its input names"
		}
		return ""
	}
	any := func(bad func(w string) bool) bool { return slices.ContainsFunc(argv[1:], bad) }
	if c := compiler(name); c != "" {
		if any(func(w string) bool { return compilerRuns(c, w) }) {
			return "an option of " + name + " that names a program or a plug-in"
		}
		return ""
	}
	prefixed := func(list ...string) bool {
		return any(func(w string) bool {
			return slices.ContainsFunc(list, func(p string) bool { return strings.HasPrefix(w, p) })
		})
	}
	switch name {
	case "make", "gmake", "bmake":
		if makesOfInput(argv) {
			return "a Makefile that " + name + " reads from its input"
		}
	case "sqlite3", "sqlite", "duckdb":
		if any(func(w string) bool { return sqliteRuns(w) || w == "-init" || w == "--init" }) {
			return "a command of " + name + " that may start a program"
		}
	case "mysql", "mariadb", "mycli", "pgcli", "usql":
		if any(mysqlRuns) {
			return "a command of " + name + " that may start a program"
		}
	case "ftp", "lftp", "telnet":
		return name + " starts commands that its input names"
	case "sftp":
		if prefixed("-b") {
			return "sftp starts commands that its file names"
		}
	case "less", "more", "most":
		if prefixed("+") {
			return name + " starts with a command of its own"
		}
	case "dc":
		if any(func(w string) bool { return strings.Contains(w, "!") }) {
			return "dc starts a command"
		}
	case "mlr":
		if any(func(w string) bool { return strings.Contains(w, "system") || strings.Contains(w, "exec") }) {
			return "mlr starts a command"
		}
	case "nano", "pico":
		if prefixed("-s", "--speller") {
			return "the speller of " + name + " is a command"
		}
	case "go":
		if any(func(w string) bool { return strings.Contains(w, "extld") || strings.HasPrefix(w, "-overlay") }) {
			return "a linker that the words of go name"
		}
	case "rustc":
		if any(func(w string) bool {
			return strings.Contains(w, "linker") || strings.Contains(w, "codegen-backend") || w[:min(len(w), 1)] == "@"
		}) {
			return "a linker that the words of rustc name"
		}
	case "ghc":
		if prefixed("-pgm", "-fplugin", "-e", "@") {
			return "an option of ghc that names a program"
		}
	case "javac":
		if prefixed("-J", "-Xplugin", "-processor", "--processor", "@") {
			return "an option of javac that names code"
		}
	case "protoc":
		if prefixed("--plugin", "@") {
			return "a plug-in that the words of protoc name"
		}
	case "cmake":
		if prefixed("-E", "-P") {
			return "cmake starts a command"
		}
	}
	return ""
}

// compilerRuns says whether an option makes a compiler or a linker start a
// program or load a library.
func compilerRuns(name, w string) bool {
	w = strings.TrimPrefix(w, "-Wl,")
	switch {
	case strings.HasPrefix(w, "@"): // its words stand in a file
		return true
	case !strings.HasPrefix(w, "-"):
		return name == "ar" && strings.HasPrefix(w, "plugin")
	}
	o := strings.TrimLeft(w, "-")
	for _, p := range []string{"wrapper", "fplugin", "specs", "load", "plugin", "fpass-plugin", "ld-path", "config", "ccbin", "compiler-bindir", "run", "no-integrated-cpp"} {
		if strings.HasPrefix(o, p) {
			return true
		}
	}
	return strings.Contains(w, "plugin") || strings.HasPrefix(o, "fuse-ld=") && strings.Contains(o, "/") ||
		strings.HasPrefix(w, "-B") && !strings.HasPrefix(name, "l")
}

// makesOfInput says whether the Makefile is make's input, or another stream.
func makesOfInput(argv []string) bool {
	stream := func(f string) bool {
		return f == "-" || strings.HasPrefix(f, "/dev/") || strings.HasPrefix(f, "/proc/")
	}
	for i := 1; i < len(argv); i++ {
		w := argv[i]
		next := argv[min(i+1, len(argv)-1)]
		key, val, has := strings.Cut(w, "=")
		switch {
		case len(key) > 3 && (shortens(key, "--file") || shortens(key, "--makefile")):
			if has && stream(val) || !has && stream(next) {
				return true
			}
		case strings.HasPrefix(w, "--"):
		case strings.HasPrefix(w, "-"):
			// One letter may stand behind others.
			if j := strings.IndexByte(w, 'f'); j > 0 && (stream(w[j+1:]) || j+1 == len(w) && stream(next)) {
				return true
			}
		}
	}
	return false
}

// sqliteRuns says whether a text for sqlite3 has a command that is more than
// SQL, or a function that loads code or starts an editor.
func sqliteRuns(w string) bool {
	l := strings.ToLower(w)
	if strings.Contains(l, "load_extension") || strings.Contains(l, "edit(") || strings.Contains(l, "shellfs") || strings.Contains(l, "install ") {
		return true
	}
	for line := range strings.Lines(l) {
		f := strings.Fields(line)
		if len(f) == 0 || !strings.HasPrefix(f[0], ".") || len(f[0]) < 2 {
			continue
		}
		if !hasWord(".tables .schema .dump .mode .headers .header .exit .quit .help .indexes .databases .fullschema .stats .timer .width .separator .nullvalue .echo .bail", f[0]) || strings.Contains(line, "|") {
			return true
		}
	}
	return false
}

// mysqlRuns says whether a text for a client of a database has a command of the
// client that starts a program or reads more from a file.
func mysqlRuns(w string) bool {
	for _, c := range []string{`\!`, `\.`, `\P`, `\e`} {
		if strings.Contains(w, c) {
			return true
		}
	}
	l := strings.ToLower(w)
	for _, c := range []string{"system ", "source ", "pager ", "--pager", "--init-file", "--init-command", "--plugin-dir", "--plugin_dir", "--defaults", "edit"} {
		if i := strings.Index(l, c); i == 0 || i > 0 && strings.IndexByte(" ;\n\t=", l[i-1]) >= 0 {
			return true
		}
	}
	return false
}

// Interprets says that a command runs the code that its words or its input name:
// a shell or another interpreter, also with a file, and what builds and starts a
// program of the task's files at once. A rule about commands cannot tell what
// that does.
func Interprets(s task.Simple) bool {
	if interpreterOf(s.Program) != nil {
		return s.RunsCode
	}
	if compiler(s.Program) != "" {
		return s.Partial // one of its words may name a plug-in
	}
	has := func(list string) bool {
		return slices.ContainsFunc(s.Argv[min(len(s.Argv), 1):], func(w string) bool {
			key, _, _ := strings.Cut(w, "=")
			return hasWord(list, key)
		})
	}
	short := func(letter string) bool {
		return slices.ContainsFunc(s.Argv[min(len(s.Argv), 1):], func(w string) bool {
			return strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "--") && strings.Contains(w, letter)
		})
	}
	verb := ""
	if p := programs()[s.Program]; p != nil {
		verb, _ = p.verb(s.Argv)
	}
	switch s.Program {
	case "go":
		return hasWord("run generate tool", verb) || s.Partial && verb == ""
	case "cargo":
		return hasWord("run r xtask", verb)
	case "dotnet", "swift", "zig":
		return has("run")
	case "pip", "pip3", "pipx", "easy_install", "uv":
		return has("install wheel download run sync inject") && (s.Partial || slices.ContainsFunc(s.Argv[1:], localPackage))
	case "psql":
		return !short("c") && !short("l") && !has("--command --list --version --help") || short("f") || has("--file")
	case "mysql", "mariadb":
		return s.Partial || !short("e") && !has("--execute --version --help")
	case "sqlite3", "sqlite", "duckdb":
		words := 0
		for _, w := range s.Argv[min(len(s.Argv), 1):] {
			if !strings.HasPrefix(w, "-") {
				words++
			}
		}
		return s.Partial || words < 2 && !has("-version --version -help --help")
	case "gs", "ghostscript":
		return true
	}
	return false
}

// localPackage says whether a word for pip names a package of the task's files,
// whose setup runs.
func localPackage(w string) bool {
	if w == "-e" || w == "--editable" || strings.HasPrefix(w, "--editable=") || strings.HasPrefix(w, "-e.") || strings.HasPrefix(w, "-e/") {
		return true
	}
	if strings.HasPrefix(w, "-") || strings.Contains(w, "://") {
		return strings.HasPrefix(w, "file:")
	}
	return strings.HasPrefix(w, ".") || strings.HasPrefix(w, "/") || strings.HasPrefix(w, "~") || strings.Contains(w, "/") || strings.HasSuffix(w, ".whl") || strings.HasSuffix(w, ".tar.gz") || strings.HasSuffix(w, ".zip")
}
