package config

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
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
	Extra   []policy.Sourced // of flags, variables, requests, agents
	Agreed  []policy.Item    // requests that a person agreed to
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
		project, err := l.repository(ctx, a.Repo, out)
		if err != nil {
			return nil, err
		}
		docs = append(docs, project...)
	}
	if a.Trusted != "" {
		out.Context.Trusted, out.Context.TrustedBy = true, policy.Origin{Source: task.SourceFlag, Where: a.Trusted}
	}
	out.Documents = append(docs, a.Extra...)
	out.Rules, err = policy.Merge(out.Documents, out.Context)
	return out, err
}

// repository reads what the repository says, and what a person said about it.
func (l *Loader) repository(ctx context.Context, repo *source.Repo, out *Loaded) ([]policy.Sourced, error) {
	ref := repo.Ref
	base, err := repo.Named(ctx, maxTrusting, Trusting...)
	if err != nil {
		return nil, err
	}
	lying, err := repo.Lying(maxTrusting, Trusting...)
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
	out.Subject = Subject{Repo: ref.Repo, CommonDir: ref.CommonDir, Files: []map[string][]byte{base, lying}}
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
	changed := lying[ProjectFile]
	if len(base) == 0 && ref.Base == "" {
		rev = filepath.Base(ref.Repo)
	}
	return Project(rev, base[ProjectFile], changed)
}
