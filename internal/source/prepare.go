package source

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("source.framed", "source.pinned", "source.checkedout", "source.imported", "source.stored", "source.published", "source.unpinned")

// Inside says how the task's clone must look from inside.
type Inside struct {
	ObjectsDir string // where Repo.Objects[i] appears, as ObjectsDir/i
	UID, GID   int    // the owner of the files as seen inside
	Disk       int64  // bytes that the task may have on disk; 0: no limit
	// Framed is called once the folder of the task's files is there and can be
	// mounted, while it is still being filled; by the strategies clone and copy
	// alone. May be nil.
	Framed func()
}

// Prepared is what Prepare made.
type Prepared struct {
	Ref    task.SourceRef // with notes found on the way
	Source string         // the task's checkout; mount it writable
	Shadow string         // host-owned; never mount it
	// Objects are the stores to mount read-only. Empty: self-contained.
	Objects []string
	Pins    int // refs written below refs/caisson/<id>/pin/
}

// prepareClone makes a private clone.
func prepareClone(ctx context.Context, r *Repo, ws Workspace, in Inside) (*Prepared, error) {
	p := &preparation{r: r, ws: ws, in: in, pinned: r.Pinnable && len(r.Tips) > 0, shared: r.Ref.Shared}
	if err := p.folders(); err != nil {
		return nil, err
	}
	if err := sys.Fault("source.framed"); err != nil {
		return nil, err
	}
	if in.Framed != nil {
		in.Framed()
	}
	if err := p.clone(ctx); err != nil {
		return nil, err
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	return p.prepared(), nil
}

// clone pins what is shared, writes both repositories and checks the base out.
func (p *preparation) clone(ctx context.Context) error {
	if !p.shared || p.r.Ref.Dirty != task.DirtyNone {
		if err := p.hold(ctx); err != nil {
			return err
		}
		if err := p.repositories(ctx); err != nil {
			return err
		}
		return p.files(ctx, p.connected)
	}
	// The objects are there, as a rule: nothing waits for the pins but the check
	// that they hold everything, and that comes after the last object was read.
	tips := len(p.r.Tips)
	if err := p.repositories(ctx); err != nil {
		return err
	}
	err := p.files(ctx, func(ctx context.Context) error {
		if err := p.hold(ctx); err != nil {
			return err
		}
		return p.connected(ctx)
	})
	if err != nil || p.shared && len(p.r.Tips) == tips {
		return err
	}
	// They are not after all, or not for everything.
	if err := os.Remove(p.ws.source() + "/.git/objects/info/alternates"); err != nil {
		return p.fail("the task's repository cannot be written", err)
	}
	return p.repositories(ctx)
}

// hold pins what is shared.
func (p *preparation) hold(ctx context.Context) error {
	if p.pinned {
		if err := p.pin(ctx); err != nil {
			return err
		}
	}
	return sys.Fault("source.pinned")
}

// repositories writes the host's repository and the task's.
func (p *preparation) repositories(ctx context.Context) error {
	if err := p.shadow(); err != nil {
		return err
	}
	if err := p.packs(ctx); err != nil {
		return err
	}
	return p.repository()
}

// prepared says what was made.
func (p *preparation) prepared() *Prepared {
	r := p.r
	out := &Prepared{Ref: r.Ref, Source: p.ws.source(), Shadow: p.ws.shadow()}
	out.Ref.Shared = p.shared
	out.Ref.Notes = slices.Concat(r.Ref.Notes, p.pinNotes, p.notes)
	if p.shared {
		out.Objects = r.Objects
	}
	if p.pinned {
		out.Pins = len(r.Tips)
	}
	return out
}

// files checks the base out while check makes sure that a concurrent `git gc`
// takes nothing away: neither waits for the other.
func (p *preparation) files(ctx context.Context, check func(context.Context) error) error {
	var wg sync.WaitGroup
	var checkErr error
	cctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wg.Add(1)
	go func() {
		defer wg.Done()
		if checkErr = check(cctx); checkErr != nil {
			cancel(checkErr)
		}
	}()
	err := p.checkedOut(cctx)
	if err != nil {
		cancel(err)
	}
	wg.Wait()
	switch {
	case err != nil && (checkErr == nil || task.CodeOf(checkErr) == task.CodeCanceled):
		return err // the check was only stopped because of it
	case checkErr != nil:
		return checkErr
	}
	return sys.Fault("source.checkedout")
}

// checkedOut makes the files: the base's, or the user's uncommitted ones.
func (p *preparation) checkedOut(ctx context.Context) (err error) {
	if p.r.Ref.Dirty == task.DirtyNone {
		return p.checkout(ctx, p.r.Ref.Base)
	}
	p.ws.say("looking at your checkout")
	if p.carried, err = p.ws.capture(ctx, p.r); err != nil {
		return err
	}
	tree := p.carried.index
	if p.r.Ref.Base == "" && p.carried.staged == 0 {
		tree = ""
	}
	if err := p.checkout(ctx, tree); err != nil {
		return err
	}
	return p.bring(ctx)
}

type preparation struct {
	r      *Repo
	ws     Workspace
	in     Inside
	pinned bool
	shared bool
	notes  []string
	// pinNotes are those of pin, which runs beside the checkout.
	pinNotes []string
	head     string
	// With uncommitted state: what that is, the tree it makes when that is not
	// the base's, and the newest that was put there.
	carried   *carried
	startTree string
	last      tree.Info
	begun     tree.Info         // before anything was put there
	filled    []string          // submodules that were given their files
	told      bool              // the notes say what became of submodules
	trusted   map[string]string // what of the user's own git directory host git trusts
}

func (p *preparation) fail(what string, err error) error {
	if err == nil {
		return nil
	}
	code := task.CodeOf(err)
	if code == task.CodeInternal {
		code = task.CodeSource
	}
	return &task.Error{Code: code, Op: "source.prepare", Msg: what, Hint: task.HintOf(err), Err: err}
}

// folders makes the frames of both repositories. That neither exists yet is
// part of the contract: a half-made one is removed first.
func (p *preparation) folders() error {
	if err := p.tops(); err != nil {
		return err
	}
	return p.frames(p.ws.source()+"/.git", p.ws.shadow())
}

// tops makes the folder of the task's files and the host's own beside it.
func (p *preparation) tops() error {
	for _, d := range []string{p.ws.source(), p.ws.shadow()} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return task.Errorf(task.CodeConflict, "source.prepare", "the task's source cannot be made: %v", err)
		}
	}
	st, err := os.Stat(p.ws.shadow())
	if err != nil {
		return p.fail("the time cannot be read", err)
	}
	p.begun = tree.Info{CtimeS: st.ModTime().Unix(), CtimeN: uint32(st.ModTime().Nanosecond())} //nolint:gosec // below 1e9
	if err := os.Chmod(p.ws.source(), 0o755); err != nil {                                      //nolint:gosec // the folder above is private
		return p.fail("the task's source cannot be made", err)
	}
	return nil
}

