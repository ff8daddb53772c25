package boundary

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

// trustedCheck returns what a run executes at most whose whole command is a check
// that the policy lists: it loads no code of the repository, so its author says.
// nil: it is none, and notes say why one that begins so does not count. Variables that a person passes in and another root would change
// what runs, and so would options that the check does not list.
func (m *Manager) trustedCheck(d *decided) (fact *task.Fact, notes []string) {
	if d.rules.Rules == nil || len(d.argv) == 0 {
		return nil, nil
	}
	for _, c := range d.rules.Rules.TrustedChecks {
		n := len(c.Value.Argv)
		if n == 0 || len(d.argv) < n || !slices.Equal(d.argv[:n], c.Value.Argv) {
			continue
		}
		why := ""
		switch program := m.program(d, d.argv[0]); {
		case len(d.req.Env) > 0 || d.req.Rootfs != "" || d.req.Image != "":
			why = "variables or another root are passed in, which change what runs"
		case !listed(c.Value.Argv, d.argv):
			why = "it has options that the check does not list"
		case program == "":
			why = "the program is not found on PATH outside the repository, or the task can write it"
		case c.Value.SHA256 != "" && !strings.EqualFold(c.Value.SHA256, digestOf(program)):
			why = "the program's file has another digest"
		}
		if why != "" {
			notes = append(notes, "the trusted check `"+strings.Join(c.Value.Argv, " ")+"` ("+c.From.String()+") does not count for this command: "+why)
			continue
		}
		// Whoever may write trusted_checks decides here: policy merged it so.
		return &task.Fact{What: task.Executes, Value: c.Value.Executes, Source: task.SourceOperator, Rule: "trusted_checks",
			Evidence: "the whole command is the trusted check `" + strings.Join(c.Value.Argv, " ") + "` (" + c.From.String() + ")", Confidence: task.Certain}, nil
	}
	return nil, notes
}

// listed says whether argv is the check, perhaps with names of files after it.
func listed(check policy.Argv, argv []string) bool {
	if len(check) == 0 || len(argv) < len(check) || !slices.Equal(argv[:len(check)], check) {
		return false
	}
	return !slices.ContainsFunc(argv[len(check):], func(w string) bool { return w == "" || strings.ContainsAny(w[:1], "-+@") })
}

// program finds what a name will start inside, where neither the task nor the
// authors of its repository can put anything; empty where they can.
func (m *Manager) program(d *decided, name string) string {
	var places []string
	switch {
	case filepath.IsAbs(name):
		places = []string{filepath.Dir(name)}
	case strings.Contains(name, "/"):
		return ""
	default:
		places = filepath.SplitList(valueOf(d.spec.Env, "PATH"))
	}
	l := live{spec: d.spec}
	for _, dir := range places {
		p := filepath.Join(dir, filepath.Base(name))
		if l.writable(p) {
			return ""
		}
		to, err := filepath.EvalSymlinks(p)
		if err != nil {
			continue
		}
		i, err := os.Stat(to)
		if err != nil || !i.Mode().IsRegular() || i.Mode()&0o111 == 0 {
			continue
		}
		for _, mine := range []string{d.repo.Ref.Repo, d.repo.Ref.CommonDir, m.cfg.StateDir} {
			if mine != "" && (to == mine || strings.HasPrefix(to, mine+"/")) {
				return ""
			}
		}
		return to
	}
	return ""
}

func digestOf(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}
