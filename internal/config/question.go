package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

// Question reads a question as it is typed: its kind and its words.
func Question(kind string, words []string) (*policy.Question, error) {
	q := &policy.Question{}
	no := func(format string, args ...any) (*policy.Question, error) {
		return nil, task.Errorf(task.CodeUsage, "config.question", format, args...).
			WithHint("for example: egress example.com:443 · mount ~/.ssh rw · env AWS_PROFILE · command git push · tool shell git push")
	}
	if len(words) == 0 || words[0] == "" {
		return no("a question about %q needs to say about which", kind)
	}
	one := true
	var err error
	switch kind {
	case "egress":
		q.Egress, one = strings.Join(words, " "), len(words) <= 2
	case "mount":
		q.Mount = &policy.Mount{}
		if err = q.Mount.UnmarshalText([]byte(words[0])); err == nil && len(words) == 2 {
			err = q.Mount.Mode.UnmarshalText([]byte(words[1]))
		}
		one = len(words) <= 2
	case "env":
		q.Env, one = words[0], len(words) == 1
	case "credential":
		q.Credential, one = words[0], len(words) == 1
	case "grant":
		err, one = q.Grant.UnmarshalText([]byte(words[0])), len(words) == 1
	case "command":
		q.Command = words
		err = q.Command.Check()
	case "tool":
		q.Tool = words[0]
		commands := q.Tool == "*" || slices.Contains(policy.CommandTools, q.Tool)
		switch {
		case len(words) == 2 && !commands:
			err = q.Path.UnmarshalText([]byte(words[1]))
		case len(words) > 1:
			// What a tool is given is no pattern: ./x.sh is a program too, and one word
			// alone is a script.
			if q.Command = words[1:]; q.Command[0] == "" || strings.ContainsRune(strings.Join(q.Command, ""), 0) {
				err = fmt.Errorf("the command is empty or holds a NUL")
			}
		}
	default:
		return no("there is no question about %q", kind)
	}
	if err == nil && one {
		err = q.Check()
	}
	switch {
	case err != nil:
		return no("%s: %v%s", kind, err, nearWord(err))
	case !one:
		return no("a question about %s has not that many words", kind)
	}
	return q, nil
}

// Files reads one policy file, or those of a folder, as if source had written
// them.
func Files(source task.Source, name string) ([]policy.Sourced, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return nil, task.Errorf(task.CodeNotFound, "config.file", "the policy cannot be read: %w", err).WithHint("name a file or a folder that is there")
	}
	names := []string{name}
	if fi.IsDir() {
		if names, err = filepath.Glob(filepath.Join(escapeGlob(name), "*.yaml")); err != nil || len(names) == 0 {
			return nil, task.Errorf(task.CodeNotFound, "config.file", "the folder %s holds no file that ends with .yaml", name).WithHint("name a folder of policy files")
		}
		sort.Strings(names)
	}
	var out []policy.Sourced
	for _, n := range names {
		s, err := File(source, n)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

// SourceOf reads the word for a source of a file.
func SourceOf(word string) (task.Source, error) {
	switch s := task.Source(word); s {
	case "":
		return task.SourceOperator, nil
	case task.SourceOperator, task.SourceUser, task.SourceProject, task.SourceTask, task.SourceAgent, task.SourceModel:
		return s, nil
	}
	return "", task.Errorf(task.CodeUsage, "config.source", "no policy is written by %q", word).
		WithHint("%s", fmt.Sprintf("it takes %s, %s, %s, %s, %s or %s", task.SourceOperator, task.SourceUser, task.SourceAgent, task.SourceProject, task.SourceTask, task.SourceModel))
}

// Inside says whether the file at name, links resolved, lies in the repository
// at top.
func Inside(top, name string) bool { return top != "" && within(workspacePath(top), name) }
