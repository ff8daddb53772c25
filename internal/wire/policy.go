package wire

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson/internal/boundary"
	"github.com/caisson-dev/caisson/internal/config"
	"github.com/caisson-dev/caisson/internal/detect"
	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// loader reads policy for this installation's user.
func (h *house) loader() *config.Loader {
	places := config.PlacesOf(h.dirs.Config, h.who.UID)
	places.Apart = []string{h.dirs.State, h.dirs.Runtime}
	return &config.Loader{
		Places: places,
		Trust:  config.TrustStore{Dir: filepath.Join(h.dirs.State, "trusted")},
		Home:   h.who.Home, Now: time.Now,
	}
}

func (h *house) policies() door.Policies { return policies{h.loader()} }

// policies joins the reading of policy files with the doors.
type policies struct{ l *config.Loader }

var _ door.Policies = policies{}

// load reads what in asks for, and the repository that it is about.
func (p policies) load(ctx context.Context, in door.PolicyIn) (*config.Loaded, error) {
	if in.File != "" {
		s, err := config.SourceOf(in.As)
		if err != nil {
			return nil, err
		}
		return p.file(s, in.File, true)
	}
	repo, err := p.repo(ctx, in.Repo, in.Base)
	if err != nil {
		return nil, err
	}
	return p.l.Load(ctx, config.Ask{Repo: repo, Agent: in.Agent})
}

// file merges one file with what is shipped.
func (p policies) file(s task.Source, name string, shipped bool) (*config.Loaded, error) {
	docs, err := config.Files(s, name)
	if err != nil {
		return nil, err
	}
	if shipped {
		docs = append(docs, policy.Shipped())
	}
	out := &config.Loaded{Documents: docs, Context: policy.Context{Home: p.l.Home, Now: p.l.Now().Unix()}}
	out.Rules, err = policy.Merge(docs, out.Context)
	return out, err
}

// repo finds the repository around dir; nil where nobody named one and there is
// none.
func (p policies) repo(ctx context.Context, dir, base string) (*source.Repo, error) {
	repo, err := source.Inspect(ctx, source.Options{Dir: dir, Base: base, Env: os.Environ()})
	if err != nil && dir == "" && base == "" && source.NoRepo(err) {
		return nil, nil
	}
	return repo, err
}

// Policy implements door.Policies.
func (p policies) Policy(ctx context.Context, in door.PolicyIn) (*door.PolicyOut, error) {
	l, err := p.load(ctx, in)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(l.Rules)
	if err != nil {
		return nil, task.Errorf(task.CodeInternal, "wire.policy", "the rules cannot be written: %w", err)
	}
	out := &door.PolicyOut{Schema: "caisson.policy/1", Digest: l.Rules.Digest(), Operator: l.Rules.Operator, Trusted: l.Rules.Trusted.Value,
		Changed: orEmpty(l.Changed), Sources: []door.PolicySource{}, Values: told(l.Rules.Told()), Rules: raw}
	for _, d := range l.Documents {
		out.Sources = append(out.Sources, door.PolicySource{Source: d.Source, File: d.File})
	}
	return out, nil
}

func told(ts []policy.Told) []door.PolicyValue {
	out := []door.PolicyValue{}
	for _, t := range ts {
		out = append(out, door.PolicyValue{Path: t.Path, Value: t.Value, Source: t.From.Source, Where: t.From.Where})
	}
	return out
}

func orEmpty(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}

// Explain implements door.Policies.
func (p policies) Explain(ctx context.Context, in door.ExplainIn) (*door.ExplainOut, error) {
	q, err := config.Question(in.Kind, in.Words)
	if err != nil {
		return nil, err
	}
	l, err := p.load(ctx, in.PolicyIn)
	if err != nil {
		return nil, err
	}
	point, err := q.Point(p.l.Home, seenBy(l))
	if err != nil {
		return nil, task.Errorf(task.CodeUsage, "wire.explain", "%v", err)
	}
	a := l.Rules.Explain(point)
	return &door.ExplainOut{Schema: "caisson.verdict/1", Question: q.String(), Verdict: a.Verdict, Rule: a.Rule, Source: a.From.Source, Where: a.From.Where, Beside: told(a.Beside)}, nil
}

// ComparePolicy implements door.Policies.
func (p policies) ComparePolicy(_ context.Context, in door.CompareIn) (*door.CompareOut, error) {
	from, err := p.file(task.SourceOperator, in.From, false)
	if err != nil {
		return nil, err
	}
	to, err := p.file(task.SourceOperator, in.To, false)
	if err != nil {
		return nil, err
	}
	out := &door.CompareOut{Schema: "caisson.policydiff/1", Within: true, Changes: []door.PolicyChange{}}
	for _, c := range policy.Diff(from.Rules, to.Rules) {
		out.Within = out.Within && !c.Loose
		out.Changes = append(out.Changes, door.PolicyChange{Path: c.Path, Text: c.Text, Loose: c.Loose, Source: c.From.Source, Where: c.From.Where})
	}
	return out, nil
}

