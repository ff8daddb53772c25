package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"sort"
	"strings"
)

// lookAttributes names the attributes whose lines differ.
func lookAttributes(before, after []byte) string {
	was, is := attributeLines(before), attributeLines(after)
	changed := map[string]bool{}
	for line, names := range was {
		if _, ok := is[line]; !ok {
			for _, n := range names {
				changed[n] = true
			}
		}
	}
	for line, names := range is {
		if _, ok := was[line]; !ok {
			for _, n := range names {
				changed[n] = true
			}
		}
	}
	if len(changed) == 0 {
		// Order decides in this file, so another order counts, and so does
		// anything that was not understood.
		return "the order or the form of its lines changed"
	}
	return "it changes which attributes git gives to files: " + shortList(slices.Sorted(maps.Keys(changed)))
}

// attributeLines maps each line that says something to the attributes in it.
func attributeLines(b []byte) map[string][]string {
	out := map[string][]string{}
	for line := range bytes.Lines(b) {
		s := strings.TrimSpace(string(line))
		if s == "" || s[0] == '#' {
			continue
		}
		var names []string
		for _, f := range strings.Fields(afterPattern(s)) {
			f = strings.TrimLeft(f, "-!")
			if n, _, _ := strings.Cut(f, "="); n != "" {
				names = append(names, shortText(n))
			}
		}
		if len(names) == 0 {
			names = []string{"(none)"}
		}
		out[s] = names
	}
	return out
}

// afterPattern cuts the pattern off a line of .gitattributes. A quoted one may
// hold spaces.
func afterPattern(s string) string {
	if s[0] == '"' {
		for i := 1; i < len(s); i++ {
			switch s[i] {
			case '\\':
				i++
			case '"':
				return s[i+1:]
			}
		}
		return s
	}
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[i:]
	}
	return ""
}

