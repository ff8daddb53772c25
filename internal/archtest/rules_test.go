package archtest

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxCode is the most lines of code one file may have.
const maxCode = 500

// checkPackageComments wants, on every system a package is built for, one
// package comment with its charter and its limit.
func checkPackageComments(tr *tree) (bad []string) {
	for _, p := range tr.pkgs {
		onlyTests := !slices.ContainsFunc(p.files, func(f *file) bool { return !f.test })
		for _, goos := range []string{"linux", "darwin", "windows"} {
			files := 0
			var in []string
			for _, f := range p.files {
				if f.test != onlyTests || !f.builds(goos) {
					continue
				}
				files++
				if f.ast.Doc == nil {
					continue
				}
				in = append(in, f.path)
				if !strings.Contains(f.ast.Doc.Text(), "Its limit:") {
					bad = append(bad, f.path+`: the package comment has no "Its limit:" sentence`)
				}
			}
			switch {
			case files > 0 && len(in) == 0:
				bad = append(bad, fmt.Sprintf("%s: no package comment on %s", p.dir, goos))
			case len(in) > 1:
				bad = append(bad, fmt.Sprintf("%s: package comments in %s on %s", p.dir, strings.Join(in, " and "), goos))
			}
		}
	}
	slices.Sort(bad)
	return slices.Compact(bad)
}

// builds reports whether f is compiled for goos on amd64.
func (f *file) builds(goos string) bool {
	name := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.path), ".go"), "_test")
	for _, os := range []string{"linux", "darwin", "windows"} {
		if os != goos && (strings.HasSuffix(name, "_"+os) || strings.Contains(name, "_"+os+"_")) {
			return false
		}
	}
	for line := range strings.Lines(string(f.src)) {
		if strings.HasPrefix(line, "package ") {
			break
		}
		if x, err := constraint.Parse(strings.TrimSpace(line)); err == nil && constraint.IsGoBuild(line) {
			return x.Eval(func(tag string) bool {
				return tag == goos || tag == "amd64" || tag == "unix" && goos != "windows"
			})
		}
	}
	return true
}

func checkFileSize(tr *tree) (bad []string) {
	for _, p := range tr.pkgs {
		for _, f := range p.files {
			if n := codeLines(f.src); n > maxCode {
				bad = append(bad, fmt.Sprintf("%s: %d lines of code, at most %d; split it by verb", f.path, n, maxCode))
			}
		}
	}
	return bad
}

// starters are the functions that make processes or replace the running one.
var starters = map[string][]string{
	"os/exec":               {"Command", "CommandContext"},
	"os":                    {"StartProcess"},
	"syscall":               {"ForkExec", "StartProcess", "Exec"},
	"golang.org/x/sys/unix": {"Exec", "Execve"},
}

// mayStart lists the packages whose program files may start processes, and why.
var mayStart = map[string]string{
	gitRoom:                              "the one invoker of git",
	"internal/backend/linux":             "starts the worker",
	"internal/backend/oci":               "starts the runtime",
	"internal/backend/linux/stage":       "the worker starts the tool space",
	"internal/backend/internal/idmapped": "holds a user namespace by a process while its map is used",
	"internal/worker/inside":             "starts the tools",
	"internal/probe":                     "attempts from inside what must be impossible",
	"internal/door/cli":                  "the person's pager; what says that a person accepts: sudo, ssh-keygen",
	"internal/verify":                    "uses caisson as a person would, and starts the controls",
	"internal/verify/attack":             "attempts that need a process of their own",
	"internal/wire":                      "re-executes the program as supervisor",
	"cmd/caisson":                        "takes the worker's roles where none is embedded",
	"bench":                              "measures programs",
	"test/harness":                       "starts the product, as a user would",
}

// gitRoom is the one package that starts git.
const gitRoom = "internal/source/git"

// starts reports a call of one of the starters, and its arguments.
func (f *file) starts(n ast.Node) (name string, args []ast.Expr) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", nil
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", nil
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", nil
	}
	for imp, funcs := range starters {
		if f.named(imp) == x.Name && slices.Contains(funcs, sel.Sel.Name) {
			return x.Name + "." + sel.Sel.Name, call.Args
		}
	}
	return "", nil
}

func isGit(e ast.Node) bool {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return false
	}
	s, _ := strconv.Unquote(lit.Value)
	return path.Base(s) == "git" && !strings.ContainsAny(s, " \n")
}

