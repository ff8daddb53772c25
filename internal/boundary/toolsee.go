package boundary

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// What the host sees of a file that a call names.
const (
	seenFile    = "file"
	seenAbsent  = "absent"
	seenFolder  = "folder"
	seenLink    = "link" // the path is, or passes, a symbolic link
	seenSpecial = "special"
	seenNot     = "unseen" // not on the host's side
)

// maxHashed bounds a file of which the host makes a digest, maxShown one of
// which it shows the difference that a call makes.
const (
	maxHashed = 64 << 20
	maxShown  = 1 << 20
)

// looking is how closely a file is read.
type looking int

const (
	lookKind looking = iota // what it is
	lookSum                 // and its digest
	lookText                // and its content
)

// seen is one file as the host read it.
type seen struct {
	task.FileState
	// ident tells the very file from another with the same content, under the
	// same name or by another.
	ident string
	text  []byte // of a small file, where it was asked for
}

// look reads what is at a path of the inside, through the host's own view of the
// task's files. It follows no link: where a path leads through one, it says so.
func (l *live) look(path string, how looking) seen {
	s := seen{FileState: task.FileState{Path: path, State: seenNot}}
	for _, m := range []backend.Mount{l.spec.Source, l.spec.Out} {
		if path == m.Target {
			s.State = seenFolder
			return s
		}
		rel, ok := strings.CutPrefix(path, m.Target+"/")
		if !ok || m.Target == "" || l.overlaid(path, m) {
			continue
		}
		root, err := tree.OpenUser(m.Source)
		if err != nil {
			return s
		}
		defer root.Close()
		s.read(root, rel, how)
		return s
	}
	return s
}

// overlaid reports whether something else than m is at path inside: a mount in
// it, or what covers a part of it.
func (l *live) overlaid(path string, m backend.Mount) bool {
	below := func(p string) bool { return p != m.Target && (path == p || strings.HasPrefix(path, p+"/")) }
	for _, c := range m.Cover {
		if below(filepath.Join(m.Target, c)) {
			return true
		}
	}
	for _, list := range [][]backend.Mount{l.spec.Objects, l.spec.RO, l.spec.Tools, {l.spec.Source, l.spec.Out}} {
		for _, o := range list {
			if len(o.Target) > len(m.Target) && below(o.Target) {
				return true
			}
		}
	}
	return false
}

func (s *seen) read(root *tree.Root, rel string, how looking) {
	i, err := root.Stat(rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.State = seenAbsent
		return
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENOTDIR):
		// On the way is a link, or a file.
		s.State = seenLink
		return
	case err != nil:
		return
	}
	s.ident = fmt.Sprintf("%d:%d %o", i.Dev, i.Ino, i.Mode)
	switch i.Kind {
	case tree.File:
	case tree.Dir:
		s.State = seenFolder
		return
	case tree.Link:
		s.State = seenLink
		return
	default:
		s.State = seenSpecial
		return
	}
	if s.State, s.Size = seenFile, i.Size; how == lookKind {
		return
	}
	f, i, err := root.Open(rel)
	if err != nil {
		s.State = seenNot // it may not be read, or was exchanged just now
		return
	}
	defer f.Close()
	s.ident, s.Size = fmt.Sprintf("%d:%d %o", i.Dev, i.Ino, i.Mode), i.Size
	if i.Size > maxHashed {
		// Its times instead: every write changes one of them.
		s.ident += fmt.Sprintf(" %d.%d %d.%d", i.MtimeS, i.MtimeN, i.CtimeS, i.CtimeN)
		return
	}
	sum := sha256.New()
	var keep strings.Builder
	to := io.Writer(sum)
	if how == lookText && i.Size <= maxShown {
		to = io.MultiWriter(sum, &keep)
	}
	n, err := io.Copy(to, io.LimitReader(f, maxHashed+1))
	if err != nil || n > maxHashed {
		s.State = seenNot
		return
	}
	s.Size, s.SHA256 = n, hex.EncodeToString(sum.Sum(nil))
	if how == lookText && i.Size <= maxShown {
		s.text = []byte(keep.String())
	}
}

// same reports whether a file is what it was.
func (s *seen) same(o *seen) bool {
	return s.FileState == o.FileState && s.ident == o.ident
}

// maxNames bounds the files that one command can name.
const maxNames = 64

// lookAll reads every file that a call names, its program and its arguments
// among them.
func (l *live) lookAll(k *toolCall) []seen {
	var out []seen
	for _, p := range k.names {
		how := lookSum
		if k.writes() {
			how = lookText
		}
		out = append(out, l.look(p, how))
	}
	a, ok := k.args.(*contract.ShellArgs)
	if !ok {
		return out
	}
	words := a.Argv
	if a.Command != "" {
		words = strings.FieldsFunc(a.Command, func(r rune) bool { return strings.ContainsRune(" \t\n;|&<>()'\"`$={}", r) })
	}
	had := map[string]bool{}
	for _, w := range words {
		p := w
		if !filepath.IsAbs(p) {
			p = filepath.Join(k.dir, p)
		}
		if p = filepath.Clean(p); had[p] || w == "" || len(p) > contract.MaxPath || len(had) == maxNames {
			continue
		}
		had[p] = true
		if s := l.look(p, lookSum); s.State == seenFile || s.State == seenLink {
			out = append(out, s)
		}
	}
	return out
}

// writes reports whether the tool changes the file that it names.
func (k *toolCall) writes() bool {
	switch k.tool {
	case contract.WriteFile, contract.EditFile, contract.NotebookEdit:
		return true
	}
	return false
}

// reads reports whether the tool changes nothing, on the disk or in a process: all
// that it does is its answer.
func (k *toolCall) reads() bool {
	switch k.tool {
	case contract.ReadFile, contract.ListDir, contract.Glob, contract.Grep:
		return true
	}
	return false
}

// unsure reports whether a path that the call names leads through a link, so
// that what it names has another name too.
func (l *live) unsure(k *toolCall) bool {
	for _, p := range k.names {
		if l.look(p, lookKind).State == seenLink {
			return true
		}
	}
	return false
}

// states is what of them is shown and recorded.
func states(files []seen) []task.FileState {
	var out []task.FileState
	for _, s := range files {
		out = append(out, s.FileState)
	}
	return out
}

// sawAfter adds what a file is now to what was read of it before.
func (l *live) sawAfter(k *toolCall, res *task.ToolResult) {
	for i := range res.Observed.Files {
		f := &res.Observed.Files[i]
		if now := l.look(f.Path, lookSum); now.State == seenFile {
			f.After = now.SHA256
		}
	}
}
