package linux

import (
	"io/fs"
	"os"
	"path/filepath"
)

// sights are what a search for toolchains saw of the disk. Its answer stays
// right for as long as all of it looks as it did. The zero pointer sees nothing.
type sights struct {
	listed   map[string]bool   // folders of whose entries the answer depends
	resolved map[string]string // where a path led, as a folder; empty: to none
	asked    map[string]string // what was found at a path; see kindOf
}

func newSights() *sights {
	return &sights{listed: map[string]bool{}, resolved: map[string]string{}, asked: map[string]string{}}
}

// lists notes that the entries of dir matter: their names, types, and where
// links among them lead.
func (s *sights) lists(dir string) {
	if s != nil {
		s.listed[dir] = true
	}
}

func (s *sights) realDir(p string) (string, error) {
	real, err := realDir(p)
	if s != nil {
		if s.resolved[p] = real; err != nil {
			s.resolved[p] = ""
		}
	}
	return real, err
}

func (s *sights) readlink(p string) (string, error) {
	s.lists(filepath.Dir(p))
	return os.Readlink(p)
}

func (s *sights) stat(p string) (fs.FileInfo, error) {
	st, err := os.Stat(p)
	if s != nil {
		s.asked[p] = kindOf(st, err)
	}
	return st, err
}

func (s *sights) glob(pattern string) ([]string, error) {
	s.lists(filepath.Dir(pattern))
	return filepath.Glob(pattern)
}

// kindOf is all that a search wants to know of a path itself.
func kindOf(st fs.FileInfo, err error) string {
	switch {
	case err != nil:
		return "none"
	case st.IsDir():
		return "folder"
	}
	return "file"
}
