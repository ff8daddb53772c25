package callfilter

import (
	"encoding/binary"
	"sort"

	"golang.org/x/sys/unix"
)

// Filters are assembled on the host and travel in the plan: what runs inside
// only loads them. The verdict on a system call is, in this order: another
// architecture's table: ENOSYS; an argument rule; the allow-list; ENOSYS for
// what a libc must believe absent so that it falls back to a call whose
// arguments can be seen, and for calls newer than this list; else EPERM.

// insn is one BPF instruction. Jumps are filled in by the helpers below.
type insn = unix.SockFilter

// Offsets in struct seccomp_data.
const (
	offNR   = 0
	offArch = 4
	offArgs = 16
)

// ret values.
const (
	retAllow = unix.SECCOMP_RET_ALLOW
	retErrno = unix.SECCOMP_RET_ERRNO
)

func errnoRet(e unix.Errno) uint32 { return retErrno | uint32(e) }

func load(off uint32) insn {
	return insn{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
}

// loadArg loads the low 32 bits of an argument. Every rule below is about a
// parameter that the kernel itself cuts to 32 bits (int, unsigned int, or the
// flags of clone), so the upper half must not count: a filter that compares 64
// bits is gone around by setting one of them.
func loadArg(n int) insn { return load(uint32(offArgs + 8*n + lowHalf)) }

func jump(op uint16, k uint32, jt, jf uint8) insn {
	return insn{Code: unix.BPF_JMP | op | unix.BPF_K, K: k, Jt: jt, Jf: jf}
}

func ret(v uint32) insn { return insn{Code: unix.BPF_RET | unix.BPF_K, K: v} }

// program is a filter under construction.
type program []insn

// when runs block for exactly one call number; block must end in a return on
// every path. The accumulator holds the number before and after.
func (p *program) when(nr int, block ...insn) {
	*p = append(*p, jump(unix.BPF_JEQ, uint32(nr), 0, uint8(len(block))))
	*p = append(*p, block...)
}

// verdict returns v for each number of nrs, as ranges.
func (p *program) verdict(nrs []int, v uint32) {
	sort.Ints(nrs)
	for i := 0; i < len(nrs); {
		j := i
		for j+1 < len(nrs) && nrs[j+1] <= nrs[j]+1 {
			j++
		}
		if nrs[i] == nrs[j] {
			*p = append(*p, jump(unix.BPF_JEQ, uint32(nrs[i]), 0, 1), ret(v))
		} else {
			*p = append(*p, jump(unix.BPF_JGE, uint32(nrs[i]), 0, 2), jump(unix.BPF_JGT, uint32(nrs[j]), 1, 0), ret(v))
		}
		i = j + 1
	}
}

// bytes renders the program as the stage expects it.
func (p program) bytes() []byte {
	b := make([]byte, 0, len(p)*8)
	for _, i := range p {
		b = binary.LittleEndian.AppendUint16(b, i.Code)
		b = append(b, i.Jt, i.Jf)
		b = binary.LittleEndian.AppendUint32(b, i.K)
	}
	return b
}

// anyOf returns a block that answers v when the accumulator equals one of vals
// and falls through otherwise.
func anyOf(v uint32, vals ...uint32) []insn {
	var out []insn
	for _, x := range vals {
		out = append(out, jump(unix.BPF_JEQ, x, 0, 1), ret(v))
	}
	return out
}

const nsFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Tool is what every tool runs under. Grants relax exactly their part.
func Tool(ptrace, userns bool) []byte {
	p := begin()
	allow := append([]int(nil), allowed...)
	allow = append(allow, allowedArch...)

	missing := append([]int(nil), absent...)
	if userns {
		missing = append(missing, keyringCalls...)
		allow = append(allow, unix.SYS_CLONE, unix.SYS_CLONE3)
		allow = append(allow, usernsCalls...)
	} else {
		p.when(unix.SYS_CLONE, loadArg(0), jump(unix.BPF_JSET, nsFlags, 0, 1), ret(errnoRet(unix.EPERM)), ret(retAllow))
	}
	if ptrace {
		allow = append(allow, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV)
	}
	p.socketRules()
	p.limitRules()

	var ioctl []insn
	ioctl = append(ioctl, loadArg(1))
	ioctl = append(ioctl, anyOf(errnoRet(unix.EPERM), unix.TIOCSTI, TIOCLINUX, unix.TIOCSETD, unix.TIOCCONS)...)
	p.when(unix.SYS_IOCTL, append(ioctl, ret(retAllow))...)

	personalities := []uint32{0, 0x0008, 0x20000, 0x20008, 0xffffffff}
	if ptrace { // debuggers switch address randomisation off
		personalities = append(personalities, 0x40000)
	}
	pers := append([]insn{loadArg(0)}, anyOf(retAllow, personalities...)...)
	p.when(unix.SYS_PERSONALITY, append(pers, ret(errnoRet(unix.EPERM)))...)

	p.verdict(allow, retAllow)
	p.verdict(missing, errnoRet(unix.ENOSYS))
	return p.end()
}

// begin refuses other architectures' tables and leaves the number of the call.
func begin() program {
	p := program{load(offArch), jump(unix.BPF_JEQ, auditArch, 1, 0), ret(errnoRet(unix.ENOSYS)), load(offNR)}
	if X32Bit != 0 {
		p = append(p, jump(unix.BPF_JSET, X32Bit, 0, 1), ret(errnoRet(unix.ENOSYS)))
	}
	return p
}

// end refuses the rest.
func (p program) end() []byte {
	return append(p, jump(unix.BPF_JGT, lastKnown, 0, 1), ret(errnoRet(unix.ENOSYS)), ret(errnoRet(unix.EPERM))).bytes()
}

// Worker is the worker's own, once it is sealed: it passes frames on, does
// the tools that work on files, and makes threads. No program, no process, no
// socket, no code that is not its own.
func Worker() []byte {
	p := begin()
	eperm := ret(errnoRet(unix.EPERM))
	p.when(unix.SYS_CLONE, loadArg(0), jump(unix.BPF_JSET, nsFlags, 0, 1), eperm, jump(unix.BPF_JSET, unix.CLONE_THREAD, 0, 1), ret(retAllow), eperm)
	for _, nr := range []int{unix.SYS_MMAP, unix.SYS_MPROTECT} {
		p.when(nr, loadArg(2), jump(unix.BPF_JSET, unix.PROT_EXEC, 0, 1), eperm, ret(retAllow))
	}
	p.verdict(append(append([]int(nil), workerAllowed...), workerAllowedArch...), retAllow)
	p.verdict(append([]int(nil), absent...), errnoRet(unix.ENOSYS))
	return p.end()
}

// limitRules let a process set its own limits and read everybody's. The kernel
// lets one process set those of another of its user, and pid 1 of the tool space
// is one: with no processor time, memory or descriptors left it would end.
func (p *program) limitRules() {
	const newLimit = offArgs + 8*2 // a pointer, so both halves count
	p.when(unix.SYS_PRLIMIT64,
		loadArg(0), jump(unix.BPF_JEQ, 0, 5, 0),
		load(newLimit), jump(unix.BPF_JEQ, 0, 0, 2),
		load(newLimit+4), jump(unix.BPF_JEQ, 0, 1, 0),
		ret(errnoRet(unix.EPERM)), ret(retAllow))
}

// socketRules leave UNIX, TCP and UDP over IPv4 and IPv6, and the route family
// of netlink. Nothing else: vsock, for one, does not belong to any network
// namespace.
func (p *program) socketRules() {
	const typeMask = 0xf // without SOCK_NONBLOCK and SOCK_CLOEXEC
	masked := insn{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: typeMask}
	eperm, eaf := ret(errnoRet(unix.EPERM)), ret(errnoRet(unix.EAFNOSUPPORT))
	p.when(unix.SYS_SOCKET,
		/* 0 */ loadArg(0),
		/* 1 */ jump(unix.BPF_JEQ, unix.AF_UNIX, 20-2, 0),
		/* 2 */ jump(unix.BPF_JEQ, unix.AF_INET, 6-3, 0),
		/* 3 */ jump(unix.BPF_JEQ, unix.AF_INET6, 6-4, 0),
		/* 4 */ jump(unix.BPF_JEQ, unix.AF_NETLINK, 17-5, 0),
		/* 5 */ eaf,
		/* 6 */ loadArg(1),
		/* 7 */ masked,
		/* 8 */ jump(unix.BPF_JEQ, unix.SOCK_STREAM, 11-9, 0),
		/* 9 */ jump(unix.BPF_JEQ, unix.SOCK_DGRAM, 14-10, 0),
		/* 10 */ eperm,
		/* 11 */ loadArg(2),
		/* 12 */ jump(unix.BPF_JEQ, 0, 20-13, 0),
		/* 13 */ jump(unix.BPF_JEQ, unix.IPPROTO_TCP, 20-14, 19-14),
		/* 14 */ loadArg(2),
		/* 15 */ jump(unix.BPF_JEQ, 0, 20-16, 0),
		/* 16 */ jump(unix.BPF_JEQ, unix.IPPROTO_UDP, 20-17, 19-17),
		/* 17 */ loadArg(2),
		/* 18 */ jump(unix.BPF_JEQ, unix.NETLINK_ROUTE, 20-19, 0),
		/* 19 */ eperm,
		/* 20 */ ret(retAllow),
	)
	p.when(unix.SYS_SOCKETPAIR, loadArg(0), jump(unix.BPF_JEQ, unix.AF_UNIX, 0, 1), ret(retAllow), eaf)
}
