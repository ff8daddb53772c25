package inside

import (
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/worker/frame"
	"github.com/caisson-dev/caisson/internal/worker/tools"
)

// self is the worker's own program. No boundary mounts it, so this link is
// the only way to start it again.
const self = "/proc/self/exe"

// runInit is W's builder: it makes the boundary and the tool space in it, drops
// on its one thread what W must not keep, and becomes the relay.
func runInit(h Hooks) int {
	if !onlyChannel() {
		return ExitInherit
	}
	syscall.Clearenv()
	runtime.LockOSThread()
	unignore()
	err := build(h)
	_ = h.Report(ChannelFD, 0, -1, err)
	return ExitSetup
}

// build does not return unless it fails.
func build(h Hooks) error {
	b, err := h.Build(ChannelFD)
	if err != nil {
		return err
	}
	// Only a dumpable process may write its child's id maps without privilege.
	// An unreadable program file made this one non-dumpable, and makes what it
	// becomes so from its first instruction.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return err
	}
	sock, pid, err := startSpace(b)
	if err != nil {
		return err
	}
	// The maps of I are written: from here W needs nothing of what it drops, and
	// both seal themselves at the same time.
	if err := h.DropWorker(); err != nil {
		return err
	}
	if err := leave(sock, b.File); err != nil {
		return err
	}
	return become(RoleRelay, strconv.Itoa(pid))
}

// leave puts the descriptors that the relay needs in their places, open across
// exec; everything else closes there.
func leave(sock, file int) error {
	// By way of numbers above the places, so that none is overwritten.
	for _, f := range []*int{&sock, &file} {
		if *f < 0 {
			continue
		}
		high, err := unix.FcntlInt(uintptr(*f), unix.F_DUPFD_CLOEXEC, lastPlace+1)
		if err != nil {
			return err
		}
		*f = high
	}
	if err := unix.Dup3(sock, spaceFD, 0); err != nil {
		return err
	}
	if file >= 0 {
		if err := unix.Dup3(file, reportFD, 0); err != nil {
			return err
		}
	}
	return closingButPlaces(true, file >= 0)
}

// startSpace clones I and sends it the plan. It returns W's end of its channel.
func startSpace(b Built) (sock, pid int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, 0, err
	}
	pid, err = syscall.ForkExec(self, []string{"caisson-worker", RoleSpace}, &syscall.ProcAttr{
		Files: []uintptr{0, 1, 2, uintptr(pair[1])},
		Sys:   b.Attr,
	})
	_ = unix.Close(pair[1])
	if err != nil {
		return -1, 0, errors.New("start of the tool space: " + err.Error())
	}
	if err := b.Tell(pair[0]); err != nil {
		return -1, 0, errors.New("plan to the tool space: " + err.Error())
	}
	return pair[0], pid, nil
}

// runRelay is W. It ends, and the kernel ends everything below it, when the
// host closes the channel, sends a bad frame, or the tool space is gone.
func runRelay(h Hooks, arg string) int {
	pid, err := strconv.Atoi(arg)
	if err != nil || !inherited(ChannelFD) || !inherited(spaceFD) || onlyPlaces() != nil {
		return ExitInherit
	}
	file := reportFD
	if !inherited(file) {
		file = -1
	}
	small(1)
	unix.Umask(0o022) // as that of tools, for the files that W itself makes
	space, dir, err := setUp(h, pid)
	if rerr := h.Report(ChannelFD, pid, file, err); err != nil || rerr != nil {
		return ExitSetup
	}
	if file >= 0 {
		_ = unix.Close(file)
	}
	setSignals(false)
	sock, err := frame.NewSocket(ChannelFD, 0)
	if err != nil {
		return ExitChannel
	}
	host, err := frame.Accept(sock)
	if err != nil {
		return ExitChannel
	}
	return relay(host, space, pid, dir)
}

