package config

import (
	"context"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Loader reads the policy of every source for one repository.
type Loader struct {
	Places Places
	Trust  TrustStore
	Home   string // of the user
	Now    func() time.Time
}

// Ask says what rules are wanted for.
type Ask struct {
	Repo *source.Repo // nil: no repository
	// Trusted says that a person says now that they know the code, and where they
	// say so: "--trust".
	Trusted string
	// Trusting: a word of trust is to be given.
	Trusting bool
	// Agent is the name of the agent that does the work, whose definition may
	// demand something; empty: none is known.
	Agent  string
	Extra  []policy.Sourced // of flags, variables, requests, agents
	Agreed []policy.Item    // requests that a person agreed to
}

// Loaded is what was read, and what it means together.
type Loaded struct {
	Documents []policy.Sourced
	Context   policy.Context
	Rules     *policy.Rules
	// Changed are the files whose change ended a person's trust.
	Changed []string
	// Subject is the repository as trust sees it; its CommonDir is empty where
	// there is none.
	Subject Subject
}

// Load reads and merges. An error says which file, and what is wrong with it.
func (l *Loader) Load(ctx context.Context, a Ask) (*Loaded, error) {
	out := &Loaded{Context: policy.Context{Home: l.Home, Agreed: a.Agreed, Now: l.Now().Unix()}}
	top := ""
	if a.Repo != nil {
		top = a.Repo.Ref.Repo
	}
	docs, err := l.Places.Read(top)
	if err != nil {
		return nil, err
	}
	docs = append(docs, policy.Shipped())
	if a.Repo != nil {
		project, err := l.repository(ctx, a.Repo, a.Trusting, out)
		if err != nil {
			return nil, err
		}
		docs = append(docs, project...)
	}
	if a.Trusted != "" {
		out.Context.Trusted, out.Context.TrustedBy = true, policy.Origin{Source: task.SourceFlag, Where: a.Trusted}
	}
	out.Documents = append(docs, a.Extra...)
	if out.Rules, err = policy.Merge(out.Documents, out.Context); err != nil || a.Agent == "" {
		return out, err
	}
	agent, err := l.agent(a.Agent, out)
	if err != nil {
		return nil, err
	}
	out.Documents = append(out.Documents, agent...)
	out.Rules, err = policy.Merge(out.Documents, out.Context)
	return out, err
}

// agent finds what the definitions of an agent demand: all of them, for which
// one a harness takes is its own affair. One that cannot be read takes the name,
// and one of a repository counts only where its code is known.
func (l *Loader) agent(name string, out *Loaded) ([]policy.Sourced, error) {
	found := l.homeAgents()
	for i, files := range out.Subject.Files {
		as := Agents([]string{"base:", ""}[min(i, 1)], files)
		if !out.Rules.Trusted.Value && slices.ContainsFunc(as, func(a Agent) bool { return a.Name == name }) {
			return nil, task.Errorf(task.CodePolicy, "config.agent", "the agent %q is defined by the repository, whose code nobody said to know", name).
				WithHint("`caisson trust` says so, if you do; or use another agent")
		}
		found = append(found, as...)
	}
	found = slices.DeleteFunc(found, func(a Agent) bool { return a.Name != name })
	if len(found) == 0 {
		return nil, task.Errorf(task.CodeNotFound, "config.agent", "no agent %q is defined in %s, of the repository or in your home folder", name, strings.Join(AgentFolders, ", ")).
			WithHint("leave the name out, or define it")
	}
	var docs []policy.Sourced
	for _, a := range found {
		if a.Err != nil {
			return nil, a.Err
		}
		if a.Policy != nil {
			docs = append(docs, *a.Policy)
		}
	}
	return docs, nil
}

// homeAgents reads the definitions in the user's home folder. A link is followed
// where it and what it leads to are the user's alone to change, as with a policy
// file; what cannot be read so takes its name all the same.
func (l *Loader) homeAgents() []Agent {
	files, bad := map[string][]byte{}, map[string]error{}
	for _, dir := range AgentFolders {
		entries, err := os.ReadDir(filepath.Join(l.Home, filepath.FromSlash(dir)))
		if err != nil {
			continue // not there, as a rule
		}
		for _, e := range entries[:min(len(entries), 500)] {
			if e.IsDir() || !strings.HasSuffix(e.Name(), ".md") {
				continue
			}
			name := filepath.Join(l.Home, filepath.FromSlash(dir), e.Name())
			b, err := sys.ReadTrusted(name, MaxFile, l.Places.UID)
			if err != nil {
				b, bad["~/"+dir+"/"+e.Name()] = []byte(source.Unread), unreadable(name, err)
			}
			files[dir+"/"+e.Name()] = b
		}
	}
	out := Agents("~/", files)
	for i := range out {
		if err := bad[out[i].File]; err != nil {
			out[i].Err = err
		}
	}
	return out
}

// repository reads what the repository says, and what a person said about it.
func (l *Loader) repository(ctx context.Context, repo *source.Repo, trusting bool, out *Loaded) ([]policy.Sourced, error) {
	ref := repo.Ref
	base, lying, err := l.says(ctx, repo, trusting, out)
	if err != nil {
		return nil, err
	}
	for _, r := range repo.Remotes() {
		if h := source.RemoteHost(r); h != "" && !slices.Contains(out.Context.Remotes, h) {
			out.Context.Remotes = append(out.Context.Remotes, h)
		}
	}
	out.Context.Repo = []string{ref.Repo}
	if rs := repo.Remotes(); len(rs) > 0 {
		out.Context.Repo = append(out.Context.Repo, policy.RepoName(rs[0]))
	}
	if ref.Branch != "" {
		out.Context.Ref = "refs/heads/" + ref.Branch
	}
	if ref.CommonDir != "" {
		out.Subject.Inode = source.Inode(ref.CommonDir)
		since, changed, err := l.Trust.Look(out.Subject)
		if err != nil {
			return nil, err
		}
		if out.Changed = changed; since != nil {
			out.Context.Trusted = true
			out.Context.TrustedBy = policy.Origin{Source: task.SourceUser, Where: "caisson trust, " + since.Time.Format(time.DateOnly)}
		}
	}
	rev := ref.Base
	if len(rev) > 12 {
		rev = rev[:12]
	}
	var docs []policy.Sourced
	differ := maps.Clone(lying) // else each demand would be told twice
	maps.DeleteFunc(differ, func(n string, b []byte) bool { old, there := base[n]; return there && string(old) == string(b) })
	for _, at := range []struct {
		prefix string
		files  map[string][]byte
	}{{rev + ":", base}, {"", differ}} {
		s, err := Settings(at.prefix, at.files)
		if err != nil {
			return nil, err
		}
		docs = append(docs, s...)
	}
	changed := lying[ProjectFile]
	if len(base) == 0 && ref.Base == "" {
		rev = filepath.Base(ref.Repo)
	}
	project, err := Project(rev, base[ProjectFile], changed)
	if err != nil || repo.Told() == nil {
		return append(docs, project...), err
	}
	// Of a task that is open a copy that was changed since counts as well: it can
	// only tighten.
	docs = append(docs, project...)
	now, err := repo.LyingNow(maxTrusting, ProjectFile)
	if err != nil || now == nil || string(now) == string(changed) || string(now) == string(base[ProjectFile]) {
		return docs, err
	}
	more, err := Project(rev, nil, now)
	return append(docs, more...), err
}

// says reads the files on which trust rests, of the base commit and of the checkout.
// Of a task that is on record they are those that it was decided by.
func (l *Loader) says(ctx context.Context, repo *source.Repo, trusting bool, out *Loaded) (base, lying map[string][]byte, err error) {
	out.Subject = Subject{Repo: repo.Ref.Repo, CommonDir: repo.Ref.CommonDir}
	if t := repo.Told(); t != nil {
		out.Subject.Files, out.Subject.Digests, out.Subject.Below = []map[string][]byte{t.Base, t.Lying}, t.Digests[:], t.Below
		return t.Base, t.Lying, nil
	}
	if base, err = repo.Named(ctx, maxTrusting, Trusting...); err != nil {
		return nil, nil, err
	}
	if lying, err = repo.Lying(maxTrusting, Trusting...); err != nil {
		return nil, nil, err
	}
	// Below the top they decide nothing but trust: they are looked for where there is
	// a word of trust, or is to be one.
	if trusting || l.Trust.Has(repo.Ref.CommonDir) {
		below, err := repo.NamedBelow(ctx, maxTrusting, TrustingBelow...)
		if err != nil {
			return nil, nil, err
		}
		there, err := repo.Lying(maxTrusting, slices.Sorted(maps.Keys(below))...)
		if err != nil {
			return nil, nil, err
		}
		out.Subject.Below = true
		maps.Copy(base, below)
		maps.Copy(lying, there)
	}
	out.Subject.Files = []map[string][]byte{base, lying}
	t := &source.Told{Base: kept(base), Lying: kept(lying), Below: out.Subject.Below}
	copy(t.Digests[:], out.Subject.digests())
	repo.Tell(t)
	return base, lying, nil
}

// kept are the files of those whose content says what a boundary must be: that of
// others, such as .envrc, may be a secret, and their digests say that they changed.
func kept(files map[string][]byte) map[string][]byte {
	out := map[string][]byte{}
	for name, b := range files {
		if name == ProjectFile || slices.Contains(AgentFolders, path.Dir(name)) || slices.Contains(AgentSettings, name) && mentions(b) {
			out[name] = b
		}
	}
	return out
}
