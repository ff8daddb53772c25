package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// ProjectFile is the name of a repository's policy file, at its top.
const ProjectFile = ".caisson.yaml"

// Places are where the files of a person and of the operator are. The zero
// Places has none.
type Places struct {
	Operator string // folder
	User     string // file
	UID      int    // of the user
	// OperatorUID owns the operator's files beside root; 0 for none.
	OperatorUID int
	// Apart are folders whose content others can write: the state folder, in which
	// the tasks' files lie. A user's file in one of them is not the user's.
	Apart []string
}

// PlacesOf returns the places of an installation. configDir is the user's
// folder for caisson; it may be empty. No variable and no flag names another
// folder of the operator's.
func PlacesOf(configDir string, uid int) Places {
	p := Places{Operator: policy.OperatorDir, UID: uid}
	if configDir != "" {
		p.User = filepath.Join(configDir, "policy.yaml")
	}
	return p
}

// maxFiles bounds the operator's folder.
const maxFiles = 200

// Read reads what the operator and the user wrote. workspace is the repository
// that the work is about, or empty: a user's file that lies in it is another's.
// A folder or file that is not there says nothing; one that cannot be read, or
// that others may change, is an error of code policy_invalid.
func (p Places) Read(workspace string) ([]policy.Sourced, error) {
	out, err := p.operator()
	if err != nil {
		return nil, err
	}
	if p.User == "" {
		return out, nil
	}
	if err := onlyNamed(p.User); err != nil {
		return nil, err
	}
	data, err := sys.ReadTrusted(p.User, MaxFile, p.UID)
	switch {
	case absent(err):
		return out, nil
	case err != nil:
		return nil, unreadable(p.User, err)
	}
	if within(workspacePath(workspace), workspacePath(p.User)) {
		return nil, task.Errorf(task.CodePolicy, "config.user", "your policy file %s lies in the repository %s, whose authors could have written it", p.User, workspace).
			WithHint("set XDG_CONFIG_HOME to a folder outside, or unset it")
	}
	for _, dir := range p.Apart {
		if dir != "" && within(workspacePath(dir), workspacePath(p.User)) {
			return nil, task.Errorf(task.CodePolicy, "config.user", "your policy file %s lies in %s, where tasks can write", p.User, dir).
				WithHint("set XDG_CONFIG_HOME to a folder of your own, or unset it")
		}
	}
	s, err := sourced(task.SourceUser, p.User, data)
	if err != nil {
		return nil, err
	}
	return append(out, s), nil
}

// onlyNamed refuses a file beside the user's whose name is nearly the one that is
// read: whoever wrote it believes that it counts.
func onlyNamed(name string) error {
	entries, err := os.ReadDir(filepath.Dir(name))
	if err != nil {
		return nil // reading the file itself says so
	}
	for _, e := range entries {
		n := strings.ToLower(strings.TrimPrefix(e.Name(), "."))
		if e.Name() != filepath.Base(name) && slices.Contains([]string{"policy.yaml", "policy.yml", "policy.json"}, n) {
			return task.Errorf(task.CodePolicy, "config.user", "%s is not read: only %s is", filepath.Join(filepath.Dir(name), e.Name()), name).
				WithHint("rename it, or move it elsewhere")
		}
	}
	return nil
}

func workspacePath(p string) string {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real
	}
	return p
}

