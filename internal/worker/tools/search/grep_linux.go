package search

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// inlineBatches are searched by the walking goroutine itself: most searches are
// small, and helpers cost more than they help there.
const inlineBatches = 8

// maxHeld is how much text may wait for that of earlier files.
const maxHeld = 4 << 20

// found is what a batch brought.
type found struct {
	files    []contract.GrepFile
	searched int
	over     bool // the batch was not searched to its end: it has enough
	skip     contract.Skipped
	before   contract.Skipped
	text     int
	err      error
}

// Grep searches the files below a place. What it returns is in the order of the
// tree, whoever found it first, and the same for the same files.
func Grep(ctx context.Context, p Place, a *contract.GrepArgs) (*contract.GrepResult, error) {
	return grepWith(ctx, p, a, usual(a))
}

// limits of one search.
type limits struct {
	matches int // lines, or files
	text    int // bytes
}

func usual(a *contract.GrepArgs) limits {
	return limits{matches: bound(a.Limit, contract.GrepDefault, contract.GrepMax), text: contract.GrepText}
}

func grepWith(ctx context.Context, p Place, a *contract.GrepArgs, most limits) (*contract.GrepResult, error) {
	g, err := newGrep(ctx, a, most)
	if err != nil {
		return nil, err
	}
	defer g.cancel(nil)
	g.tell = newTeller(&p)
	w := &walk{ctx: g.ctx, place: p, noIgnore: a.NoIgnore, hidden: a.Hidden, emit: g.take}
	if a.Glob != "" {
		glob, fail := NewGlob(a.Glob)
		if fail != nil {
			return nil, fail
		}
		g.glob, w.enter = glob, glob.Enter
	}
	var end contract.Skipped
	walked := make(chan error, 1)
	go func() {
		err := w.run()
		end = w.skip
		close(g.queue)
		g.helping.Wait()
		dismiss(g.helpers)
		g.mu.Lock()
		g.walked = true
		g.mu.Unlock()
		g.wake()
		walked <- err
	}()
	enough, err := g.collect()
	g.cancel(errEnough)
	g.wake()
	if werr := <-walked; err == nil && !enough {
		err = werr
	}
	if err == nil && !enough {
		add(&g.res.Skipped, end)
	}
	return g.res, err
}

// GrepFile searches one open file, which the result calls name.
func GrepFile(ctx context.Context, fd int, name string, a *contract.GrepArgs) (*contract.GrepResult, error) {
	g, err := newGrep(ctx, a, usual(a))
	if err != nil {
		return nil, err
	}
	defer g.cancel(nil)
	s := newSearcher(g.ctx, &g.grepOptions, &g.large)
	err = s.search(fd, true)
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	if err != nil {
		s.skip.Unreadable++
	}
	g.merge(&found{files: g.result(nil, s, nil, []byte(name)), searched: 1, skip: s.skip, over: s.over})
	return g.res, nil
}

var errEnough = errors.New("search: enough was found")

// grep is one search.
type grep struct {
	grepOptions
	ctx    context.Context
	cancel context.CancelCauseFunc
	glob   *Glob
	res    *contract.GrepResult
	text   int // bytes in res
	large  sync.Mutex
	own    *searcher // of the walking goroutine
	tell   teller

	queue   chan *batch
	helping sync.WaitGroup
	helpers int
	seq     int // of the next batch

	mu     sync.Mutex
	cond   *sync.Cond
	done   map[int]*found
	head   int // the batch whose turn it is
	held   int // bytes in done
	walked bool
}

func newGrep(ctx context.Context, a *contract.GrepArgs, most limits) (*grep, error) {
	m, fail := newMatcher(a)
	if fail != nil {
		return nil, fail
	}
	g := &grep{res: &contract.GrepResult{Files: []contract.GrepFile{}}, done: map[int]*found{}, queue: make(chan *batch, 16)}
	g.grepOptions = grepOptions{m: m, output: a.Output, before: min(a.Before, contract.GrepContext), after: min(a.After, contract.GrepContext), most: most}
	if g.output == "" {
		g.output = "lines"
	}
	g.cond = sync.NewCond(&g.mu)
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	context.AfterFunc(g.ctx, g.wake)
	return g, nil
}

func bound(n, usual, most int) int {
	if n <= 0 {
		return usual
	}
	return min(n, most)
}

func (g *grep) wake() {
	g.mu.Lock()
	g.cond.Broadcast()
	g.mu.Unlock()
}

// take gets a batch from the walk: for a helper, or, when all are busy, it is
// searched at once.
func (g *grep) take(b *batch) error {
	b.seq = g.seq
	g.seq++
	if g.seq == inlineBatches {
		g.helpers = helpers()
		for range g.helpers {
			g.helping.Add(1)
			go func() {
				defer g.helping.Done()
				s := newSearcher(g.ctx, &g.grepOptions, &g.large)
				for b := range g.queue {
					g.search(s, b)
				}
			}()
		}
	}
	if g.helpers > 0 {
		select {
		case g.queue <- b:
			return nil
		default:
		}
	}
	if g.own == nil {
		g.own = newSearcher(g.ctx, &g.grepOptions, &g.large)
	}
	g.search(g.own, b)
	return context.Cause(g.ctx)
}

