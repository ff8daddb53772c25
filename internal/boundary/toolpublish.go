package boundary

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/approval"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

const (
	// artifactsDir is in a task's folder, beside its record, and stays with it.
	artifactsDir = "artifacts"
	maxArtifact  = 1 << 30
	maxArtifacts = 256
)

// inOut is a path of the output store as the inside names it; a relative one is
// relative to that store.
func (l *live) inOut(p string) string {
	if !filepath.IsAbs(p) {
		p = filepath.Join(l.spec.Out.Target, p)
	}
	return filepath.Clean(p)
}

// publish copies a file of the output store to where the task cannot reach it.
func (m *Manager) publish(ctx context.Context, l *live, k *toolCall, a *contract.PublishArtifactArgs) (*contract.PublishArtifactResult, error) {
	inside := k.names[0]
	rel, ok := strings.CutPrefix(inside, l.spec.Out.Target+"/")
	if !ok {
		return nil, contract.Fail(contract.Outside, "%s is not in the output store; copy it to %s first", short(inside, 200), l.spec.Out.Target)
	}
	// One at a time: names are handed out and counted.
	l.results.Lock()
	defer l.results.Unlock()
	t, err := m.cfg.DB.Task(ctx, l.id)
	if err != nil {
		return nil, err
	}
	if len(t.View.Artifacts) >= maxArtifacts {
		return nil, contract.Fail(contract.Limit, "the task has published %d files already", maxArtifacts)
	}
	root, err := tree.OpenUser(l.spec.Out.Source)
	if err != nil {
		return nil, task.Errorf(task.CodeStateStore, "tool", "the output store cannot be opened: %w", err)
	}
	defer root.Close()
	f, _, err := root.Open(rel)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, contract.Fail(contract.NotFound, "%s does not exist", short(inside, 200))
	case errors.Is(err, tree.ErrKind):
		return nil, contract.Fail(contract.NotRegular, "%s is no ordinary file", short(inside, 200))
	case errors.Is(err, os.ErrPermission):
		return nil, contract.Fail(contract.Permission, "%s cannot be read", short(inside, 200))
	case err != nil:
		return nil, contract.Fail(contract.Outside, "%s cannot be reached without a link or a mount in between: copy the file itself to %s", short(inside, 200), l.spec.Out.Target)
	}
	defer f.Close()
	art := task.Artifact{Name: artifactName(len(t.View.Artifacts)+1, rel), Title: short(approval.Visible(a.Title), 200), Inside: inside, Published: time.Now().UTC()}
	if err := m.keepArtifact(ctx, l, f, &art); err != nil {
		return nil, err
	}
	body := map[string]any{"call": k.id, "name": art.Name, "inside": inside, "size": art.Size, "sha256": art.SHA256, "mime": art.MIME, "title": art.Title}
	if _, err := l.log.Append(ctx, evidence.ArtifactKept, self, body); err != nil {
		return nil, err
	}
	if err := m.cfg.DB.Update(ctx, l.id, func(v *task.View) { v.Artifacts = append(v.Artifacts, art) }); err != nil {
		return nil, err
	}
	return &contract.PublishArtifactResult{Artifact: art.Name, Path: inside, Title: art.Title, MIME: art.MIME, Size: art.Size, SHA256: art.SHA256}, nil
}

// keepArtifact copies what is in f and says what it was.
func (m *Manager) keepArtifact(ctx context.Context, l *live, f *os.File, art *task.Artifact) (err error) {
	dir := filepath.Join(l.dir, artifactsDir)
	if err := sys.PrivateDir(dir); err != nil {
		return task.Errorf(task.CodeStateStore, "tool", "the folder for artifacts cannot be made: %w", err)
	}
	art.Path = filepath.Join(dir, art.Name)
	to, err := os.OpenFile(art.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return task.Errorf(task.CodeStateStore, "tool", "the artifact cannot be kept: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(art.Path))
		}
	}()
	sum := sha256.New()
	head := &firstBytes{}
	art.Size, err = io.Copy(io.MultiWriter(to, sum, head), io.LimitReader(&interruptible{ctx, f}, maxArtifact+1))
	if err == nil && art.Size > maxArtifact {
		err = contract.Fail(contract.TooBig, "an artifact has at most %d bytes", maxArtifact)
	}
	if err == nil {
		err = to.Sync()
	}
	if cerr := to.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = sys.SyncDir(dir)
	}
	if err != nil {
		var bad *contract.Failure
		if errors.As(err, &bad) {
			return err
		}
		return task.Errorf(task.CodeStateStore, "tool", "the artifact cannot be kept: %w", err)
	}
	art.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if art.MIME = mime.TypeByExtension(filepath.Ext(art.Name)); art.MIME == "" {
		art.MIME = http.DetectContentType(head.b)
	}
	return nil
}

// interruptible reads until ctx ends.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i *interruptible) Read(p []byte) (int, error) {
	if i.ctx.Err() != nil {
		return 0, context.Cause(i.ctx)
	}
	return i.r.Read(p)
}

// firstBytes keeps what a type is guessed from.
type firstBytes struct{ b []byte }

func (f *firstBytes) Write(p []byte) (int, error) {
	f.b = append(f.b, p[:min(len(p), 512-len(f.b))]...)
	return len(p), nil
}

// artifactName is a name that is safe on every file system and in every shell.
func artifactName(n int, path string) string {
	base := filepath.Base(path)
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '_'
	}, base)
	clean = strings.TrimLeft(clean, ".-")
	if len(clean) > 100 {
		clean = clean[len(clean)-100:]
	}
	return fmt.Sprintf("%d-%s", n, clean)
}

// dropSpills removes the files that caisson itself put into the output store:
// else a long output would keep the store of a task that is to go.
func (l *live) dropSpills() {
	l.tools.mu.Lock()
	defer l.tools.mu.Unlock()
	if len(l.tools.spills) == 0 {
		return
	}
	root, err := os.OpenRoot(l.spec.Out.Source)
	if err != nil {
		return
	}
	defer root.Close()
	for name, was := range l.tools.spills {
		if i, err := root.Lstat(name); err == nil && os.SameFile(i, was) {
			_ = root.Remove(name)
		}
	}
	l.tools.spills = nil
}
