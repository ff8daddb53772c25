//go:build linux

package lifecycle

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// picture is every entry of a tree with mode and content.
type picture map[string]string

func takePicture(t *testing.T, dir string) picture {
	t.Helper()
	p := picture{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		i, err := d.Info()
		if err != nil {
			return err
		}
		text := i.Mode().String()
		switch {
		case i.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(b)
			text += " " + hex.EncodeToString(sum[:8])
			if !strings.HasPrefix(rel, ".git/objects/") { // git freshens those, so that a gc spares them
				text += " " + i.ModTime().String()
			}
		case i.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			text += " -> " + to
		}
		p[rel] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// allowed is what results may add to a repository.
var allowed = regexp.MustCompile(`^\.git/(refs/caisson(/.*)?|objects/pack/pack-[0-9a-f]+\.(pack|idx|rev))$`)

var lockFile = regexp.MustCompile(`(\.lock|\.keep|/tmp_[^/]*)$`)

// changed describes what is not as it was, results apart.
func (p picture) changed(now picture) []string {
	var out []string
	for k, v := range p {
		if n, ok := now[k]; !ok {
			out = append(out, "gone: "+k)
		} else if n != v {
			out = append(out, fmt.Sprintf("changed: %s: %s, now %s", k, v, n))
		}
	}
	for k := range now {
		if _, ok := p[k]; !ok && (!allowed.MatchString(k) || lockFile.MatchString(k)) {
			out = append(out, "new: "+k)
		}
	}
	slices.Sort(out)
	return out
}

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