// frames makes the folders that git directories consist of.
func (p *preparation) frames(tops ...string) error {
	for _, top := range tops {
		for _, d := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags", "info"} {
			if err := os.MkdirAll(filepath.Join(top, d), 0o755); err != nil { //nolint:gosec // below the private task folder
				return p.fail("the task's repository cannot be made", err)
			}
		}
	}
	return nil
}

// pin holds every shared object in the user's repository by one transaction.
func (p *preparation) pin(ctx context.Context) error {
	err := p.pinOnce(ctx)
	if git.Status(err) < 0 {
		return p.fail("the objects cannot be pinned", err)
	}
	// A ref of the user's may name an object that is gone. The task does not
	// get those; everything else is pinned.
	missing, merr := p.missing(ctx)
	if merr != nil {
		return p.fail("the objects cannot be pinned", merr)
	}
	if missing[p.r.Ref.Base] {
		return broken("run `git fsck`", "the base commit %s is not complete in the repository", p.r.Ref.Base)
	}
	if len(missing) > 0 {
		var tips []string
		for _, t := range p.r.Tips {
			if !missing[t] {
				tips = append(tips, t)
			}
		}
		var refs []Ref
		for _, ref := range p.r.Refs {
			if missing[ref.Object] {
				p.pinNotes = append(p.pinNotes, "left out, its object is missing: "+ref.Name)
				continue
			}
			refs = append(refs, ref)
		}
		p.r.Tips, p.r.Refs = tips, refs
		if err = p.pinOnce(ctx); err == nil {
			return nil
		}
	}
	// Refs cannot be written after all (read-only file system, a lock that
	// stays, no space): nothing is shared then.
	p.pinned, p.shared = false, false
	p.pinNotes = append(p.pinNotes, "self-contained clone: refs cannot be written into the repository: "+err.Error())
	return nil
}

