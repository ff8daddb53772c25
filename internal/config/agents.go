package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/task"
)

// An agent's definition may demand a boundary: with the key caisson in the front
// matter of its file, or at the top of a settings file, which is about every
// agent. What stands below it is what a policy file may hold; version may be left
// out. Definitions are other programs' files, so only that key is read.

// AgentFolders hold definitions, one Markdown file for each agent.
var AgentFolders = []string{".claude/agents", ".qwen/agents", ".gemini/agents", ".codex/agents"}

// AgentSettings are files about every agent.
var AgentSettings = []string{".claude/settings.json", ".qwen/settings.json", ".gemini/settings.json"}

// otherSettings are settings in a form that is not read here. The key in one of
// them is an error: whoever wrote it believes that it counts.
var otherSettings = []string{".codex/config.toml"}

// Agent is one definition.
type Agent struct {
	Name   string
	File   string
	Policy *policy.Sourced // nil: it demands nothing
	// Err says why the definition cannot be used. The name is taken all the same:
	// no other definition of it counts.
	Err error
}

// Agents reads the definitions among files, by name. prefix stands before the
// names in errors.
func Agents(prefix string, files map[string][]byte) []Agent {
	var out []Agent
	for name, data := range files {
		dir, base := path.Split(name)
		if !slices.Contains(AgentFolders, path.Clean(dir)) || !strings.HasSuffix(base, ".md") {
			continue
		}
		a := Agent{Name: strings.TrimSuffix(base, ".md"), File: prefix + name}
		f, err := frontMatter(data)
		if bytes.HasPrefix(data, []byte(source.Unread)) {
			err = fmt.Errorf("it is a link, no file, or longer than %d KiB", MaxFile>>10)
		}
		if err == nil {
			if n := f.name(); n != "" {
				a.Name = n
			}
			var text []byte
			if text, err = ownBlock(f.lines); err == nil {
				err = f.plainly(a.File, text != nil)
			}
			if err == nil && text != nil {
				a.Policy, err = agentPolicy(a.File, text)
			}
		}
		if err != nil {
			a.Err = malformed(a, err)
		}
		out = append(out, a)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].File < out[j].File })
	return out
}

func malformed(a Agent, err error) error {
	return task.Errorf(task.CodePolicy, "config.agent", "the agent %q cannot be used: %v", a.Name, err).
		WithHint("write the demands below caisson: in the front matter of %s as in a policy file, or take them out", a.File)
}

// ownBlock cuts the key caisson out of a front matter, with empty lines in the
// place of the others; nil when it is not there. The rest may be no YAML at all.
func ownBlock(head []string) ([]byte, error) {
	begin := -1
	for i, l := range head {
		word := strings.ToLower(strings.Trim(strings.TrimSpace(beforeColon(l)), `"'?- `))
		if word != "caisson" {
			continue
		}
		if !strings.HasPrefix(l, "caisson:") {
			return nil, fmt.Errorf("line %d: the key is written caisson: and stands at the front of its line", i+2)
		}
		if begin >= 0 {
			return nil, fmt.Errorf("line %d: the key caisson stands there twice", i+2)
		}
		begin = i
	}
	if begin < 0 {
		return nil, nil
	}
	end := begin + 1
	for end < len(head) && (head[end] == "" || strings.HasPrefix(head[end], " ") || strings.HasPrefix(head[end], "\t") || strings.HasPrefix(head[end], "#") || strings.HasPrefix(head[end], "-") || strings.HasPrefix(head[end], "}") || strings.HasPrefix(head[end], "]")) {
		end++
	}
	return []byte(strings.Repeat("\n", begin+1) + strings.Join(head[begin:end], "\n") + "\n"), nil
}

func beforeColon(l string) string {
	before, _, ok := strings.Cut(l, ":")
	if !ok {
		return ""
	}
	return before
}

// own is a file of which only that key is read.
type own struct {
	Caisson *policy.Document `json:"caisson"`
}

func agentPolicy(file string, text []byte) (*policy.Sourced, error) {
	var o own
	lines, err := decodeInto(file, text, &o, false)
	if err != nil {
		return nil, err
	}
	return ownPolicy(file, o, lines)
}

func ownPolicy(file string, o own, lines Lines) (*policy.Sourced, error) {
	if o.Caisson.Version == 0 {
		o.Caisson.Version = policy.Version
	}
	if o.Caisson.Version != policy.Version {
		return nil, version(file, o.Caisson.Version, Lines{"version": lines["caisson.version"]})
	}
	short := Lines{}
	for p, n := range lines {
		if rest, ok := strings.CutPrefix(p, "caisson."); ok {
			short[rest] = n
		}
	}
	return &policy.Sourced{Document: o.Caisson, Source: task.SourceAgent, File: file, Lines: short}, nil
}

// Settings reads what files about every agent demand.
func Settings(prefix string, files map[string][]byte) ([]policy.Sourced, error) {
	var out []policy.Sourced
	for _, name := range otherSettings {
		for i, l := range strings.Split(string(files[name]), "\n") {
			if t := strings.ToLower(strings.TrimLeft(l, " \t[\"'")); strings.HasPrefix(t, "caisson") {
				return nil, task.Errorf(task.CodePolicy, "config.settings", "%s%s:%d: demands of caisson are not read from this file", prefix, name, i+1).
					WithHint("write them into %s", ProjectFile)
			}
		}
	}
	for _, name := range AgentSettings {
		data, there := files[name]
		file := prefix + name
		if bytes.HasPrefix(data, []byte(source.Unread)) && !source.IsLink(data) {
			return nil, task.Errorf(task.CodePolicy, "config.settings", "%s is no file, or longer than %d KiB: what it demands cannot be read", file, MaxFile>>10).
				WithHint("make it a shorter file, or take it out")
		}
		if !there || !mentions(data) || source.IsLink(data) {
			continue
		}
		// The file is another program's, and may hold what a policy file may not:
		// only the value of the one key is read strictly.
		at, value, err := jsonKey(data)
		if err != nil {
			return nil, task.Errorf(task.CodePolicy, "config.settings", "%s names caisson and cannot be read: %v", file, err).
				WithHint("write it as plain JSON with the key once at the top, or take it out")
		}
		if value == nil {
			continue
		}
		var o own
		lines, err := decodeInto(file, []byte(strings.Repeat("\n", at)+`{"caisson": `+string(value)+"}\n"), &o, false)
		if err != nil {
			return nil, err
		}
		s, err := ownPolicy(file, o, lines)
		if err != nil {
			return nil, err
		}
		out = append(out, *s)
	}
	return out, nil
}

// mentions says whether a file of settings may hold the key, in any spelling.
func mentions(data []byte) bool {
	return bytes.Contains(bytes.ToLower(data), []byte("caisson")) || bytes.Contains(data, []byte(`\u`))
}

// jsonKey returns the value of the key caisson at the top of a JSON object, and
// how many lines stand before it.
func jsonKey(data []byte) (before int, value json.RawMessage, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return 0, nil, fmt.Errorf("it is no JSON object")
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return 0, nil, err
		}
		key, _ := t.(string)
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return 0, nil, err
		}
		if strings.EqualFold(strings.TrimSpace(key), "caisson") {
			switch {
			case key != "caisson":
				return 0, nil, fmt.Errorf("the key is written caisson")
			case value != nil:
				return 0, nil, fmt.Errorf("the key caisson stands there twice")
			}
			value = v
			before = bytes.Count(data[:int(dec.InputOffset())-len(v)], []byte("\n"))
		}
	}
	if _, err := dec.Token(); err != nil {
		return 0, nil, err
	}
	return before, value, nil
}
