package source

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// finish records the stat cache and everything later calls need.
func (p *preparation) finish() error {
	if p.r.Ref.Strategy != task.StrategyClone {
		return p.record()
	}
	var raw []byte
	var entries []indexEntry
	var err error
	if path := p.ws.source() + "/.git/index"; p.r.Ref.Base != "" || exists(path) {
		if raw, err = os.ReadFile(path); err != nil {
			return p.fail("the index cannot be read", err)
		}
		if entries, err = parseIndex(raw, p.r.format); err != nil {
			return err
		}
		if p.carried == nil { // else bring has written what the files are
			if err := os.WriteFile(p.ws.shadow()+"/"+baseIndex, raw, 0o600); err != nil {
				return p.fail("the index cannot be copied", err)
			}
		}
		own := ownIndex(raw, entries, p.r.format, uint32(p.in.UID), uint32(p.in.GID)) //nolint:gosec // ids
		if err := os.WriteFile(path, own, 0o644); err != nil {                        //nolint:gosec // the task's own
			return p.fail("the index cannot be written", err)
		}
	}
	p.look(entries)
	// The clock of the file system that holds the files, not of the process.
	mark, err := os.Stat(p.ws.source() + "/.git/HEAD")
	if len(entries) > 0 && err == nil {
		mark, err = os.Stat(p.ws.source() + "/.git/index")
	}
	if err != nil {
		return p.fail("the time cannot be read", err)
	}
	return p.save(mark.ModTime())
}

// record is finish for files without a git directory of their own: the shadow
// repository has the only index.
func (p *preparation) record() error {
	path := p.ws.shadow() + "/" + baseIndex
	if p.r.Ref.Base == "" && p.startTree == "" {
		path = p.ws.shadow() + "/mark" // nothing is recorded of any file
		return p.mark(path, nil)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return p.fail("the index cannot be read", err)
	}
	entries, err := parseIndex(raw, p.r.format)
	if err != nil {
		return err
	}
	p.look(entries)
	return p.mark(path, raw)
}

// mark writes a file after the last one of the task's: its time is that of the
// file system's own clock, and later than theirs.
func (p *preparation) mark(path string, raw []byte) error {
	if err := writeFile(path, raw, 0o600); err != nil {
		return p.fail("the index cannot be written", err)
	}
	st, err := os.Stat(path)
	if err != nil {
		return p.fail("the time cannot be read", err)
	}
	if p.ws.Files != "" && deviceOf(p.ws.Files) != deviceOf(p.ws.Dir) {
		// Another machine's clock may be behind: everything is read again.
		if _, network, err := sys.IsNetworkFS(p.ws.Files); err != nil || network {
			return p.save(time.Unix(0, 0))
		}
	}
	return p.save(st.ModTime())
}

// save writes the state. Entries changed at mark or later count as changed.
func (p *preparation) save(mark time.Time) error {
	s := state{
		Version: 1, Task: p.ws.Task, Repo: p.r.Ref.Repo, CommonDir: p.r.Ref.CommonDir, Format: p.r.format,
		Strategy: p.r.Ref.Strategy, Base: p.r.Ref.Base, Branch: p.r.Ref.Branch, History: p.r.Ref.History, Pinned: p.pinned, Tips: p.r.Tips, Refs: p.r.Refs,
		Dirty: p.r.Ref.Dirty, Start: p.r.Ref.Start, StartTree: p.startTree, Trusted: p.trusted, Filled: p.filled, Head: p.head, Identity: p.r.Identity, CutoffS: mark.Unix(), CutoffN: uint32(mark.Nanosecond()), //nolint:gosec // below 1e9
		BegunS: p.begun.CtimeS, BegunN: p.begun.CtimeN,
	}
	if p.last.CtimeS != 0 {
		if err := p.ws.cutOff(&s, p.last); err != nil {
			return p.fail("the time cannot be read", err)
		}
	}
	if err := p.ws.keepTold(&s, p.r); err != nil {
		return p.fail("what the repository says of itself cannot be kept", err)
	}
	return p.fail("the record cannot be written", p.ws.saveState(&s))
}

// look adds notes about what the files alone do not give.
func (p *preparation) look(entries []indexEntry) {
	links, lfs := 0, false
	for _, e := range entries {
		switch {
		case e.mode == gitlink:
			links++
		case !lfs && e.mode != 0o120000 && filepath.Base(e.path) == ".gitattributes":
			// Nothing has run in the tree yet, but the tree may hold links.
			if b, err := readBelow(p.ws.source(), e.path, 1<<20); err == nil && strings.Contains(string(b), "filter=lfs") {
				lfs = true
			}
		}
	}
	if links > 0 && !p.told && p.ws.Files == "" {
		p.notes = append(p.notes, plural(links, "submodule folder")+" "+isAre(links)+" empty: .gitmodules does not say what belongs there")
	}
	if lfs {
		p.notes = append(p.notes, "Git LFS files are pointers: their content is not fetched")
	}
}