func (p *preparation) pinOnce(ctx context.Context) error {
	var b strings.Builder
	b.WriteString("start\n")
	for i, t := range p.r.Tips {
		fmt.Fprintf(&b, "update %spin/%d %s\n", refPrefix(p.ws.Task), i, t)
	}
	b.WriteString("prepare\ncommit\n")
	_, err := p.r.git.Run(ctx, git.Cmd{GitDir: p.r.Ref.CommonDir, Args: []string{"update-ref", "--no-deref", "--stdin"}, Stdin: strings.NewReader(b.String())})
	return err
}

// missing asks which tips are not in the object store.
func (p *preparation) missing(ctx context.Context) (map[string]bool, error) {
	out, err := p.r.git.Run(ctx, git.Cmd{
		GitDir: p.r.Ref.CommonDir, Args: []string{"cat-file", "--batch-check=%(objecttype)"},
		Stdin: strings.NewReader(strings.Join(p.r.Tips, "\n") + "\n"),
	})
	if err != nil {
		return nil, err
	}
	m := map[string]bool{}
	for _, line := range strings.Split(string(out), "\n") {
		if oid, ok := strings.CutSuffix(line, " missing"); ok {
			m[oid] = true
		}
	}
	return m, nil
}

// shadow writes the host-owned repository.
func (p *preparation) shadow() error {
	var refs strings.Builder
	refs.WriteString("# pack-refs with: sorted \n")
	for i, t := range p.r.Tips {
		fmt.Fprintf(&refs, "%s refs/tips/%08d\n", t, i)
	}
	files := map[string]string{
		"HEAD":            "ref: refs/heads/none\n",
		"config":          p.config(true),
		"packed-refs":     refs.String(),
		"info/exclude":    string(p.r.excludes),
		"info/attributes": string(p.r.attrs),
	}
	if p.r.objects != "" {
		files["objects/info/alternates"] = p.r.objects + "\n"
	}
	if len(p.r.shallow) > 0 {
		files["shallow"] = string(p.r.shallow)
	}
	return p.write(p.ws.shadow(), files)
}

func (p *preparation) write(top string, files map[string]string) error {
	for name, text := range files {
		path := filepath.Join(top, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755) //nolint:gosec // below the private task folder
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // see above
		}
		if err != nil {
			return p.fail("the task's repository cannot be written", err)
		}
	}
	return nil
}

