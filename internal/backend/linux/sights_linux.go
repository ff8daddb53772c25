package linux

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

const (
	// settled is how long a folder must have been left alone before its times say
	// that it is as it was: two changes within one tick of the file system's clock
	// look like one.
	settled = 3 * time.Second
	// maxSights bounds what is worth comparing instead of searching again.
	maxSights = 4096
)

// RememberedToolchains returns Toolchains with a memory in a file in dir, which
// must be private to the user. An answer is used again when the search was the
// same and every folder whose entries it depends on has the inode and the times
// that it had, every path leads where it led, and this is the same program.
func RememberedToolchains(dir string) func(ctx context.Context, path, home string) ([]backend.Mount, []task.Tool, []task.Finding, error) {
	file := filepath.Join(dir, "toolchains")
	return func(ctx context.Context, path, home string) ([]backend.Mount, []task.Tool, []task.Finding, error) {
		if err := ctx.Err(); err != nil {
			return nil, nil, nil, context.Cause(ctx)
		}
		s := Search{Path: path, Home: home, Getenv: os.Getenv}
		key := searchKey(s)
		if f, ok := recallFound(file, key); ok {
			return f.toolchains()
		}
		saw, began := newSights(), time.Now()
		f := discover(s, saw)
		if text, ok := saw.text(key, f, began); ok {
			_ = sys.Keep(file, []byte(text)) // its digest says whether it is whole
		}
		return f.toolchains()
	}
}

// searchKey names a search and the rules that it follows, which are those of
// this very program; empty when that cannot be told.
func searchKey(s Search) string {
	exe, ok := stampOf("/proc/self/exe")
	if !ok {
		return ""
	}
	h := sha256.New()
	for _, part := range []string{"1", exe.text, s.Path, s.Home, s.Getenv("RUSTUP_HOME"), s.Getenv("GOPATH"), strconv.Itoa(os.Geteuid())} {
		h.Write([]byte(strconv.Quote(part)))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// stamp is what a folder looks like from outside. Whatever is made, removed,
// renamed or replaced in it changes it.
type stamp struct {
	text string
	last time.Time // when something in it changed
}

func stampOf(path string) (s stamp, ok bool) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return stamp{text: "none"}, true
	}
	b := make([]byte, 0, 80)
	for _, n := range []int64{int64(st.Dev), int64(st.Ino), st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec} {
		b = append(strconv.AppendInt(b, n, 36), '.')
	}
	s = stamp{text: string(b), last: time.Unix(st.Ctim.Unix())}
	if m := time.Unix(st.Mtim.Unix()); m.After(s.last) {
		s.last = m
	}
	return s, st.Ctim.Sec > 0
}

// faithful are file systems of this machine, whose folders' times tell.
var faithful = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.TMPFS_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true,
	unix.F2FS_SUPER_MAGIC: true, 0x2fc12fc1: true, // zfs
}

func trustworthy(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && faithful[int64(fs.Type)]
}

// text is the memory of an answer: a digest of the rest, the key, the answer,
// and one line for each thing it depends on.
func (s *sights) text(key string, f Found, began time.Time) (string, bool) {
	if key == "" || len(s.listed)+len(s.resolved)+len(s.asked) > maxSights {
		return "", false
	}
	answer, err := json.Marshal(f)
	if err != nil {
		return "", false
	}
	lines := []string{key, string(answer)}
	devs := map[string]bool{}
	for dir := range s.listed {
		st, ok := stampOf(dir)
		if !ok || !st.last.Before(began.Add(-settled)) {
			return "", false
		}
		dev, _, isThere := strings.Cut(st.text, ".")
		if isThere && !devs[dev] {
			if devs[dev] = trustworthy(dir); !devs[dev] {
				return "", false
			}
		}
		lines = append(lines, "l"+st.text+" "+dir)
	}
	for p, real := range s.resolved {
		lines = append(lines, "r"+strconv.Itoa(len(real))+" "+real+p)
	}
	for p, kind := range s.asked {
		lines = append(lines, "a"+kind+" "+p)
	}
	sort.Strings(lines[2:])
	for _, l := range lines {
		if strings.ContainsAny(l, "\n\x00") || !utf8.ValidString(l) {
			return "", false // a name that this form, or JSON, would not keep
		}
	}
	body := strings.Join(lines, "\n")
	return bodyDigest(body) + "\n" + body, true
}

func bodyDigest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

// recallFound returns the remembered answer to a search when it still holds.
func recallFound(file, key string) (f Found, ok bool) {
	b, err := os.ReadFile(file)
	if err != nil || key == "" {
		return f, false
	}
	digest, body, ok := strings.Cut(string(b), "\n")
	if !ok || bodyDigest(body) != digest {
		return f, false
	}
	lines := strings.Split(body, "\n")
	if len(lines) < 2 || lines[0] != key {
		return f, false
	}
	for _, l := range lines[2:] {
		if !asBefore(l) {
			return f, false
		}
	}
	return f, json.Unmarshal([]byte(lines[1]), &f) == nil
}

// asBefore looks again at one thing that an answer depends on.
func asBefore(line string) bool {
	what, rest, ok := strings.Cut(line, " ")
	if !ok || what == "" {
		return false
	}
	switch was := what[1:]; what[0] {
	case 'l':
		st, ok := stampOf(rest)
		return ok && st.text == was
	case 'r':
		n, err := strconv.Atoi(was)
		if err != nil || n < 0 || n > len(rest) {
			return false
		}
		real, err := realDir(rest[n:])
		if err != nil {
			real = ""
		}
		return real == rest[:n]
	case 'a':
		st, err := os.Stat(rest)
		return kindOf(st, err) == was
	}
	return false
}
