package source

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/task"
)

// Bounds of what is read to judge a result, in bytes.
const (
	maxRiskBlob  = 64 << 20 // a larger file is listed as not examined
	maxRiskTotal = 1 << 30  // so is what comes after this much
	maxRiskText  = 16 << 20 // of a file that is parsed or compared; more counts as changed
	riskHead     = 4 << 10  // of every other file
)

// judgeContents reads every changed file once, and the old side of those whose
// rule compares both.
func (r *Result) judgeContents(ctx context.Context, cs []rawChange, l *riskList) error {
	var wants []blobWant
	for i := range cs {
		c := &cs[i]
		if c.Status == 'D' {
			continue
		}
		switch {
		case c.NewMode == modeLink:
			wants = append(wants, blobWant{oid: c.newOID, c: c, max: maxLinkTarget + 1})
		case c.isFile() && c.look != nil:
			if c.OldMode != 0 {
				wants = append(wants, blobWant{oid: c.oldOID, c: c, old: true, max: maxRiskText})
			}
			wants = append(wants, blobWant{oid: c.newOID, c: c, max: maxRiskText})
		case c.isFile():
			wants = append(wants, blobWant{oid: c.newOID, c: c, max: riskHead})
		}
	}
	before := map[*rawChange]*blobGot{}
	return r.readBlobs(ctx, wants, func(w blobWant, got *blobGot) {
		c := w.c
		switch {
		case w.old:
			before[c] = got
		case got == nil:
			l.add(c.Path, ruleUnread, whyOf(ruleUnread))
			if c.look != nil {
				l.add(c.Path, c.look.id, c.look.why)
			}
		case c.NewMode == modeLink:
			c.target, c.targetWhole = string(got.data), got.size == int64(len(got.data))
		default:
			if c.look != nil {
				old, hadOld := before[c]
				delete(before, c)
				switch {
				case got.size > int64(len(got.data)), hadOld && (old == nil || old.size > int64(len(old.data))):
					l.add(c.Path, c.look.id, "it is too large to be compared: "+c.look.why)
				default:
					var was []byte
					if hadOld {
						was = nonNilBytes(old.data)
					}
					if why := c.look.look(was, nonNilBytes(got.data)); why != "" {
						l.add(c.Path, c.look.id, why)
					} else if c.then != nil {
						l.add(c.Path, c.then.id, c.then.why)
					}
				}
			}
			c.judgeHead(got.data, l)
		}
	})
}

func nonNilBytes(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// judgeHead looks at how a file begins.
func (c *rawChange) judgeHead(head []byte, l *riskList) {
	newlyExec := c.NewMode&0o111 != 0 && (c.OldMode&0o170000 != 0o100000 || c.OldMode&0o111 == 0)
	switch kind := programKind(head); {
	case kind != "":
		l.add(c.Path, ruleExecutable, "it is a program: "+kind)
	case newlyExec:
		l.add(c.Path, ruleExecutable, "it is newly executable")
	case bytes.HasPrefix(head, []byte("#!")) && c.OldMode&0o170000 != 0o100000:
		l.add(c.Path, ruleExecutable, "it is a new script that names its interpreter")
	}
	if last := c.folded[len(c.folded)-1]; last == "head" && looksLikeHEAD(head) {
		l.add(c.Path, ruleBareRepo, whyOf(ruleBareRepo))
	}
}

// looksLikeHEAD reports whether git would take a folder with such a HEAD for a
// repository, as far as this file goes.
func looksLikeHEAD(b []byte) bool {
	s := strings.TrimSpace(string(b))
	return strings.HasPrefix(s, "ref:") || git.IsOID(strings.ToLower(s))
}

// programKind names the kind of binary that begins so; empty: none.
func programKind(b []byte) string {
	switch {
	case bytes.HasPrefix(b, []byte("\x7fELF")):
		return "an ELF binary"
	case bytes.HasPrefix(b, []byte("\xfe\xed\xfa\xce")), bytes.HasPrefix(b, []byte("\xfe\xed\xfa\xcf")),
		bytes.HasPrefix(b, []byte("\xce\xfa\xed\xfe")), bytes.HasPrefix(b, []byte("\xcf\xfa\xed\xfe")):
		return "a Mach-O binary"
	case bytes.HasPrefix(b, []byte("\xca\xfe\xba\xbe")), bytes.HasPrefix(b, []byte("\xca\xfe\xba\xbf")):
		return "a Mach-O binary or compiled Java"
	case bytes.HasPrefix(b, []byte("\x00asm")):
		return "a WebAssembly module"
	case bytes.HasPrefix(b, []byte("dex\n")):
		return "compiled Android code"
	case bytes.HasPrefix(b, []byte("MZ")) && isPE(b):
		return "a Windows or DOS binary"
	}
	return ""
}

// isPE tells a program from a text that begins with MZ: a program has bytes
// that no text has.
func isPE(b []byte) bool { return bytes.IndexByte(b, 0) >= 0 }

type blobWant struct {
	oid string
	c   *rawChange
	old bool
	max int // how much of it is wanted
}

type blobGot struct {
	data []byte // at most max
	size int64
}

// readBlobs reads objects with one git, in order. take gets nil for what is
// missing, no blob, or beyond the bounds.
func (r *Result) readBlobs(ctx context.Context, wants []blobWant, take func(blobWant, *blobGot)) error {
	if len(wants) == 0 {
		return nil
	}
	sizes, err := r.blobSizes(ctx, wants)
	if err != nil {
		return err
	}
	var ask bytes.Buffer
	total := int64(0)
	read := make([]bool, len(wants))
	for i, w := range wants {
		if sizes[i] < 0 || sizes[i] > maxRiskBlob || total+sizes[i] > maxRiskTotal {
			continue
		}
		total += sizes[i]
		read[i] = true
		ask.WriteString(w.oid + "\n")
	}
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		cmd := r.cmd("cat-file", "--batch", "--buffer")
		cmd.Stdin, cmd.Stdout = &ask, pw
		_, err := r.g.Run(ctx, cmd)
		pw.CloseWithError(err) // nil ends the stream
		done <- err
	}()
	in := bufio.NewReaderSize(pr, 64<<10)
	for i, w := range wants {
		var got *blobGot
		if read[i] {
			if got, err = readBlob(in, w); err != nil {
				break
			}
		}
		take(w, got)
	}
	pr.CloseWithError(errStopped)
	if runErr := <-done; err == nil && runErr != nil && !errors.Is(runErr, errStopped) {
		err = runErr
	}
	if err != nil {
		var te *task.Error
		if errors.As(err, &te) {
			return err
		}
		return task.Errorf(task.CodeSource, "source.risks", "the changed files cannot be read: %v", err)
	}
	return nil
}