// checkProcesses says who may start processes and that only one room starts git.
func checkProcesses(tr *tree) (bad []string) {
	for p, f := range tr.program {
		if _, ok := mayStart[p.dir]; !ok && f.named("os/exec") != "" {
			bad = append(bad, f.path+": may not import os/exec; the packages that may are listed in internal/archtest")
		}
		gitNames := map[string]bool{} // constants and variables that hold "git"
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok {
				for i, val := range v.Values {
					if i < len(v.Names) && isGit(val) {
						gitNames[v.Names[i].Name] = true
					}
				}
			}
			return true
		})
		ast.Inspect(f.ast, func(n ast.Node) bool {
			name, args := f.starts(n)
			if name == "" {
				return true
			}
			if _, ok := mayStart[p.dir]; !ok {
				bad = append(bad, fmt.Sprintf("%s: may not call %s", tr.at(n), name))
			}
			for _, a := range args[:min(2, len(args))] {
				id, _ := a.(*ast.Ident)
				if p.dir != gitRoom && (isGit(a) || id != nil && gitNames[id.Name]) {
					bad = append(bad, fmt.Sprintf("%s: only %s starts git", tr.at(n), gitRoom))
				}
			}
			return true
		})
	}
	return bad
}

func (tr *tree) at(n ast.Node) string {
	pos := tr.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", pos.Filename, pos.Line)
}

// checkSkips wants a reason in every skip, so that a run can print what it did not test.
func checkSkips(tr *tree) (bad []string) {
	for _, p := range tr.pkgs {
		for _, f := range p.files {
			if f.named("testing") == "" {
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				empty := len(call.Args) == 0
				if !empty {
					lit, ok := call.Args[0].(*ast.BasicLit)
					empty = ok && len(strings.TrimSpace(strings.Trim(lit.Value, "\"`"))) == 0
				}
				switch sel.Sel.Name {
				case "SkipNow":
					bad = append(bad, tr.at(n)+": SkipNow gives no reason; use Skip with one")
				case "Skip", "Skipf":
					if empty {
						bad = append(bad, tr.at(n)+": a skip without a reason")
					}
				}
				return true
			})
		}
	}
	return bad
}

// forbidden are words that name a machine, a service or unfinished work. The
// patterns are written so that they do not match themselves.
var forbidden = []struct {
	what string
	re   *regexp.Regexp
}{
	{"a folder of one machine", regexp.MustCompile(`/(wor[k]|far[m])/|/tm[p]/(team|tt|research|bash_jobs)|\.librar[y]\b`)},
	{"a host of a package registry", regexp.MustCompile(`proxy\.golan[g]|registry\.npmj[s]|deb\.debia[n]|pypi\.or[g]|index\.docke[r]`)},
	{"an unfinished mark", regexp.MustCompile(`\b(TOD[O]|FIXM[E]|XX[X]|unimplemente[d])\b`)},
}

// registriesFile is the one list of registries: what a policy that nobody wrote
// lets a repository ask for.
const registriesFile = "internal/policy/registries.go"

func checkWords(tr *tree) (bad []string) {
	for p, b := range tr.text {
		if p == "LICENSE" || p == "go.sum" || p == registriesFile {
			continue
		}
		for i, line := range strings.Split(string(b), "\n") {
			for _, w := range forbidden {
				if m := w.re.FindString(line); m != "" {
					bad = append(bad, fmt.Sprintf("%s:%d: %q is %s", p, i+1, m, w.what))
				}
			}
		}
	}
	slices.Sort(bad)
	return bad
}

var (
	requireLine = regexp.MustCompile(`(?m)^\s*(?:require )?([a-z][^\s()]*\.[^\s()]*/[^\s()]+) (v[^\s]+)`)
	depsLine    = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (v[^ |]+) ")
)

// checkDependencies holds docs/dependencies.md against go.mod, both ways.
func checkDependencies(tr *tree) (bad []string) {
	const doc = "docs/dependencies.md"
	listed := map[string]string{}
	for _, m := range depsLine.FindAllStringSubmatch(string(tr.text[doc]), -1) {
		listed[m[1]] = m[2]
	}
	required := map[string]bool{}
	for _, m := range requireLine.FindAllStringSubmatch(string(tr.text["go.mod"]), -1) {
		mod, v := m[1], m[2]
		required[mod] = true
		switch {
		case listed[mod] == "":
			bad = append(bad, fmt.Sprintf("go.mod: %s %s has no line in %s", mod, v, doc))
		case listed[mod] != v:
			bad = append(bad, fmt.Sprintf("%s: %s is at %s there, at %s in go.mod", doc, mod, listed[mod], v))
		}
	}
	for mod := range listed {
		if !required[mod] {
			bad = append(bad, fmt.Sprintf("%s: %s is not in go.mod", doc, mod))
		}
	}
	slices.Sort(bad)
	return bad
}

var mdLink = regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`)

// checkLinks wants a file behind every relative link of the documents.
func checkLinks(tr *tree) (bad []string) {
	for p, b := range tr.text {
		if path.Ext(p) != ".md" {
			continue
		}
		for _, m := range mdLink.FindAllStringSubmatch(string(b), -1) {
			to := path.Join(path.Dir(p), m[1])
			if _, ok := tr.text[to]; ok {
				continue
			}
			folder := slices.ContainsFunc(slices.Collect(maps.Keys(tr.text)), func(f string) bool { return below(f, to) })
			if !folder {
				bad = append(bad, fmt.Sprintf("%s: the link to %s leads nowhere", p, m[1]))
			}
		}
	}
	slices.Sort(bad)
	return bad
}