// packs makes the clone self-contained where objects are not shared.
func (p *preparation) packs(ctx context.Context) error {
	if p.shared || len(p.r.Tips) == 0 {
		return nil
	}
	p.ws.say("copying objects")
	dir := p.ws.source() + "/.git/objects/pack"
	var want strings.Builder
	if p.r.Ref.History == task.HistoryNone {
		// The base keeps its own name, and git inside sees it as a shallow
		// clone's only commit: parents are named but not there.
		want.WriteString("--shallow " + p.r.Ref.Base + "\n")
	}
	want.WriteString(strings.Join(p.r.Tips, "\n") + "\n")
	_, err := p.r.git.Run(ctx, git.Cmd{
		GitDir: p.ws.shadow(), Stdin: strings.NewReader(want.String()), Progress: p.ws.Progress,
		Args: []string{"pack-objects", "--revs", "--delta-base-offset", "--progress", dir + "/pack"},
	})
	if err != nil {
		return p.fail("the objects cannot be copied", err)
	}
	if p.pinned {
		return nil
	}
	// The user's store may lose what is not pinned, so the host's view gets a
	// copy of its own. Never a hard link: the task can write to its pack.
	packs, err := os.ReadDir(dir)
	if err != nil {
		return p.fail("the objects cannot be copied", err)
	}
	for _, f := range packs {
		if err := copyFile(filepath.Join(dir, f.Name()), filepath.Join(p.ws.shadow(), "objects/pack", f.Name()), 0o444); err != nil {
			return p.fail("the objects cannot be copied", err)
		}
	}
	if p.r.Ref.History == task.HistoryNone {
		if err := os.WriteFile(p.ws.shadow()+"/shallow", []byte(p.r.Ref.Base+"\n"), 0o644); err != nil { //nolint:gosec // private folder
			return p.fail("the objects cannot be copied", err)
		}
	}
	return p.fail("the objects cannot be copied", os.Remove(p.ws.shadow()+"/objects/info/alternates"))
}

// copyFile copies by reflink where the file system can.
func copyFile(from, to string, mode os.FileMode) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	return err
}

// repository writes the task's own git directory.
func (p *preparation) repository() error {
	r := p.r
	switch {
	case r.Ref.Branch != "":
		p.head = "ref: refs/heads/" + r.Ref.Branch + "\n"
	default:
		p.head = r.Ref.Base + "\n"
	}
	files := map[string]string{
		"HEAD":            p.head,
		"config":          p.config(false),
		"description":     "the private clone of a caisson task\n",
		"info/exclude":    string(r.excludes),
		"info/attributes": string(r.attrs),
	}
	var packed strings.Builder
	packed.WriteString("# pack-refs with: sorted \n")
	for _, ref := range r.Refs {
		if ref.Symref != "" {
			if git.ValidRef(ref.Symref) {
				files[ref.Name] = "ref: " + ref.Symref + "\n"
			}
			continue
		}
		fmt.Fprintf(&packed, "%s %s\n", ref.Object, ref.Name)
	}
	files["packed-refs"] = packed.String()
	switch {
	case r.Ref.History == task.HistoryNone && r.Ref.Base != "":
		files["shallow"] = r.Ref.Base + "\n"
	case len(r.shallow) > 0:
		files["shallow"] = string(r.shallow)
	}
	if p.shared {
		var alt strings.Builder
		for i := range r.Objects {
			fmt.Fprintf(&alt, "%s/%d\n", p.in.ObjectsDir, i)
		}
		files["objects/info/alternates"] = alt.String()
	}
	return p.write(p.ws.source()+"/.git", files)
}

// config renders the configuration of one of the two repositories.
func (p *preparation) config(bare bool) string {
	c := gitConfig(p.r.format, bare, p.r.settings)
	if !bare {
		c += fmt.Sprintf("[user]\n\tname = %s\n\temail = %s\n", configValue(p.r.Identity.Name), configValue(p.r.Identity.Email))
	}
	return c
}

