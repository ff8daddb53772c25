package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/crossing"
)

// kept are the capabilities by which the worker starts tools under their user and
// ends them. It is given one more, CAP_SETPCAP, and uses it to take all others
// from whatever it will start.
const kept = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL

// Needed are the capabilities, by the names that engines use, that a runtime must
// give the worker; it needs no other, and for a way out those of NeededOfWay, which it
// gives up with the rest.
var (
	Needed      = []string{"SETUID", "SETGID", "SETPCAP", "KILL"}
	NeededOfWay = []string{"NET_ADMIN", "NET_BIND_SERVICE"}
)

// settings is what each guardian loads.
type settings struct {
	Filter []byte `json:"filter"`
	Userns bool   `json:"userns"`
}

// Enter receives the plan on in, makes this process the worker of it on all of
// its threads, and answers on out. settings is a descriptor for Drop. With an
// error the answer says what failed, where it could be sent.
func Enter(in io.Reader, out io.Writer) (p Plan, settings int, err error) {
	var r Report
	if err = Receive(in, &p); err == nil {
		settings, err = enter(&p, &r)
	}
	if err != nil {
		r.Error = err.Error()
	} else {
		r.OK = true
	}
	if serr := Send(out, r); err == nil {
		err = serr
	}
	return p, settings, err
}

func enter(p *Plan, r *Report) (int, error) {
	if p.Mark != "" {
		if b, err := os.ReadFile(p.Mark); err != nil || string(b) != p.MarkText {
			r.Why = WhyMark
			return -1, fmt.Errorf("%s is not what this task's host put there (%v)", p.Mark, err)
		}
	}
	if p.Door != "" {
		if err := handOver(p); err != nil {
			r.Door = err.Error() // the host knows whether it can do without
		}
	}
	if err := shed(p); err != nil {
		r.Why = WhyCaps
		return -1, err
	}
	// As who owns the task's files: a home that is closed to others may be on the way.
	for _, path := range p.Owned {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return -1, &os.PathError{Op: "stat", Path: path, Err: err}
		}
		if int(st.Uid) != p.UID {
			r.Why, r.Owner = WhyOwner, int(st.Uid)
			return -1, fmt.Errorf("%s belongs to user %d inside, not to %d", path, st.Uid, p.UID)
		}
	}
	if p.Own {
		if err := load(p.Filter); err != nil {
			return -1, fmt.Errorf("load the system call filter: %w", err)
		}
	}
	if err := look(p, r); err != nil {
		return -1, err
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	r.Boot = strings.TrimSpace(string(boot))
	r.Start, _ = StartTime("/proc/self/stat")
	return keepSettings(p)
}

// handOver makes the sockets that are the host's, and keeps none but those that are
// to be carried. Nothing else runs
// inside yet.
func handOver(p *Plan) error {
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	if p.Way != nil {
		way, err := crossing.Open(p.Way)
		if err != nil {
			return err
		}
		fds = way
	}
	in, err := crossing.Inward(p.Inward)
	if err != nil {
		return err
	}
	fds = append(fds, in...)
	if len(p.Carry) == 0 {
		return crossing.Send(p.Door, fds)
	}
	if len(p.Carry) != crossing.KeySize || len(in) > 0 {
		return errors.New("this cannot be carried")
	}
	if err := crossing.Try(p.Door, [crossing.KeySize]byte(p.Carry)); err != nil {
		return err
	}
	p.Kept, fds = fds, nil
	return nil
}

// all makes a system call on every thread. It ends the program where threads fare
// differently.
func all(call uintptr, a ...uintptr) error {
	var x [6]uintptr
	copy(x[:], a)
	_, _, errno := syscall.AllThreadsSyscall6(call, x[0], x[1], x[2], x[3], x[4], x[5])
	if errno != 0 {
		return errno
	}
	return nil
}

// shed leaves the worker its user, which no tool has, and kept.
func shed(p *Plan) error {
	for c := uintptr(0); ; c++ {
		err := all(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c)
		if errors.Is(err, unix.EINVAL) && c > 0 {
			break // past the kernel's last capability
		}
		if err != nil {
			return fmt.Errorf("drop the bounding set: %w", err)
		}
	}
	if err := all(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	worker := uintptr(0)
	if p.UID == 0 {
		worker = uintptr(p.Worker)
	}
	if int(worker) == p.UID {
		return errors.New("the worker would have the user of the tools")
	}
	steps := []struct {
		what string
		call uintptr
		args []uintptr
	}{
		{"leave all groups", unix.SYS_SETGROUPS, []uintptr{0, 0}},
		{"keep capabilities", unix.SYS_PRCTL, []uintptr{unix.PR_SET_KEEPCAPS, 1}},
		{"take the group", unix.SYS_SETRESGID, []uintptr{worker, worker, worker}},
		{"take the user", unix.SYS_SETRESUID, []uintptr{worker, worker, worker}},
	}
	for _, s := range steps {
		if err := all(s.call, s.args...); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	if err := capset(kept); err != nil {
		return fmt.Errorf("keep no other capability: %w", err)
	}
	return asOwner(p, worker)
}

// asOwner gives the worker the file-system id of the tools, whose files those of the
// file tools are. A kernel without such an id (gVisor's) has it be the effective one:
// signals and looks are ruled by the real and the saved one.
func asOwner(p *Plan, worker uintptr) error {
	for _, c := range [][2]uintptr{{unix.SYS_SETFSGID, uintptr(p.GID)}, {unix.SYS_SETFSUID, uintptr(p.UID)}} {
		// Both calls return the old id.
		_, _, errno := syscall.AllThreadsSyscall(c[0], c[1], 0, 0)
		if errno == unix.ENOSYS {
			return asEffective(p, worker)
		}
		if errno != 0 {
			return fmt.Errorf("take the owner of the task's files: %w", errno)
		}
	}
	return nil
}

func asEffective(p *Plan, worker uintptr) error {
	if err := all(unix.SYS_SETRESGID, worker, uintptr(p.GID), worker); err != nil {
		return fmt.Errorf("take the group of the task's files: %w", err)
	}
	if err := all(unix.SYS_SETRESUID, worker, uintptr(p.UID), worker); err != nil {
		return fmt.Errorf("take the owner of the task's files: %w", err)
	}
	// That took them out of effect.
	if err := capset(kept); err != nil {
		return fmt.Errorf("keep the capabilities: %w", err)
	}
	return nil
}

// capset sets both sets that count on every thread, and empties what is inherited.
func capset(caps uint64) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for i := range data {
		w := uint32(caps >> (32 * i))
		data[i].Effective, data[i].Permitted = w, w
	}
	return all(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data[0])))
}

