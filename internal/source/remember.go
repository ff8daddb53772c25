package source

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/sys"
)

// namedDir is the folder in which what Named found is kept; empty: nowhere.
var namedDir atomic.Value

func rememberNamedIn(dir string) {
	if dir != "" {
		dir = filepath.Join(dir, "named")
	}
	namedDir.Store(dir)
}

// maxAnswers bounds how many are kept.
const maxAnswers = 64

// Where names the repository among all of this machine: by its path, and by the
// folder that is there now. A commit's name alone does not say what it holds: in the
// objects of a repository that somebody else made, anything can be under it.
func (r *Repo) Where() string {
	at := r.Ref.CommonDir
	if at == "" {
		at = r.Ref.Repo
	}
	sum := sha256.Sum256([]byte(at + "\x00" + strconv.FormatUint(deviceOf(at), 10) + ":" + strconv.FormatUint(Inode(at), 10)))
	return hex.EncodeToString(sum[:8])
}

// namedKey is all that listNamed depends on.
func (r *Repo) namedKey(names []string) string {
	return fmt.Sprintf("caisson.named/1 %s %s %q", r.Where(), r.Ref.Base, names)
}

// kept is an answer as it is in its file, after the digest of the text. The key is
// in it, so that a file says itself what it answers.
type kept struct {
	Key   string      `json:"key"`
	Files []namedFile `json:"files"`
}

func answerAt(key string) (dir, name string) {
	dir, _ = namedDir.Load().(string)
	sum := sha256.Sum256([]byte(key))
	return dir, hex.EncodeToString(sum[:16])
}

func recallNamed(key string) ([]namedFile, bool) {
	dir, name := answerAt(key)
	if dir == "" {
		return nil, false
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, false
	}
	// Nobody synced it: after a loss of power it may be cut, or hold anything.
	digest, text, _ := bytes.Cut(data, []byte{'\n'})
	sum := sha256.Sum256(text)
	var k kept
	if string(digest) != hex.EncodeToString(sum[:]) || json.Unmarshal(text, &k) != nil || k.Key != key || k.Files == nil {
		return nil, false
	}
	return k.Files, true
}

func retainNamed(key string, files []namedFile) {
	dir, name := answerAt(key)
	if dir == "" {
		return
	}
	for _, f := range files {
		if !utf8.ValidString(f.Path) || f.Size < 0 && strings.HasPrefix(f.Mode, "100") {
			return // JSON has no such name; or an object is missing now, and may come
		}
	}
	text, err := json.Marshal(kept{key, files})
	if err != nil {
		return
	}
	sum := sha256.Sum256(text)
	sys.KeepIn(dir, name, append([]byte(hex.EncodeToString(sum[:])+"\n"), text...), maxAnswers)
}