// search looks through a batch and hands on what it found.
func (g *grep) search(s *searcher, b *batch) {
	f := &found{before: b.before}
	func() {
		defer func() {
			// A fault must reach the one who asked, not end the process.
			if p := recover(); p != nil {
				s.release()
				f.err = contract.Fail(contract.Internal, "a fault of the search: %v", p)
			}
		}()
		f.err = g.batch(s, b, f)
	}()
	b.dir.release()
	g.mu.Lock()
	g.done[b.seq] = f
	g.held += f.text
	g.mu.Unlock()
	g.cond.Broadcast()
}

func (g *grep) batch(s *searcher, b *batch, f *found) error {
	s.skip = contract.Skipped{}
	defer func() { f.skip = s.skip }()
	var path []byte
	lines := 0
	return b.each(func(name []byte, typ byte) error {
		if f.over {
			return nil
		}
		if err := g.turn(b.seq, f); err != nil {
			return err
		}
		if g.glob != nil {
			if path = append(append(path[:0], b.path...), name...); !g.glob.Match(view(path)) {
				return nil
			}
		}
		switch typ {
		case unix.DT_REG:
		case unix.DT_LNK:
			return nil
		default:
			s.skip.Special++
			return nil
		}
		fd, errno := openIn(b.dir.fd, name)
		switch errno {
		case 0:
		case unix.ENOENT, unix.ELOOP: // gone, or a link by now
			return nil
		case unix.ENXIO, unix.ENODEV:
			s.skip.Special++
			return nil
		default:
			s.skip.Unreadable++
			return nil
		}
		err := s.search(fd, false)
		_ = unix.Close(fd)
		if cause := context.Cause(g.ctx); cause != nil {
			return cause
		}
		if err != nil {
			if err == errNotFile || err == unix.EAGAIN {
				s.skip.Special++
			} else {
				s.skip.Unreadable++
			}
		}
		f.searched++
		had := len(f.files)
		if f.files = g.result(f.files, s, []byte(b.path), name); len(f.files) > had {
			f.text += s.text + len(b.path) + len(name) + 64
			lines += s.out.Count
		}
		units := lines
		if g.output != "lines" {
			units = len(f.files)
		}
		f.over = s.over || units > g.most.matches || f.text > g.most.text
		return nil
	})
}

// turn waits while much text of later files is held, unless this batch is the
// one that all wait for.
func (g *grep) turn(seq int, f *found) error {
	if err := context.Cause(g.ctx); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.held+f.text > maxHeld && g.head != seq && g.ctx.Err() == nil {
		g.cond.Wait()
	}
	return context.Cause(g.ctx)
}

// result appends what the searcher has of a file, if anything.
func (g *grep) result(list []contract.GrepFile, s *searcher, dir, name []byte) []contract.GrepFile {
	if s.out.Count == 0 {
		return list
	}
	f := s.out
	if g.output == "files" {
		f.Count = 0
	}
	f.Path, f.PathBytes = texts(append(dir[:len(dir):len(dir)], name...))
	return append(list, f)
}

// collect puts the batches in order until all came or there is enough.
func (g *grep) collect() (enough bool, err error) {
	for {
		g.mu.Lock()
		for g.done[g.head] == nil && !g.walked && g.ctx.Err() == nil {
			g.cond.Wait()
		}
		f := g.done[g.head]
		if f == nil {
			g.mu.Unlock()
			return false, context.Cause(g.ctx)
		}
		delete(g.done, g.head)
		g.head++
		g.held -= f.text
		g.mu.Unlock()
		g.cond.Broadcast()
		if f.err != nil {
			return false, f.err
		}
		if g.merge(f) {
			add(&g.res.Skipped, f.before)
			return true, nil
		}
		g.tell.grep(g.res)
	}
}

// merge adds what was found and says whether that is enough.
func (g *grep) merge(f *found) bool {
	g.res.Searched += f.searched
	add(&g.res.Skipped, f.skip)
	for _, file := range f.files {
		room := g.most.matches - len(g.res.Files)
		if g.output == "lines" {
			room = g.most.matches - g.res.Matches
		}
		if room <= 0 || g.text > g.most.text {
			g.res.Truncated = true
			return true
		}
		if g.output == "lines" && !file.Binary && file.Count > room {
			file.Lines, file.Count = firstMatches(file.Lines, room), room
			g.res.Truncated = true
		}
		g.text += len(file.Path) + 64
		for i, l := range file.Lines {
			if g.text > g.most.text {
				g.res.Truncated = true
				file.Lines = file.Lines[:i]
				break
			}
			g.text += len(l.Text) + len(l.TextBytes) + 32
		}
		if len(file.Lines) > 0 && g.res.Truncated {
			file.Count = 0
			for _, l := range file.Lines {
				if l.Match {
					file.Count++
				}
			}
		}
		g.res.Matches += file.Count
		g.res.Files = append(g.res.Files, file)
		if g.res.Truncated {
			return true
		}
	}
	if f.over {
		g.res.Truncated = true
	}
	return f.over
}

// firstMatches keeps so many lines that match, and what stands between.
func firstMatches(lines []contract.GrepLine, n int) []contract.GrepLine {
	end := 0
	for i, l := range lines {
		if l.Match {
			if n == 0 {
				break
			}
			n--
		}
		if n == 0 && !l.Match && lines[i].Number != lines[i-1].Number+1 {
			break // before a match that is left out
		}
		end = i + 1
	}
	return lines[:end]
}

func add(to *contract.Skipped, s contract.Skipped) {
	to.Unreadable += s.Unreadable
	to.Special += s.Special
	to.Binary += s.Binary
	to.TooLarge += s.TooLarge
	to.TooDeep += s.TooDeep
	to.LongLines += s.LongLines
}
