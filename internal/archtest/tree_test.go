package archtest

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/caisson-dev/caisson"

// file is one Go file of the tree.
type file struct {
	path    string // slash-separated, relative to the root
	test    bool
	ast     *ast.File
	src     []byte
	imports []string
}

// pkg is one folder with Go files.
type pkg struct {
	dir   string // "." for the root
	files []*file
}

// tree is what the rules look at.
type tree struct {
	fset *token.FileSet
	pkgs []*pkg            // sorted by dir
	text map[string][]byte // every text file, Go included
}

var textExt = []string{".go", ".md", ".sh", ".txtar", ".txt", ".yaml", ".yml", ".json", ".mod", ".c", ".py", ".js"}

// load reads every text file below the root of fsys. Folders that hold what a
// build or a tool made are left out.
func load(fsys fs.FS) (*tree, error) {
	tr := &tree{fset: token.NewFileSet(), text: map[string][]byte{}}
	byDir := map[string]*pkg{}
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch {
			case p == ".git" || p == "bin" || p == ".cache" || p == "internal/workerbin/bin" || d.Name() == "vendor":
				return fs.SkipDir
			}
			return nil
		}
		plain := path.Ext(p) == "" && (path.Dir(p) == "." || path.Dir(p) == ".ci")
		if !d.Type().IsRegular() || !plain && !slices.Contains(textExt, path.Ext(p)) {
			return nil
		}
		b, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}
		tr.text[p] = b
		if path.Ext(p) != ".go" || strings.Contains("/"+p, "/testdata/") {
			return nil
		}
		f, err := parser.ParseFile(tr.fset, p, b, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(p)
		if byDir[dir] == nil {
			byDir[dir] = &pkg{dir: dir}
			tr.pkgs = append(tr.pkgs, byDir[dir])
		}
		fl := &file{path: p, test: strings.HasSuffix(p, "_test.go"), ast: f, src: b}
		for _, im := range f.Imports {
			s, _ := strconv.Unquote(im.Path.Value)
			fl.imports = append(fl.imports, s)
		}
		byDir[dir].files = append(byDir[dir].files, fl)
		return nil
	})
	slices.SortFunc(tr.pkgs, func(a, b *pkg) int { return strings.Compare(a.dir, b.dir) })
	return tr, err
}

// program yields the files that end up in programs, with their package.
func (tr *tree) program(yield func(*pkg, *file) bool) {
	for _, p := range tr.pkgs {
		for _, f := range p.files {
			if !f.test && !yield(p, f) {
				return
			}
		}
	}
}

// ours returns the folder of an import path of this module.
func ours(imp string) (dir string, ok bool) {
	if imp == module {
		return ".", true
	}
	return strings.CutPrefix(imp, module+"/")
}

// foreign reports whether an import path is neither ours nor the standard library's.
func foreign(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	_, own := ours(imp)
	return !own && strings.Contains(first, ".")
}

// below reports whether dir is root or lies under it.
func below(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }

// named returns the package name under which f can use the import path, "" when it does not import it.
func (f *file) named(imp string) string {
	for _, im := range f.ast.Imports {
		if s, _ := strconv.Unquote(im.Path.Value); s == imp {
			if im.Name != nil {
				return im.Name.Name
			}
			return path.Base(imp)
		}
	}
	return ""
}

// codeLines counts lines that hold more than blanks and comments.
func codeLines(src []byte) int {
	fset := token.NewFileSet()
	f := fset.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(f, src, nil, 0) // without comments
	lines := map[int]bool{}
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue
		}
		first := f.Line(pos)
		for l := first; l <= first+strings.Count(lit, "\n"); l++ {
			lines[l] = true
		}
	}
}

// root finds the folder of go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above this test")
		}
		dir = up
	}
}