// lookGoMod compares the directives that make the go command fetch from
// elsewhere or run something.
func lookGoMod(before, after []byte) string {
	was, is := goDirectives(before), goDirectives(after)
	var names []string
	for _, n := range slices.Sorted(maps.Keys(merged(was, is))) {
		if !slices.Equal(was[n], is[n]) {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "it changes what the go command fetches or runs: " + shortList(names)
}

// goDirectives returns the lines of the directives that count, by directive.
// It reads more than go accepts and never less.
func goDirectives(b []byte) map[string][]string {
	out := map[string][]string{}
	block := ""
	for line := range bytes.Lines(b) {
		s, _, _ := strings.Cut(string(line), "//")
		f := strings.Fields(strings.ReplaceAll(strings.ReplaceAll(s, "(", " ( "), ")", " ) "))
		if len(f) == 0 {
			continue
		}
		word := strings.Trim(f[0], "\"`")
		switch {
		case block != "" && f[0] == ")":
			block = ""
			continue
		case block == "" && len(f) > 1 && f[1] == "(":
			block = word
			f = f[2:]
		case block == "":
			f = f[1:]
		}
		name := block
		if name == "" {
			name = word
		}
		switch name {
		case "module", "go", "require", "exclude", "retract", "godebug":
			// What is required is fetched from the proxy and checked against
			// go.sum; nothing of it runs by itself.
			continue
		}
		if len(f) > 0 {
			out[shortText(name)] = append(out[shortText(name)], strings.Join(f, " "))
		}
	}
	for _, v := range out {
		sort.Strings(v)
	}
	return out
}

func merged[V any](a, b map[string]V) map[string]V {
	m := maps.Clone(a)
	if m == nil {
		m = map[string]V{}
	}
	maps.Copy(m, b)
	return m
}

// lookTasks tells a file for a task runner from one of that common name.
func lookTasks(_, after []byte) string {
	if bytes.Contains(after, []byte("invoke")) || bytes.Contains(after, []byte("fabric")) {
		return "a task runner that looks for this name runs it"
	}
	return ""
}

// lookAddresses compares the lines that name an address or an option.
func lookAddresses(before, after []byte) string {
	if was, is := addressLines(before), addressLines(after); !maps.Equal(was, is) {
		return "it names another address, file or option to install from than before"
	}
	return ""
}

func addressLines(b []byte) map[string]bool {
	out := map[string]bool{}
	// A backslash joins lines, so the parts belong together.
	b = bytes.ReplaceAll(bytes.ReplaceAll(b, []byte("\\\r\n"), []byte(" ")), []byte("\\\n"), []byte(" "))
	for line := range bytes.Lines(b) {
		s, _, _ := strings.Cut(string(line), " #")
		s = strings.TrimSpace(s)
		if s == "" || s[0] == '#' {
			continue
		}
		// A hash makes an address no other one.
		var words []string
		for _, w := range strings.Fields(s) {
			if !strings.HasPrefix(w, "--hash=") {
				words = append(words, w)
			}
		}
		if s = strings.Join(words, " "); strings.Contains(s, "--") || strings.HasPrefix(s, "-") || strings.ContainsAny(s, `@/\`) || strings.Contains(s, "file:") {
			out[s] = true
		}
	}
	return out
}

// lookLock compares the hosts that a lock file names, and how many packages run
// code when they are installed.
func lookLock(before, after []byte) string {
	was, is := hostsIn(before), hostsIn(after)
	var fresh []string
	for h := range is {
		if !was[h] {
			fresh = append(fresh, h)
		}
	}
	sort.Strings(fresh)
	switch {
	case len(fresh) > 0 && before == nil:
		return "it is new and takes packages from " + shortList(fresh)
	case len(fresh) > 0:
		return "packages come from another host than before: " + shortList(fresh)
	}
	for _, mark := range []string{`"hasInstallScript": true`, "requiresBuild: true", `"hasInstallScript":true`} {
		if bytes.Count(after, []byte(mark)) > bytes.Count(before, []byte(mark)) {
			return "a package that was added runs code when it is installed"
		}
	}
	return ""
}

// hostsIn finds the hosts of all addresses in a text, in lower case.
func hostsIn(b []byte) map[string]bool {
	out := map[string]bool{}
	for {
		i := bytes.Index(b, []byte("://"))
		if i < 0 {
			break
		}
		b = b[i+3:]
		end := bytes.IndexAny(b[:min(len(b), 300)], "/?#\"' \t\r\n,)>]}")
		if end < 0 {
			end = min(len(b), 300)
		}
		host := string(b[:end])
		if j := strings.LastIndexByte(host, '@'); j >= 0 {
			host = host[j+1:]
		}
		if host = strings.ToLower(host); host != "" && len(out) < maxHosts {
			out[host] = true
		}
	}
	return out
}

// maxHosts bounds how many hosts of one file are told apart.
const maxHosts = 10_000

// shortList joins a few of the words.
func shortList(words []string) string {
	const most = 5
	var out []string
	for i, w := range words {
		if i == most {
			out = append(out, "…")
			break
		}
		out = append(out, shortText(w))
	}
	return strings.Join(out, ", ")
}

// shortText makes a word of a file fit for a message.
func shortText(s string) string {
	return quote(cut(s, 60))
}

// cut is the start of a text, of at most that many bytes, and a mark where it goes on.
func cut(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// packageFields are those of package.json by which nothing is fetched or run.
// Every other one counts.
var packageFields = []string{
	"name", "version", "description", "keywords", "homepage", "bugs", "license", "licenses", "author", "contributors", "maintainers", "funding", "repository",
	"private", "files", "man", "sideEffects", "engines", "os", "cpu", "libc", "publishConfig", "main", "module", "types", "typings", "typesVersions", "browser", "unpkg", "jsdelivr",
	"exports", "imports", "type", "browserslist", "$schema", "displayName", "icon", "categories", "readme", "readmeFilename", "peerDependenciesMeta",
}

// dependencyFields hold names and versions of packages.
var dependencyFields = []string{"dependencies", "devDependencies", "optionalDependencies", "peerDependencies"}

// lookPackageJSON compares what npm and its kin run or fetch.
func lookPackageJSON(before, after []byte) string {
	is, err := parsePackage(after)
	if err != nil {
		return "it cannot be parsed strictly: " + err.Error()
	}
	was := map[string]json.RawMessage{}
	if before != nil {
		if was, err = parsePackage(before); err != nil {
			return "what it was before cannot be parsed, so all of it counts as changed"
		}
	}
	var names []string
	for _, n := range slices.Sorted(maps.Keys(merged(was, is))) {
		switch {
		case slices.Contains(packageFields, n):
		case slices.Contains(dependencyFields, n):
			if why := newDependency(was[n], is[n]); why != "" {
				names = append(names, n+" ("+why+")")
			}
		case !sameJSON(was[n], is[n]):
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "it changes what a package manager runs or fetches: " + shortList(names)
}

// newDependency says what of a list of dependencies counts: a package that was
// not there before may run code when it is installed, and so may one that does
// not come from the registry.
func newDependency(before, after json.RawMessage) string {
	if after == nil {
		return ""
	}
	var is map[string]string
	if err := json.Unmarshal(after, &is); err != nil {
		return "unreadable"
	}
	var was map[string]string
	if before != nil && json.Unmarshal(before, &was) != nil {
		return "unreadable"
	}
	for _, n := range slices.Sorted(maps.Keys(is)) {
		old, had := was[n]
		switch {
		case !had:
			return "new: " + shortText(n)
		case old != is[n] && strings.ContainsAny(is[n], ":/"):
			return "not from the registry: " + shortText(n)
		}
	}
	return ""
}

var (
	errTwice = errors.New("a field is there twice")
	errDepth = errors.New("it is nested too deeply")
	errShape = errors.New("it is not one object")
)

// parsePackage reads one JSON object and nothing else, without fields that are
// there twice: parsers differ in which one they take.
func parsePackage(b []byte) (map[string]json.RawMessage, error) {
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	if err := strictJSON(b); err != nil {
		return nil, err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil || m == nil {
		return nil, errShape
	}
	return m, nil
}

// maxJSONDepth bounds nesting; real files have less than ten.
const maxJSONDepth = 100

// strictJSON checks form, depth and that no object has a field twice, also in
// another case, which some parsers take for the same.
func strictJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	type frame struct {
		object bool
		key    bool // the next text is a field
		seen   map[string]bool
	}
	var stack []frame
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return errors.New("it is not JSON")
		}
		top := len(stack) - 1
		switch v := t.(type) {
		case json.Delim:
			if v == '}' || v == ']' {
				stack = stack[:top]
				continue
			}
			if top >= 0 && stack[top].object {
				stack[top].key = true
			}
			if len(stack) >= maxJSONDepth {
				return errDepth
			}
			stack = append(stack, frame{object: v == '{', key: v == '{', seen: map[string]bool{}})
			continue
		case string:
			if top >= 0 && stack[top].object && stack[top].key {
				if stack[top].seen[v] {
					return errTwice
				}
				stack[top].seen[v] = true
				stack[top].key = false
				continue
			}
		}
		if top >= 0 && stack[top].object {
			stack[top].key = true
		}
	}
}

// sameJSON reports whether two values mean the same, whatever their form.
func sameJSON(a, b json.RawMessage) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}