// TestPolicy implements door.Policies.
func (p policies) TestPolicy(ctx context.Context, in door.PolicyTestIn) (*door.PolicyTestOut, error) {
	l, err := p.load(ctx, in.PolicyIn)
	if err != nil {
		return nil, err
	}
	out := &door.PolicyTestOut{Schema: "caisson.policytest/1", Tests: []door.PolicyTest{}}
	for _, t := range l.Rules.Try(p.l.Home, seenBy(l)) {
		if !t.OK {
			out.Failed++
		}
		out.Tests = append(out.Tests, door.PolicyTest{Name: t.Name, Where: t.Test.Where, Expect: t.Expect, Verdict: t.Verdict, Rule: t.Rule, OK: t.OK})
	}
	return out, nil
}

// PolicySchema implements door.Policies.
func (p policies) PolicySchema(context.Context) (json.RawMessage, error) { return config.Schema(), nil }

// Trust implements door.Policies.
func (p policies) Trust(ctx context.Context, in door.TrustIn) (*door.TrustOut, error) {
	out := &door.TrustOut{Schema: "caisson.trust/1", Files: []string{}, Changed: []string{}, Known: []door.TrustKnown{}}
	if in.List {
		ts, err := p.l.Trust.List()
		for _, t := range ts {
			out.Known = append(out.Known, door.TrustKnown{Repo: t.Repo, Since: t.Time, Files: slices.Sorted(maps.Keys(t.Files))})
		}
		return out, err
	}
	repo, err := source.Inspect(ctx, source.Options{Dir: in.Repo, Env: os.Environ()})
	if err != nil {
		return nil, err
	}
	out.Repo = repo.Ref.Repo
	if in.Revoke {
		out.Revoked, err = p.l.Trust.Revoke(repo.Ref.CommonDir)
		return out, err
	}
	l, err := p.l.Load(ctx, config.Ask{Repo: repo, Trusting: true})
	if err != nil {
		return nil, err
	}
	if a := l.Rules.AllowTrust; (a.From != policy.Origin{}) && !a.Value {
		return nil, task.Errorf(task.CodeDenied, "wire.trust", "the policy does not let a person say so (allow_trust in %s)", a.From).
			WithHint("have the repository put into trust there")
	}
	names := map[string]bool{}
	for _, files := range l.Subject.Files {
		for n := range files {
			names[n] = true
		}
	}
	out.Files, out.Changed, out.Trusted = append(out.Files, slices.Sorted(maps.Keys(names))...), orEmpty(l.Changed), l.Rules.Trusted.Value
	if in.DryRun {
		return out, nil
	}
	if _, err := p.l.Trust.Grant(l.Subject, p.l.Now()); err != nil {
		return nil, err
	}
	out.Trusted = true
	return out, nil
}

// seenBy analyses the commands of questions as calls of tools are analysed, with
// the files of the checkout. One word for shell is a script.
func seenBy(l *config.Loaded) policy.Seen {
	return func(tool string, words []string) []policy.CommandPoint {
		if tool == contract.ShellInput {
			return boundary.TypedPoints(strings.Join(words, " "))
		}
		script := ""
		if tool != "" && len(words) == 1 {
			script, words = words[0], nil
		}
		ps := boundary.CommandPoints(words, script, lookIn(l.Subject.Repo, tool))
		if l.Rules.ToolDefault.Value != "" {
			boundary.Resolve(ps, findProgram(l.Subject.Repo))
		}
		return ps
	}
}

// lookIn reads files of the checkout at top. A command alone is judged without
// them.
func lookIn(top, tool string) detect.Look {
	if top == "" || tool == "" {
		return nil
	}
	return func(name string) []byte {
		root, err := os.OpenRoot(top)
		if err != nil {
			return nil
		}
		defer root.Close()
		f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil
		}
		defer f.Close()
		if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
			return nil
		}
		b, err := io.ReadAll(io.LimitReader(f, 1<<20))
		if err != nil {
			return nil
		}
		return b
	}
}

// findProgram resolves a program's name by the person's PATH. It is their own
// unless it lies in the repository at top, or leads there.
func findProgram(top string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		p, err := exec.LookPath(name)
		if err != nil || !filepath.IsAbs(p) {
			return "", false
		}
		real, err := filepath.EvalSymlinks(p)
		if err != nil {
			return "", false
		}
		return p, !config.Inside(top, p) && !config.Inside(top, real)
	}
}

// stamp changes when a file does that govern reads for the repository at repo.
func (h *house) stamp(repo string) string {
	return config.PlacesOf(h.dirs.Config, h.who.UID).Stamp() + config.StampOf(filepath.Join(h.dirs.State, "trusted")) + config.StampOf(filepath.Join(repo, config.ProjectFile))
}
