package detect

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// body analyses the script that a command names, where the caller can show the
// file it stands in.
func (a *analyser) body(name string, argv []string) {
	if a.look == nil || a.dir == ".." || len(argv) == 0 {
		return
	}
	switch name {
	case "npm", "pnpm", "yarn", "bun", "cnpm":
		a.packageScript(name, argv)
	case "composer":
		if len(argv) > 2 && (argv[1] == "run" || argv[1] == "run-script" || argv[1] == "exec") {
			a.scriptOf("composer.json", argv[2])
		}
	case "make", "gmake", "bmake":
		a.target(argv, []string{"GNUmakefile", "makefile", "Makefile"}, recipes)
	case "just":
		a.target(argv, []string{"justfile", "Justfile", ".justfile"}, justRecipes)
	case "task":
		a.target(argv, []string{"Taskfile.yml", "Taskfile.yaml", "taskfile.yml", "taskfile.yaml"}, taskRecipes)
	}
}

// open returns a file beside the command, and its name from the top.
func (a *analyser) open(name string) ([]byte, string) {
	p := path.Clean(path.Join(a.dir, name))
	if p == ".." || strings.HasPrefix(p, "../") || path.IsAbs(p) {
		return nil, p
	}
	b := a.look(p)
	if len(b) > maxFile {
		return nil, p
	}
	return b, p
}

// inFile analyses a script that stands in a file.
func (a *analyser) inFile(text, file, what string, line int) {
	key := file + "\x00" + what + "\x00" + strconv.Itoa(line)
	if a.scripts[key] || a.depth >= maxDepth {
		return
	}
	if a.scripts == nil {
		a.scripts = map[string]bool{}
	}
	a.scripts[key] = true
	was := *a
	a.place, a.base, a.line, a.funcs = task.QuotePath(file), line, 0, nil
	a.depth++
	a.outer = a.depth
	a.script(text)
	a.depth--
	a.place, a.base, a.line, a.funcs, a.outer, a.dir = was.place, was.base, was.line, was.funcs, was.outer, was.dir
}

// packageScript analyses what npm and its kin run of package.json.
func (a *analyser) packageScript(name string, argv []string) {
	p := programs()[name]
	v1, v2 := p.verb(argv)
	for i, w := range argv[:len(argv)-1] {
		if w == "--prefix" || w == "-C" || w == "--dir" || w == "--cwd" {
			was := a.dir
			defer func() { a.dir = was }()
			a.dir = path.Join(a.dir, argv[i+1])
		}
	}
	switch v1 {
	case "":
		if name == "yarn" {
			a.scriptOf("package.json", "preinstall", "install", "postinstall", "prepare")
		}
	case "test", "t", "tst":
		a.scriptOf("package.json", "pretest", "test", "posttest")
	case "start", "stop", "restart":
		a.scriptOf("package.json", "pre"+v1, v1, "post"+v1)
	case "run", "run-script", "rum", "urn":
		if v2 != "" {
			a.scriptOf("package.json", "pre"+v2, v2, "post"+v2)
		}
	case "install", "i", "ci", "add", "update", "rebuild", "install-test", "it":
		a.scriptOf("package.json", "preinstall", "install", "postinstall", "prepare")
	case "publish", "pack":
		a.scriptOf("package.json", "prepublishOnly", "prepack", "prepare", "postpack", "publish", "postpublish")
	default:
		if name != "npm" {
			a.scriptOf("package.json", "pre"+v1, v1, "post"+v1)
		}
	}
}

// scriptOf analyses scripts of a manifest in JSON, by their names.
func (a *analyser) scriptOf(manifest string, names ...string) {
	b, file := a.open(manifest)
	if b == nil {
		return
	}
	n, err := parseJSON(b)
	if err != nil {
		a.opaque(manifest + " cannot be parsed")
		return
	}
	for _, s := range names {
		for _, c := range n.get("scripts", s).scalars() {
			a.inFile(c.str, file, s, c.line)
		}
	}
}

// target analyses the recipes of the targets that a command names, and of those
// they need.
func (a *analyser) target(argv []string, names []string, read func([]byte) []recipe) {
	var want []string
	for i := 1; i < len(argv); i++ {
		w := argv[i]
		switch {
		case w == "-C" || w == "--directory" || w == "-d" || w == "--working-directory":
			if i++; i < len(argv) {
				was := a.dir
				defer func() { a.dir = was }()
				a.dir = path.Join(a.dir, argv[i])
			}
		case w == "-f" || w == "--file" || w == "--makefile" || w == "--justfile" || w == "-t" || w == "--taskfile":
			if i++; i < len(argv) {
				names = []string{argv[i]}
			}
		case strings.HasPrefix(w, "--file="), strings.HasPrefix(w, "--makefile="):
			_, f, _ := strings.Cut(w, "=")
			names = []string{f}
		case len(w) > 2 && strings.HasPrefix(w, "-f"):
			names = []string{w[2:]}
		case strings.HasPrefix(w, "-") || strings.Contains(w, "="):
		default:
			want = append(want, w)
		}
	}
	for _, n := range names {
		b, file := a.open(n)
		if b == nil {
			continue
		}
		rs := read(b)
		if len(want) == 0 && len(rs) > 0 {
			want = []string{rs[0].target}
		}
		for i := 0; i < len(want) && i < 100; i++ {
			for _, r := range rs {
				if !slices.Contains(strings.Fields(r.target), want[i]) {
					continue
				}
				for _, need := range strings.Fields(r.needs) {
					if !slices.Contains(want, need) {
						want = append(want, need)
					}
				}
				if r.text != "" {
					a.inFile(r.text, file, r.target, r.line)
				}
			}
		}
		return
	}
}

// file analyses a script of the repository that a command starts by its name.
func (a *analyser) file(name string) {
	if a.look == nil || a.dir == ".." || path.IsAbs(name) {
		return
	}
	b, p := a.open(name)
	if b == nil {
		return
	}
	first, _, _ := strings.Cut(string(b[:min(len(b), 200)]), "\n")
	if strings.HasPrefix(first, "#!") && strings.Contains(first, "sh") || !strings.HasPrefix(first, "#!") && strings.HasSuffix(name, "sh") {
		a.inFile(string(b), p, "", 1)
	}
}