func within(dir, name string) bool {
	if dir == "" {
		return false
	}
	rel, err := filepath.Rel(dir, name)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// operator reads the files of the operator's folder in the order of their names.
func (p Places) operator() ([]policy.Sourced, error) {
	if p.Operator == "" {
		return nil, nil
	}
	owners := []int{}
	if p.OperatorUID != 0 {
		owners = append(owners, p.OperatorUID)
	}
	dir, err := sys.OpenTrusted(p.Operator, owners...)
	switch {
	case absent(err):
		return nil, nil
	case err != nil:
		return nil, unreadable(p.Operator, err)
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, unreadable(p.Operator, err)
	}
	var names []string
	for _, e := range entries {
		n := e.Name()
		switch ext := strings.ToLower(filepath.Ext(n)); {
		case strings.HasSuffix(n, ".yaml") && !strings.HasPrefix(n, "."):
			names = append(names, n)
		case ext == ".yaml" || ext == ".yml" || ext == ".json":
			// Whoever wrote it believes that it counts.
			return nil, task.Errorf(task.CodePolicy, "config.operator", "%s is not read: only files that end with .yaml and do not begin with a dot are", filepath.Join(p.Operator, n)).
				WithHint("rename it, or move it elsewhere")
		}
	}
	if len(names) > maxFiles {
		return nil, task.Errorf(task.CodePolicy, "config.operator", "%s holds more than %d files", p.Operator, maxFiles).WithHint("join some of them")
	}
	sort.Strings(names)
	var out []policy.Sourced
	for _, n := range names {
		name := filepath.Join(p.Operator, n)
		data, err := sys.ReadTrusted(name, MaxFile, owners...)
		if err != nil {
			return nil, unreadable(name, err)
		}
		s, err := sourced(task.SourceOperator, name, data)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func unreadable(name string, err error) error {
	e := task.Errorf(task.CodePolicy, "config.read", "the policy %s cannot be used: %w", name, err)
	switch {
	case errors.Is(err, sys.ErrNotTrusted):
		return e.WithHint("it and the folders above it must belong to the one who decides and be writable by nobody else: chown, chmod go-w")
	case errors.Is(err, sys.ErrTooLong):
		return e.WithHint("a policy file has at most %d KiB", MaxFile>>10)
	case errors.Is(err, os.ErrPermission):
		return e.WithHint("make it readable for you: a policy that cannot be read cannot be kept to")
	}
	return e.WithHint("see docs/policy.md on where policy files are")
}

func sourced(s task.Source, name string, data []byte) (policy.Sourced, error) {
	doc, lines, err := Decode(name, data)
	if err != nil {
		return policy.Sourced{}, err
	}
	return policy.Sourced{Document: doc, Source: s, File: name, Lines: lines}, nil
}

// Project reads a repository's file. base holds it at the revision that the work
// starts from, nil when there is none, and rev names that revision for origins.
// changed is a copy that differs from it, of the checkout, or nil: it counts as
// the task's own words, which can only tighten.
func Project(rev string, base, changed []byte) ([]policy.Sourced, error) {
	var out []policy.Sourced
	for name, data := range map[string][]byte{rev + ":" + ProjectFile: base, ProjectFile: changed} {
		if bytes.HasPrefix(data, []byte(source.Unread)) {
			return nil, task.Errorf(task.CodePolicy, "config.project", "%s is a link, no file, or longer than %d KiB", name, MaxFile>>10).
				WithHint("make it a file of the repository")
		}
	}
	if base != nil {
		s, err := sourced(task.SourceProject, rev+":"+ProjectFile, base)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	if changed != nil && string(changed) != string(base) {
		s, err := sourced(task.SourceTask, ProjectFile, changed)
		if err != nil {
			return nil, err
		}
		// A copy that nobody committed asks for nothing and promises nothing.
		d := s.Document
		d.Request, d.Services, d.Checks, d.Tests = nil, nil, nil, nil
		out = append(out, s)
	}
	return out, nil
}

// File reads any one policy file by its name, as if source had written it. Who
// may change it is not asked: for tests and comparisons.
func File(source task.Source, name string) (policy.Sourced, error) {
	f, err := os.Open(name)
	if err != nil {
		return policy.Sourced{}, task.Errorf(task.CodeNotFound, "config.file", "the policy file cannot be read: %w", err).WithHint("name a file that is there")
	}
	defer f.Close()
	fi, err := f.Stat()
	if err == nil && (!fi.Mode().IsRegular() || fi.Size() > MaxFile) {
		err = fmt.Errorf("it is no file of at most %d KiB", MaxFile>>10)
	}
	if err != nil {
		return policy.Sourced{}, task.Errorf(task.CodePolicy, "config.file", "%s: %w", name, err).WithHint("name a policy file")
	}
	data := make([]byte, fi.Size())
	n, err := f.ReadAt(data, 0)
	if err != nil && n < len(data) {
		data = data[:n]
	}
	return sourced(source, name, data)
}

// Stamp changes when one of the files does that Read reads. It looks at names,
// sizes and times and reads nothing.
func (p Places) Stamp() string {
	var b strings.Builder
	if p.Operator != "" {
		if es, err := os.ReadDir(p.Operator); err == nil {
			for _, e := range es {
				b.WriteString(e.Name())
				stampOf(&b, filepath.Join(p.Operator, e.Name()))
			}
		} else if !absent(err) {
			b.WriteString(err.Error())
		}
	}
	if p.User != "" {
		stampOf(&b, p.User)
	}
	return b.String()
}

// StampOf is the same of some other file or folder.
func StampOf(name string) string {
	var b strings.Builder
	stampOf(&b, name)
	return b.String()
}

func stampOf(b *strings.Builder, name string) {
	i, err := os.Stat(name)
	switch {
	case err == nil:
		fmt.Fprintf(b, ":%d.%d.%o;", i.Size(), i.ModTime().UnixNano(), i.Mode())
	case absent(err):
		b.WriteString(":-;")
	default:
		b.WriteString(":" + err.Error() + ";")
	}
}