// setUp seals W and waits until I is. dir is the task's source.
func setUp(h Hooks, pid int) (space *frame.Conn, dir string, err error) {
	if dir, err = h.SealWorker(ChannelFD); err != nil {
		return nil, "", err
	}
	// Three threads wait for frames and for I; each tool at work may need one.
	prewarm(3 + quickTools + slowTools + tools.Helpers)
	if err := sealed(); err != nil {
		return nil, "", err
	}
	sock, err := frame.NewSocket(spaceFD, pid)
	if err != nil {
		return nil, "", err
	}
	space, err = frame.Dial(sock)
	if err != nil {
		return nil, "", errors.New("hello to the tool space: " + err.Error())
	}
	if err := notDumpable(); err != nil {
		return nil, "", err
	}
	if d, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || d != 0 && !sys.Without("dumpable") {
		return nil, "", errors.New("worker stayed dumpable")
	}
	return space, dir, nil
}

// I says once, before the first frame, that it is sealed or why it is not: a
// length and as many bytes of text; none means sealed.
const maxWord = 16 << 10

// say sends that word.
func say(err error) bool {
	text := ""
	if err != nil {
		if text = err.Error(); text == "" {
			text = "unknown"
		}
		text = text[:min(len(text), maxWord)]
	}
	b := append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
	for len(b) > 0 {
		n, err := unix.SendmsgN(ChannelFD, b, nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return false
		}
		b = b[n:]
	}
	return true
}

// sealed waits for it.
func sealed() error {
	var size [4]byte
	if err := readFull(spaceFD, size[:]); err != nil {
		return errors.New("the tool space ended before it was sealed")
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n == 0 {
		return nil
	}
	text := make([]byte, min(n, maxWord))
	if err := readFull(spaceFD, text); err != nil {
		return errors.New("the tool space ended before it was sealed")
	}
	return errors.New("the tool space could not be sealed: " + string(text))
}

// firstOp is the last operation id that the host never uses; its ids start
// above it.
const firstOp = 1

// relay passes frames on, but for those that name a tool, which W does itself.
// Of the others W understands only their direction: bodies go through unread,
// so that their digests stay what the host computed, and are authenticated anew
// for the next hop.
func relay(host, space *frame.Conn, pid int, dir string) int {
	end := make(chan int, 3)
	begin(host, space, dir, resting(), end)
	go func() {
		for {
			p, err := syscall.Wait4(-1, nil, 0, nil)
			if p == pid || (err != nil && err != syscall.EINTR) {
				end <- ExitSpace
				return
			}
		}
	}()
	return <-end
}

// begin passes frames on in both directions.
func begin(host, space *frame.Conn, dir string, rest func(), end chan<- int) {
	box := newToolbox(host, dir)
	go pump(host, space, rest, end, box, ExitOK, frame.Request, frame.Cancel)
	go pump(space, host, rest, end, nil, ExitSpace, frame.Reply, frame.Event)
}

// pump reads until the stream ends, and says so once: with eof where the other
// side closed it.
//
// A frame that names a tool is carried out right here, and a new goroutine goes
// on reading. The other way round the tool would wait: the reader blocks in a
// system call that the scheduler learns of by looking now and then, seldom when
// little happens.
func pump(from, to *frame.Conn, rest func(), end chan<- int, box *toolbox, eof int, allowed ...frame.Kind) {
	left := 0 // bytes that frames left behind, generously
	for {
		f, err := from.Read()
		if err == io.EOF {
			end <- eof
			return
		}
		if err == nil && box != nil && f.Kind == frame.Tool {
			work := box.take(f)
			if work == nil {
				end <- ExitChannel
				return
			}
			go pump(from, to, rest, end, box, eof, allowed...)
			work()
			rest()
			return
		}
		ok := err == nil && box != nil && f.Kind == frame.Stop && len(f.FDs) == 0
		if ok {
			box.stop(f.Op)
		} else if err == nil && slices.Contains(allowed, f.Kind) {
			ok = to.Write(f) == nil
		}
		f.CloseFDs()
		if left += 2*len(f.Body) + 2<<10; left > worthRest {
			left = 0
			rest()
		}
		if !ok {
			end <- ExitChannel
			return
		}
	}
}
