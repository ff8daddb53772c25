package config

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-dev/caisson/internal/sys"
)

// ownKey is what a definition's demand stands below.
const ownKey = "caisson"

// front is what stands before the text of a definition.
type front struct {
	lines []string // between the first two lines ---
	// odd says why another program could see a front matter where, or end lines
	// as, ours does not; empty: it is plain.
	odd string
}

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

// frontMatter returns what stands between the first two lines ---; no lines
// where a file has no front matter.
func frontMatter(data []byte) (f front, err error) {
	if len(data) > MaxFile {
		return f, fmt.Errorf("its file is longer than %d KiB", MaxFile>>10)
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	plain := strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	all := strings.Split(lineEnds.Replace(string(data)), "\n")
	first := 0
	for first < len(all)-1 && strings.TrimFunc(all[first], blank) == "" {
		first++
	}
	begin := strings.TrimFunc(all[first], blank)
	if !strings.HasPrefix(begin, "---") && !strings.HasPrefix(begin, "+++") {
		return f, nil
	}
	last := len(all)
	for i, l := range all[first+1:] {
		if t := strings.TrimFunc(l, blank); t == "---" || t == "..." || t == "+++" {
			last = first + 1 + i
			break
		}
	}
	switch {
	case strings.TrimRight(plain[0], " \t") != "---":
		f.odd = "the front matter does not begin with a plain --- in the first line"
	case last == len(all):
		return f, fmt.Errorf("its front matter does not end")
	case strings.TrimRight(all[last], " \t") == "+++" || strings.TrimSpace(all[last]) != strings.TrimRight(all[last], " \t"):
		f.odd = "the front matter does not end with a plain ---"
	case last >= len(plain) || plain[last] != all[last]:
		f.odd = "its lines end otherwise than with a line feed"
	}
	if f.odd != "" {
		// Line numbers begin with the second line of a plain one.
		f.lines = append(append([]string{}, all[min(1, first):first]...), strings.TrimLeft(begin, "-+"))
		f.lines = append(f.lines, all[first+1:last]...)
		return f, nil
	}
	f.lines = all[first+1 : last]
	return f, nil
}

func blank(r rune) bool { return unicode.IsSpace(r) || r == '\ufeff' || !unicode.IsPrint(r) }

// root reads the whole front matter as YAML; nil where it is none, as with many
// definitions.
func (f *front) root() *yaml.Node {
	n, err := parse("", []byte(strings.Join(f.lines, "\n")+"\n"))
	if err != nil {
		return nil
	}
	return n
}

// name is the name that the definition gives itself.
func (f *front) name() string {
	if n := f.root(); n != nil && n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if k, v := n.Content[i], n.Content[i+1]; k.Value == "name" && v.Kind == yaml.ScalarNode && v.Value != "" {
				return v.Value
			}
		}
	}
	for _, l := range f.lines {
		if v, ok := strings.CutPrefix(l, "name:"); ok {
			return strings.Trim(strings.TrimSpace(v), `"'`)
		}
	}
	return ""
}

// lineKey is a word in front of a colon, in any dress that YAML knows.
var lineKey = regexp.MustCompile(`(?:^|[{,?])[\s"'?{-]*([^\s"'{},:?]+)["']?\s*[:=]`)

// plainly refuses a demand that is written otherwise than ownBlock reads it: who
// wrote it believes that it counts. found says that ownBlock found one.
func (f *front) plainly(file string, found bool) error {
	no := func(line int, format string, args ...any) error {
		return fmt.Errorf("%s:%d: %s; write the key as caisson: at the front of its line", file, line, fmt.Sprintf(format, args...))
	}
	if len(f.lines) == 0 {
		return nil
	}
	all := strings.ToLower(strings.Join(f.lines, "\n"))
	if f.odd != "" {
		if strings.Contains(all, ownKey) || strings.Contains(all, `\`) || f.nearLine() > 0 {
			return no(1, "%s, and it may name caisson", f.odd)
		}
		return nil
	}
	n := f.root()
	if n == nil { // no YAML: any mention that is not plain is one too many
		if at := f.nearLine(); at > 0 {
			return no(at, "the front matter is no YAML, and a word there is or looks like the key caisson")
		}
		return nil
	}
	if n.Kind != yaml.MappingNode {
		if strings.Contains(all, ownKey) {
			return no(n.Line+1, "the front matter is no mapping, and names caisson")
		}
		return nil
	}
	own := 0
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		word := k
		if k.Kind == yaml.AliasNode && k.Alias != nil {
			word = k.Alias
		}
		switch {
		case word.Kind != yaml.ScalarNode:
			return no(k.Line+1, "a key is no word")
		case k.Kind == yaml.AliasNode || word.ShortTag() == "!!binary" || word.Value == "<<":
			return no(k.Line+1, "a key is an alias, a merge or binary, which could stand for caisson")
		case word.Value == ownKey:
			own++
		case near(word.Value):
			return no(k.Line+1, "there is no key %q; did you mean caisson?", word.Value)
		}
		if (own > 1 || own == 1 && !found) && word.Value == ownKey {
			return no(k.Line+1, "the key caisson is not written plainly")
		}
	}
	if found && own == 0 {
		return no(1, "a line begins with caisson: and is no key")
	}
	return nil
}

// nearLine is the line of the first word that could be meant for the key and is
// not the plain key; 0: there is none.
func (f *front) nearLine() int {
	for i, l := range f.lines {
		rest, plain := strings.CutPrefix(l, ownKey+":")
		if plain {
			l = rest
		}
		if strings.Contains(strings.ToLower(l), ownKey) {
			return i + 2
		}
		for _, m := range lineKey.FindAllStringSubmatch(l, -1) {
			if near(m[1]) || strings.Contains(m[1], `\`) {
				return i + 2
			}
		}
	}
	return 0
}

// near says that a word is the key but for two edits, case and what is not seen.
func near(word string) bool {
	w := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return -1
		}
		if r >= 0x80 {
			return '?' // one edit, however many bytes it has
		}
		return unicode.ToLower(r)
	}, word)
	return len(w) <= 2*len(ownKey) && len(w) >= 4 && sys.Nearest(w, []string{ownKey}) != ""
}