var errStopped = errors.New("nobody reads any more")

// readBlob reads one answer of cat-file --batch.
func readBlob(in *bufio.Reader, w blobWant) (*blobGot, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	f := strings.Fields(line)
	if len(f) == 2 && f[1] == "missing" {
		return nil, nil
	}
	if len(f) != 3 || f[0] != w.oid {
		return nil, fmt.Errorf("git cat-file answered %q", strings.TrimSpace(line))
	}
	size, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil || size < 0 {
		return nil, fmt.Errorf("git cat-file answered %q", strings.TrimSpace(line))
	}
	got := &blobGot{size: size, data: make([]byte, min(size, int64(w.max)))}
	if _, err := io.ReadFull(in, got.data); err != nil {
		return nil, err
	}
	// The rest, and the line feed behind it.
	if _, err := io.CopyN(io.Discard, in, size-int64(len(got.data))+1); err != nil {
		return nil, err
	}
	return got, nil
}

// blobSizes asks for the sizes; -1 is what is no blob or not there.
func (r *Result) blobSizes(ctx context.Context, wants []blobWant) ([]int64, error) {
	var ask bytes.Buffer
	for _, w := range wants {
		ask.WriteString(w.oid + "\n")
	}
	cmd := r.cmd("cat-file", "--batch-check=%(objecttype) %(objectsize)", "--buffer")
	cmd.Stdin, cmd.Max = &ask, 1<<30
	out, err := r.g.Run(ctx, cmd)
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.risks", "the sizes of the changed files cannot be read: %v", err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(wants) {
		return nil, task.Errorf(task.CodeInternal, "source.risks", "git cat-file answered %d of %d questions", len(lines), len(wants))
	}
	sizes := make([]int64, len(wants))
	for i, line := range lines {
		sizes[i] = -1
		if s, ok := strings.CutPrefix(line, "blob "); ok {
			if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
				sizes[i] = n
			}
		}
	}
	return sizes, nil
}

// judgeModes looks at the mode bits of the task's own files.
func (r *Result) judgeModes(cs []rawChange, l *riskList) {
	if r.From != FromFiles {
		return
	}
	root, err := tree.OpenRoot(r.ws.source())
	if err != nil {
		return // gone by now; the objects were judged
	}
	defer root.Close()
	for i := range cs {
		c := &cs[i]
		if c.Status == 'D' || !c.isFile() {
			continue
		}
		info, err := root.Stat(string(c.Path))
		if err != nil || info.Kind != tree.File {
			continue
		}
		switch {
		case info.Mode&0o4000 != 0:
			l.add(c.Path, ruleMode, "the task's file is setuid: who runs it there gets its owner's rights")
		case info.Mode&0o2000 != 0:
			l.add(c.Path, ruleMode, "the task's file is setgid: who runs it there gets its group's rights")
		case info.Mode&0o002 != 0:
			l.add(c.Path, ruleMode, "the task's file can be written by everybody")
		}
	}
}