// gitConfig renders the configuration of a git directory of ours; settings are
// core.… as carried from the user.
func gitConfig(format string, bare bool, settings [][2]string) string {
	var b strings.Builder
	version := 0
	if format != "sha1" {
		version = 1
	}
	fmt.Fprintf(&b, "[core]\n\trepositoryformatversion = %d\n\tfilemode = true\n\tbare = %t\n\tlogallrefupdates = %t\n", version, bare, !bare)
	for _, kv := range settings {
		fmt.Fprintf(&b, "\t%s = %s\n", strings.TrimPrefix(kv[0], "core."), configValue(kv[1]))
	}
	if version == 1 {
		fmt.Fprintf(&b, "[extensions]\n\tobjectformat = %s\n", format)
	}
	return b.String()
}

// configValue quotes a value for a configuration file.
func configValue(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\x00", "").Replace(s) + `"`
}

// connected makes sure that a `git gc` between looking and pinning took
// nothing: what hangs on a live ref is safe by that ref, all else is walked.
func (p *preparation) connected(ctx context.Context) error {
	if !p.pinned || p.allLive(ctx) {
		return nil
	}
	_, err := p.r.git.Run(ctx, git.Cmd{
		GitDir: p.r.Ref.CommonDir, Stdin: strings.NewReader(strings.Join(p.r.Tips, "\n") + "\n"), Stdout: io.Discard,
		Args: []string{"rev-list", "--objects", "--quiet", "--ignore-missing", "--stdin", "--not", "--branches", "--tags", "--remotes"},
	})
	if git.Status(err) > 0 {
		return task.Errorf(task.CodeSource, "source.prepare", "objects of the base are missing or were just removed from the repository: %v", err).
			WithHint("run `git fsck`, then try again")
	}
	return err
}

// checkout writes the files. The git directory is ours, so no filter, hook or
// attribute driver exists that could run.
func (p *preparation) checkout(ctx context.Context, treeish string) error {
	if treeish == "" {
		return nil
	}
	if err := p.foldsHere(ctx, treeish); err != nil {
		return err
	}
	p.ws.say("checking files out")
	cmd := git.Cmd{
		GitDir: p.ws.source() + "/.git", WorkTree: p.ws.source(), Progress: p.ws.Progress,
		Env:    []string{"GIT_OBJECT_DIRECTORY=" + p.ws.shadow() + "/objects"},
		Config: []string{"index.version=2", "checkout.workers=0"},
		Args:   []string{"read-tree", "--reset", "-u", "-v", treeish},
	}
	if p.r.Ref.Strategy != task.StrategyClone {
		// The files have no git directory of their own.
		cmd.GitDir, cmd.Env = p.ws.shadow(), []string{"GIT_INDEX_FILE=" + p.ws.shadow() + "/" + baseIndex}
		cmd.Config = append(cmd.Config, "core.bare=false")
	}
	index := p.ws.source() + "/.git/index"
	if p.r.Ref.Strategy != task.StrategyClone {
		index = p.ws.shadow() + "/" + baseIndex
	}
	_, err := p.r.git.Run(ctx, cmd)
	if err == nil && p.recodes(index) {
		// Workers that check files out beside each other convert to another
		// encoding with freed memory (git 2.39, and none is known to be free of
		// it): such files are then as they are in the object, or worse.
		if err = os.Remove(index); err == nil {
			cmd.Config = append(cmd.Config, "checkout.workers=1")
			_, err = p.r.git.Run(ctx, cmd)
		}
	}
	if git.Status(err) > 0 {
		// The check beside this one finds it too, and cancels.
		if missing, lerr := p.r.lacks(context.WithoutCancel(ctx), treeish); lerr == nil && missing && treeish == p.r.Ref.Base {
			return broken("run `git fsck` there, and fetch or restore what is missing", "objects of the base %s are missing in the repository", treeish)
		}
		if strings.Contains(err.Error(), "invalid path") {
			// A name that leads out of the checkout or into .git: git takes it nowhere.
			return broken("name a commit without it with --base; `git fsck` there lists such names", "the base cannot be checked out: %v", err)
		}
	}
	if err != nil {
		return p.fail("the base cannot be checked out", err)
	}
	return p.fill(ctx, index)
}