// look reads what the kernel says of this process and holds it to the plan.
func look(p *Plan, r *Report) error {
	names, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, n := range names {
		f, err := status("/proc/self/task/" + n.Name() + "/status")
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		ids := strings.Fields(f["Uid"])
		if len(ids) != 4 || ids[3] != strconv.Itoa(p.UID) || ids[1] != ids[0] && ids[1] != ids[3] || ids[0] != ids[2] || ids[0] == ids[3] {
			return fmt.Errorf("thread %s has the users %q", n.Name(), f["Uid"])
		}
		if f["CapEff"] != fmt.Sprintf("%016x", uint64(kept)) || f["CapPrm"] != f["CapEff"] || strings.Trim(f["CapInh"]+f["CapBnd"]+f["CapAmb"], "0") != "" {
			return fmt.Errorf("thread %s has capabilities %s, %s, %s, %s, %s", n.Name(), f["CapInh"], f["CapPrm"], f["CapEff"], f["CapBnd"], f["CapAmb"])
		}
		if f["NoNewPrivs"] != "1" {
			return fmt.Errorf("thread %s may gain privileges", n.Name())
		}
		r.UID, _ = strconv.Atoi(ids[0])
		r.CapEff, r.NoNewPrivs = f["CapEff"], true
		r.Seccomp, _ = strconv.Atoi(f["Seccomp"])
	}
	return nil
}

func status(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		out[k] = strings.TrimSpace(v)
	}
	return out, nil
}

// keepSettings puts what Drop needs where no tool can change it.
func keepSettings(p *Plan) (int, error) {
	b, err := json.Marshal(settings{Filter: p.Filter, Userns: p.Userns})
	if err != nil {
		return -1, err
	}
	fd, err := unix.MemfdCreate("settings", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, err
	}
	if n, err := unix.Write(fd, b); err != nil || n != len(b) {
		return -1, fmt.Errorf("keep the settings of tools: %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		return -1, fmt.Errorf("seal the settings of tools: %w", err)
	}
	return fd, nil
}

// Drop takes from a guardian, on all of its threads, what a tool must not have.
func Drop(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size <= 0 || st.Size > maxMessage {
		return fmt.Errorf("the settings cannot be read: %v", err)
	}
	b := make([]byte, st.Size)
	if n, err := unix.Pread(fd, b, 0); err != nil || n != len(b) {
		return fmt.Errorf("the settings cannot be read: %v", err)
	}
	var s settings
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if err := capset(0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	if err := load(s.Filter); err != nil {
		return fmt.Errorf("load the system call filter: %w", err)
	}
	if !s.Userns {
		if err := unix.Unshare(unix.CLONE_NEWUSER); !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("a user namespace was not refused: %v", err)
		}
	}
	f, err := status("/proc/self/status")
	if err != nil {
		return err
	}
	if strings.Trim(f["CapInh"]+f["CapPrm"]+f["CapEff"]+f["CapBnd"]+f["CapAmb"], "0") != "" || f["NoNewPrivs"] != "1" || f["Seccomp"] != "2" {
		return errors.New("something of what a tool must not have is left")
	}
	return nil
}

// load loads a filter on all threads.
func load(prog []byte) error {
	if len(prog) == 0 || len(prog)%8 != 0 {
		return errors.New("there is none")
	}
	insns := make([]unix.SockFilter, len(prog)/8)
	for i := range insns {
		b := prog[i*8:]
		insns[i] = unix.SockFilter{Code: uint16(b[0]) | uint16(b[1])<<8, Jt: b[2], Jf: b[3], K: uint32(b[4]) | uint32(b[5])<<8 | uint32(b[6])<<16 | uint32(b[7])<<24}
	}
	fprog := unix.SockFprog{Len: uint16(len(insns)), Filter: &insns[0]}
	n, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return errno
	}
	if n != 0 {
		return fmt.Errorf("thread %d could not be joined", n)
	}
	return nil
}
