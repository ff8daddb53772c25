package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Log is the one open writer of a task's evidence. Safe for concurrent use.
type Log struct {
	task   task.ID
	lock   *sys.FileLock
	redact *Redactor
	now    func() time.Time
	sync   func(*os.File) error

	// syncMu serialises fsync; whoever waits for it while another call's fsync
	// covers its line needs none of its own. It is taken before mu.
	syncMu sync.Mutex

	mu      sync.Mutex
	f       *os.File
	size    int64
	written Head // of the last line written
	durable Head // of the last line known to be on disk
	failed  error
}

// Open opens the log in dir for writing, creating both (0700, 0600). Only one
// process holds it at a time: another gets an error with code conflict. An
// incomplete last line, left by a crash, is cut off and the cut recorded as
// the next event. It costs one fsync. r may be nil; the caller closes the Log.
func Open(dir string, id task.ID, r *Redactor) (_ *Log, err error) {
	const op = "evidence.open"
	if r == nil {
		r = NewRedactor()
	}
	if err := sys.PrivateDir(dir); err != nil {
		return nil, fail(op, "cannot use the evidence folder: %w", err)
	}
	path := filepath.Join(dir, FileName)
	lock, err := sys.TryLock(path)
	if errors.Is(err, sys.ErrLocked) {
		return nil, task.Errorf(task.CodeConflict, op, "the evidence of task %s is being written by another process", id).
			WithHint("caisson show %s tells which process supervises it", id)
	}
	if err != nil {
		return nil, fail(op, "cannot open the evidence of task %s: %w", id, err)
	}
	l := writer(id, lock, r)
	defer func() {
		if err != nil {
			_ = lock.Unlock()
			if l.f != nil {
				_ = l.f.Close()
			}
		}
	}()
	l.f, err = os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fail(op, "cannot open the evidence of task %s: %w", id, err)
	}
	cut, err := l.resume()
	if err != nil {
		return nil, fail(op, "cannot continue the evidence of task %s: %w", id, err)
	}
	if l.written.Seq == 0 && cut == nil {
		// The file's own entry must be durable before a line in it can be.
		if err := sys.SyncDir(dir); err != nil {
			return nil, fail(op, "cannot open the evidence of task %s: %w", id, err)
		}
	}
	if cut != nil {
		body := map[string]any{"cut_bytes": len(cut), "cut_sha256": hexLeaf(cut)}
		if _, err := l.Append(context.Background(), LogRepaired, Actor{Kind: "caisson"}, body); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func writer(id task.ID, lock *sys.FileLock, r *Redactor) *Log {
	return &Log{task: id, lock: lock, redact: r, now: time.Now, sync: sys.Datasync}
}

// resume finds the last complete line and returns the bytes after it, which it
// has cut off.
func (l *Log) resume() (cut []byte, err error) {
	fi, err := l.f.Stat()
	if err != nil {
		return nil, err
	}
	// The last line and what may follow it lie within two maximal lines.
	from := max(0, fi.Size()-2*MaxLine)
	tail := make([]byte, fi.Size()-from)
	if _, err := l.f.ReadAt(tail, from); err != nil && err != io.EOF {
		return nil, err
	}
	end := bytes.LastIndexByte(tail, '\n') + 1
	l.written = Head{Hash: Genesis}
	if end == 0 && from > 0 {
		return nil, fmt.Errorf("the last line is longer than %d bytes: %w", MaxLine, ErrAltered)
	}
	if end > 0 {
		line := tail[bytes.LastIndexByte(tail[:end-1], '\n')+1 : end-1]
		var e Event
		if err := decodeLine(line, &e); err != nil || e.Seq == 0 {
			return nil, fmt.Errorf("the last line cannot be read: %w", ErrAltered)
		}
		if e.Task != l.task {
			return nil, fmt.Errorf("the log belongs to task %s: %w", e.Task, ErrAltered)
		}
		l.written = Head{Seq: e.Seq, Hash: hexLeaf(line)}
	}
	l.size = from + int64(end)
	if rest := tail[end:]; len(rest) > 0 {
		cut = bytes.Clone(rest)
		if err := l.f.Truncate(l.size); err != nil {
			return nil, err
		}
	}
	// A line that a killed process wrote may not have reached the disk; it is
	// about to become a predecessor.
	if fi.Size() > 0 {
		if err := l.sync(l.f); err != nil {
			return nil, err
		}
	}
	l.durable = l.written
	return cut, nil
}

// Append adds an event and returns when it is durable: one fsync, shared with
// calls made at the same time. Body is encoded as JSON after redaction; a
// string that is not UTF-8 becomes {"$base64": …}. When Append fails nothing
// may be done that the event was to announce. A ctx that has ended refuses the
// event with code canceled, as nothing that the log could not do; it does not
// interrupt a write: record outcomes on a detached context.
func (l *Log) Append(ctx context.Context, t Type, a Actor, body any) (uint64, error) {
	seq, err := l.AppendBulk(ctx, t, a, body)
	if err != nil {
		return 0, err
	}
	return seq, l.flush(seq)
}

// AppendBulk adds an event that need not be durable before the next Flush or
// Append.
func (l *Log) AppendBulk(ctx context.Context, t Type, a Actor, body any) (uint64, error) {
	const op = "evidence.append"
	if ctx.Err() != nil {
		return 0, task.Errorf(task.CodeCanceled, op, "event %s was not recorded: %w", t, context.Cause(ctx))
	}
	if !t.Known() {
		return 0, task.Errorf(task.CodeInternal, op, "there is no event type %q", t)
	}
	tree, n, err := l.redact.clean(body)
	if err != nil {
		return 0, task.Errorf(task.CodeInternal, op, "event %s cannot be encoded: %v", t, err)
	}
	raw, err := marshal(tree)
	if err != nil {
		return 0, task.Errorf(task.CodeInternal, op, "event %s cannot be encoded: %v", t, err)
	}
	var m int
	a.ID, m = l.redact.String(a.ID)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return 0, l.failed
	}
	if err := sys.Fault("evidence.append.before"); err != nil {
		return 0, fail(op, "event %s was not recorded: %w", t, err)
	}
	e := Event{Seq: l.written.Seq + 1, Time: l.now().UTC(), Type: t, Task: l.task, Actor: a, Body: raw, Redacted: n + m, Prev: l.written.Hash}
	line, err := marshal(e)
	if err != nil {
		return 0, task.Errorf(task.CodeInternal, op, "event %s cannot be encoded: %v", t, err)
	}
	if len(line)+1 > MaxLine {
		return 0, task.Errorf(task.CodeInternal, op, "event %s has %d bytes; a line has at most %d", t, len(line)+1, MaxLine)
	}
	if err := l.writeLocked(append(line, '\n')); err != nil {
		return 0, fail(op, "event %s was not recorded: %w", t, err).WithHint("check the disk that holds the state folder")
	}
	l.written = Head{Seq: e.Seq, Hash: hexLeaf(line)}
	if err := sys.Fault("evidence.append.written"); err != nil {
		return e.Seq, l.latchLocked(err)
	}
	return e.Seq, nil
}

