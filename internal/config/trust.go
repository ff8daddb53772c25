package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Trusting are the names of files and folders of a repository on which a
// person's trust in it rests: what they say decides what runs, or what may be
// asked for. A change of one ends the trust.
var Trusting = []string{
	ProjectFile, ".envrc", ".mcp.json", ".claude/settings.json", ".claude/agents", ".codex/config.toml", ".codex/agents",
	".gemini/settings.json", ".gemini/agents", ".qwen/settings.json", ".qwen/agents", ".devcontainer/devcontainer.json", ".devcontainer.json",
	".claude/settings.local.json", ".vscode/tasks.json", ".vscode/settings.json", ".vscode/mcp.json", ".cursor/mcp.json", "mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml",
}

// TrustingBelow are those that count in every folder: what tools read there that
// come upon it.
var TrustingBelow = []string{".envrc", ".mcp.json", "mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml"}

// Has says whether there is a word about a repository at all.
func (s TrustStore) Has(commonDir string) bool {
	_, err := os.Lstat(s.path(commonDir))
	return commonDir != "" && !errors.Is(err, fs.ErrNotExist)
}

// maxTrusting bounds one of those files, in bytes.
const maxTrusting = MaxFile

// trustSchema names a record of trust.
const trustSchema = "caisson.trusted/1"

// gone stands for a file that is not there.
const gone = "absent"

// Trust is a person's word about one repository: that they know its code.
type Trust struct {
	Schema    string    `json:"schema"`
	Repo      string    `json:"repo"`       // top of the checkout where it was said
	CommonDir string    `json:"common_dir"` // the repository's git directory
	Inode     uint64    `json:"inode"`      // of that: another repository in its place is not this one
	Time      time.Time `json:"time"`
	// Files hold the digests that each file had when somebody said so; "absent"
	// is one of them.
	Files map[string][]string `json:"files"`
}

// Subject is the repository that a word of trust is about, as it is now.
type Subject struct {
	Repo      string
	CommonDir string
	Inode     uint64
	// Files are the contents of Trusting, of the base and of the checkout.
	Files []map[string][]byte
	// Digests are theirs; nil: they are taken of Files.
	Digests []map[string]string
	// Below: the files of TrustingBelow are among them.
	Below bool
}

func (x *Subject) digests() []map[string]string {
	if x.Digests != nil {
		return x.Digests
	}
	out := make([]map[string]string, len(x.Files))
	for i, files := range x.Files {
		out[i] = map[string]string{}
		for name, content := range files {
			out[i][name] = fileDigest(content)
		}
	}
	return out
}

// TrustStore keeps them, one file for each repository.
type TrustStore struct{ Dir string }

func (s TrustStore) path(commonDir string) string {
	sum := sha256.Sum256([]byte(commonDir))
	return filepath.Join(s.Dir, hex.EncodeToString(sum[:16])+".json")
}

// Look says since when the repository is trusted, and which files ended that.
// Not trusted is nil and no files.
func (s TrustStore) Look(x Subject) (since *Trust, changed []string, err error) {
	t, err := s.read(s.path(x.CommonDir))
	if err != nil || t == nil || t.CommonDir != x.CommonDir || t.Inode != x.Inode {
		return nil, nil, err
	}
	seen, unknown := map[string]bool{}, false
	for _, files := range x.digests() {
		for name, digest := range files {
			seen[name] = true
			if !slices.Contains(t.Files[name], digest) {
				changed = append(changed, name)
			}
		}
	}
	for name, known := range t.Files {
		if !seen[name] && !slices.Contains(known, gone) {
			if !x.Below && strings.Contains(name, "/") && slices.Contains(TrustingBelow, path.Base(name)) {
				unknown = true
				continue
			}
			changed = append(changed, name)
		}
	}
	if sort.Strings(changed); len(changed) > 0 {
		return nil, slices.Compact(changed), nil
	}
	if unknown { // whether it is as it was nobody knows: neither trusted nor ended
		return nil, nil, nil
	}
	return t, nil, nil
}

// Grant records that a person trusts the repository with its files as they are.
// What was trusted before of it stays so.
func (s TrustStore) Grant(x Subject, now time.Time) (*Trust, error) {
	if x.CommonDir == "" {
		return nil, task.Errorf(task.CodeUnsupported, "config.trust", "only a git repository can be trusted for longer").WithHint("say --trust with the task")
	}
	t, err := s.read(s.path(x.CommonDir))
	if err != nil || t == nil || t.CommonDir != x.CommonDir || t.Inode != x.Inode {
		t = &Trust{Files: map[string][]string{}} // one that cannot be read is written anew
	}
	t.Schema, t.Repo, t.CommonDir, t.Inode, t.Time = trustSchema, x.Repo, x.CommonDir, x.Inode, now.UTC()
	names, found := map[string]bool{}, x.digests()
	for _, files := range found {
		for n := range files {
			names[n] = true
		}
	}
	for n := range t.Files {
		names[n] = true
	}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		for _, files := range found {
			d := gone
			if digest, there := files[n]; there {
				d = digest
			}
			if !slices.Contains(t.Files[n], d) {
				t.Files[n] = append(t.Files[n], d)
			}
		}
	}
	if err := sys.PrivateDir(s.Dir); err != nil {
		return nil, s.broken(s.Dir, err)
	}
	b, err := json.Marshal(t)
	if err == nil {
		err = sys.WriteFile(s.path(x.CommonDir), append(b, '\n'), 0o600)
	}
	if err != nil {
		return nil, s.broken(s.Dir, err)
	}
	return t, nil
}

// Revoke takes the word back; false when there was none.
func (s TrustStore) Revoke(commonDir string) (bool, error) {
	err := os.Remove(s.path(commonDir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, s.broken(s.Dir, err)
	}
	return true, sys.SyncDir(s.Dir)
}

// List returns all of them, by repository.
func (s TrustStore) List() ([]Trust, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, s.broken(s.Dir, err)
	}
	out := []Trust{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		if t, err := s.read(filepath.Join(s.Dir, e.Name())); err == nil && t != nil {
			out = append(out, *t)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Repo < out[j].Repo })
	return out, nil
}

func (s TrustStore) read(name string) (*Trust, error) {
	b, err := sys.ReadTrusted(name, 4<<20, os.Geteuid())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	t := &Trust{}
	if err == nil {
		err = json.Unmarshal(b, t)
	}
	if err == nil && t.Schema != trustSchema {
		err = errors.New("it is of another version")
	}
	if err != nil {
		return nil, s.broken(name, err)
	}
	return t, nil
}

func (s TrustStore) broken(name string, err error) error {
	return task.Errorf(task.CodeStateStore, "config.trust", "the record of trusted repositories %s cannot be used: %w", name, err).
		WithHint("remove it, and say `caisson trust` again")
}

func fileDigest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
