package wire

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/config"
	"github.com/caisson-dev/caisson/internal/detect"
	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// agentsFile is what agents read before they begin.
const agentsFile = "AGENTS.md"

// maxAgents bounds that file, in bytes.
const maxAgents = 4 << 20

// Init implements door.Policies.
func (p policies) Init(ctx context.Context, in door.InitIn) (*door.InitOut, error) {
	repo, err := source.Inspect(ctx, source.Options{Dir: in.Repo, Env: os.Environ()})
	if err != nil {
		return nil, err
	}
	facts, _, err := detect.Scan(ctx, repo.Files())
	if err != nil {
		return nil, err
	}
	if facts == nil {
		facts = []task.Fact{}
	}
	out := &door.InitOut{Schema: "caisson.init/1", Found: facts, Files: []door.InitFile{}}
	root, err := os.OpenRoot(repo.Ref.Repo)
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "wire.init", "the checkout cannot be opened: %w", err)
	}
	defer root.Close()
	if in.Agents {
		// Refused before anything is written.
		if _, err := addSection(root, repo.Ref.Repo, true); err != nil {
			return nil, err
		}
	}
	first, err := begin(root, repo.Ref.Repo, detect.Starter(facts), in.DryRun || in.Agents && there(root))
	if err != nil {
		return nil, err
	}
	out.Files = append(out.Files, first)
	if in.Agents {
		section, err := addSection(root, repo.Ref.Repo, in.DryRun)
		if err != nil {
			return out, err
		}
		out.Files = append(out.Files, section)
	}
	return out, nil
}

// there says that the policy file is there already. Who asks for the section for
// agents gets it all the same.
func there(root *os.Root) bool {
	_, err := root.Lstat(config.ProjectFile)
	return err == nil
}

// begin makes the policy file; one that is there is somebody's work.
func begin(root *os.Root, top string, text []byte, dry bool) (door.InitFile, error) {
	f := door.InitFile{Path: filepath.Join(top, config.ProjectFile), Text: string(text)}
	if _, err := root.Lstat(config.ProjectFile); err == nil {
		f.There = true
		if dry {
			return f, nil
		}
		return f, task.Errorf(task.CodeConflict, "wire.init", "%s is there already", f.Path).WithHint("`caisson init --print` shows what it would hold")
	}
	if dry {
		return f, nil
	}
	w, err := root.OpenFile(config.ProjectFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		_, err = w.Write(text)
		if serr := w.Sync(); err == nil {
			err = serr
		}
		if cerr := w.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		return f, task.Errorf(task.CodeConflict, "wire.init", "%s cannot be written: %w", f.Path, err).WithHint("`caisson init --print` shows what it would hold")
	}
	f.Written = true
	return f, sys.SyncDir(top)
}

// addSection puts the section for agents at the end of their file, once.
func addSection(root *os.Root, top string, dry bool) (door.InitFile, error) {
	f := door.InitFile{Path: filepath.Join(top, agentsFile), Text: string(detect.Agents())}
	no := func(err error) (door.InitFile, error) {
		return f, task.Errorf(task.CodeConflict, "wire.init", "%s cannot be written: %w", f.Path, err).WithHint("`caisson init --agents-md --print` shows the section")
	}
	fi, err := root.Lstat(agentsFile)
	var old []byte
	perm := os.FileMode(0o644)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return no(err)
	case !fi.Mode().IsRegular() || fi.Size() > maxAgents:
		return no(errors.New("it is a link, no file, or too long"))
	default:
		f.There, perm = true, fi.Mode().Perm()
		if old, err = root.ReadFile(agentsFile); err != nil {
			return no(err)
		}
	}
	if dry || bytes.Contains(old, []byte(detect.AgentsMark)) {
		return f, nil
	}
	text := old
	if len(text) > 0 {
		text = append(bytes.TrimRight(text, "\n"), "\n\n"...)
	}
	if err := sys.WriteFile(f.Path, append(text, detect.Agents()...), perm); err != nil {
		return no(err)
	}
	f.Written = true
	return f, nil
}