// writeLocked writes one line whole or not at all. Needs mu.
func (l *Log) writeLocked(line []byte) error {
	if _, err := l.f.Write(line); err != nil {
		// Take back a part that was written (a full disk, say), so that the
		// log stays readable and can go on once there is room.
		if terr := l.f.Truncate(l.size); terr != nil {
			return l.latchLocked(errors.Join(err, terr))
		}
		return err
	}
	l.size += int64(len(line))
	return nil
}

// latchLocked makes every later call fail: after a failed fsync the kernel may
// have thrown the data away and report success the next time. Needs mu.
func (l *Log) latchLocked(err error) error {
	if l.failed == nil {
		l.failed = fail("evidence.append", "the evidence of task %s could not be made durable: %v: %w", l.task, err, ErrFailed).
			WithHint("check the disk that holds the state folder; the task takes no further commands")
	}
	return l.failed
}

// Size is how many bytes the log has.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Flush makes every event that was added so far durable.
func (l *Log) Flush() error {
	l.mu.Lock()
	seq := l.written.Seq
	l.mu.Unlock()
	return l.flush(seq)
}

func (l *Log) flush(seq uint64) error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	failed, to, f := l.failed, l.written, l.f
	done := l.durable.Seq >= seq
	l.mu.Unlock()
	if done {
		return nil
	}
	if failed != nil {
		return failed
	}
	err := l.sync(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		return l.latchLocked(err)
	}
	if err := sys.Fault("evidence.append.synced"); err != nil {
		return l.latchLocked(err)
	}
	l.durable = to
	return nil
}

// Head returns how far the log is durable. Keep it where the log is not: it is
// what shows a tail that was cut.
func (l *Log) Head() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable
}

// Err returns why the log takes no more events, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Close flushes and closes the log and lets another process have it.
func (l *Log) Close() error {
	err := l.Flush()
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	cerr := l.f.Close()
	l.f = nil
	if l.failed == nil {
		l.failed = fail("evidence.append", "the evidence of task %s is closed", l.task)
	}
	return errors.Join(err, cerr, l.lock.Unlock())
}

// marshal encodes without escaping <, > and &, which people would have to read.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}
