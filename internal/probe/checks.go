package probe

import (
	"net/netip"
	"strconv"

	"github.com/caisson-dev/caisson/internal/task"
)

// Check is one kind of attempt of the standard set.
type Check struct {
	ID   string    `json:"id"`
	Axis task.Axis `json:"axis"`
	// Level falls, with everything above it, when an attempt is not refused.
	// 0 means that the check only informs.
	Level int    `json:"level"`
	Text  string `json:"text"`
	// Control says why the attempt does not succeed outside a boundary either,
	// and for whom; empty when it must.
	Control string `json:"control,omitempty"`
	// targets lists what to try it on; nil means once.
	targets func(*Spec) []string
	// when leaves the check out, for example because of a grant.
	when func(*Spec) bool
}

const (
	otherInit = "process 1 may hold more than the caller"
	needRoot  = "refused to an unprivileged process everywhere"
	needsPlan = "depends on how this kernel was built"
)

func absent(s *Spec) []string   { return s.Absent }
func control(s *Spec) []string  { return s.Control }
func agents(s *Spec) []string   { return s.Agents }
func abstract(s *Spec) []string { return s.Abstract }
func dial(s *Spec) []string     { return s.Dial }

// dialOut leaves loopback out: a datagram socket always has a route there.
func dialOut(s *Spec) []string {
	var out []string
	for _, a := range s.Dial {
		if ap, err := netip.ParseAddrPort(a); err != nil || !ap.Addr().Unmap().IsLoopback() {
			out = append(out, a)
		}
	}
	return out
}
func readOnly(s *Spec) []string { return s.ReadOnly }
func fixed(l ...string) func(*Spec) []string {
	return func(*Spec) []string { return l }
}

// nsNames are the namespaces compared with the host's.
var nsNames = []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup"}

// standard is the standard set, in the order it is run.
var standard = []Check{
	// Filesystem.
	{ID: "P01.abs", Axis: task.FS, Level: 2, Text: "read a host secret by its absolute path", targets: absent},
	{ID: "P01.selfroot", Axis: task.FS, Level: 2, Text: "read it through /proc/self/root", targets: absent},
	{ID: "P01.initroot", Axis: task.FS, Level: 2, Text: "read it through /proc/1/root", Control: otherInit, targets: absent},
	{ID: "P01.parentroot", Axis: task.FS, Level: 2, Text: "read it through the parent's root", targets: absent},
	{ID: "P01.cwd", Axis: task.FS, Level: 2, Text: "read it by climbing out of /proc/self/cwd", targets: absent},
	{ID: "P63.open", Axis: task.FS, Level: 1, Text: "open a system file for writing", Control: needRoot, targets: fixed("/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/ld.so.preload", "/etc/ld.so.cache")},
	{ID: "P63.create", Axis: task.FS, Level: 1, Text: "create a file in a folder that is read-only", Control: needRoot, targets: readOnly},
	{ID: "fs.writable", Axis: task.FS, Text: "create a file where the task must be able to", targets: func(s *Spec) []string { return s.Writable }},
	{ID: "fs.mounts", Axis: task.FS, Level: 1, Text: "no writable mount of a disk beyond the planned ones"},
	{ID: "fs.agents", Axis: task.FS, Level: 2, Text: "connect to a session or agent socket of the host (P16, P20)", targets: agents},
	{ID: "fs.agentsroot", Axis: task.FS, Level: 2, Text: "the same through /proc/self/root", targets: agents},

	// Process.
	{ID: "ns.pid", Axis: task.PRC, Level: 1, Text: "process ids of its own"},
	{ID: "ns.ipc", Axis: task.PRC, Level: 2, Text: "System V IPC and message queues of its own"},
	{ID: "ns.uts", Axis: task.PRC, Level: 2, Text: "host name of its own"},
	{ID: "ns.mnt", Axis: task.FS, Level: 1, Text: "mount table of its own"},
	{ID: "ns.net", Axis: task.NET, Level: 1, Text: "network of its own"},
	{ID: "ns.user", Axis: task.PRC, Level: 3, Text: "user ids of its own"},
	{ID: "ns.cgroup", Axis: task.PRC, Text: "cgroup view of its own"},
	{ID: "P12", Axis: task.PRC, Level: 2, Text: "use a descriptor other than 0, 1, 2 that was inherited"},
	{ID: "P14.write", Axis: task.PRC, Level: 3, Text: "open a kernel control file for writing", Control: needRoot, targets: fixed("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger", "/proc/sys/fs/binfmt_misc/register", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/cgroup.procs", "/sys/kernel/uevent_helper", "/proc/sys/vm/drop_caches")},
	{ID: "P14.read", Axis: task.PRC, Level: 3, Text: "read kernel memory, logs, tables", Control: needRoot, targets: fixed("/proc/kcore", "/proc/timer_list", "/sys/kernel/security", "/sys/firmware", "/sys/kernel/debug", "/proc/kpagecount")},
	{ID: "P27.see", Axis: task.PRC, Level: 2, Text: "see the supervisor in /proc"},
	{ID: "P27.ptrace", Axis: task.PRC, Level: 2, Text: "trace the supervisor"},
	{ID: "P27.vmread", Axis: task.PRC, Level: 2, Text: "read the supervisor's memory"},
	{ID: "P27.vmwrite", Axis: task.PRC, Level: 2, Text: "write the supervisor's memory"},
	{ID: "P27.getfd", Axis: task.PRC, Level: 2, Text: "take a descriptor of the supervisor"},
	{ID: "P27.kcmp", Axis: task.PRC, Level: 2, Text: "compare kernel objects with the supervisor", Control: needsPlan},
	{ID: "P27.selftrace", Axis: task.KRN, Level: 1, Text: "use ptrace at all", when: func(s *Spec) bool { return !s.Ptrace }},
	{ID: "P27.initmem", Axis: task.CHN, Level: 1, Text: "open the memory of process 1 and of the parent", Control: needRoot, targets: fixed("/proc/1/mem", "/proc/PPID/mem")},
	{ID: "P28.kill", Axis: task.PRC, Level: 2, Text: "signal the supervisor"},
	{ID: "P28.pidfd", Axis: task.PRC, Level: 2, Text: "open a pidfd of the supervisor"},
	{ID: "P31.nnp", Axis: task.PRC, Level: 2, Text: "run without no_new_privs", Control: "the caller may have set it"},
	{ID: "P31.caps", Axis: task.PRC, Level: 3, Text: "hold a capability", Control: needRoot, targets: fixed("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd")},
	{ID: "P31.uid", Axis: task.PRC, Level: 3, Text: "be another user than planned, or user 0", Control: needRoot},
	{ID: "P32.dev", Axis: task.PRC, Level: 3, Text: "find a device beyond the minimal set"},
	{ID: "P32.mknod", Axis: task.PRC, Level: 3, Text: "make a device node", Control: needRoot},
	{ID: "res.core", Axis: task.RES, Text: "write a core file", Control: "the caller may have set the limit"},

	// Kernel surface.
	{ID: "P31.seccomp", Axis: task.KRN, Level: 1, Text: "run without a system call filter", Control: "the caller may have set one"},
	{ID: "P21.families", Axis: task.KRN, Level: 1, Text: "make a socket of another family than unix, inet, inet6, netlink route"},
	{ID: "P21.netlink", Axis: task.KRN, Level: 1, Text: "make a netlink socket for anything but routes"},
	{ID: "P21.raw", Axis: task.KRN, Level: 1, Text: "make a raw internet socket", Control: needRoot},
	{ID: "P23", Axis: task.KRN, Level: 1, Text: "use io_uring", Control: needsPlan, targets: fixed("setup", "enter", "register")},
	{ID: "P25.userns", Axis: task.KRN, Level: 1, Text: "make a user namespace", Control: "switched off on some hosts", when: func(s *Spec) bool { return !s.Userns }},
	{ID: "P25.unshare", Axis: task.KRN, Level: 1, Text: "make another namespace", Control: needRoot, targets: fixed("mnt", "uts", "ipc", "net", "pid", "cgroup", "time")},
	{ID: "P25.setns", Axis: task.KRN, Level: 1, Text: "enter a mount namespace", Control: needRoot},
	{ID: "P25.mount", Axis: task.KRN, Level: 1, Text: "change a mount", Control: needRoot},
	{ID: "P25.umount", Axis: task.KRN, Level: 1, Text: "remove a mount", Control: needRoot},
	{ID: "P25.chroot", Axis: task.KRN, Level: 1, Text: "change the root", Control: needRoot},
	{ID: "P26", Axis: task.KRN, Level: 1, Text: "use the new mount interface", Control: needRoot, targets: fixed("open_tree", "move_mount", "fsopen", "fsmount", "fspick", "mount_setattr")},
	{ID: "P29", Axis: task.KRN, Level: 1, Text: "use a dangerous system call", Control: needRoot, targets: fixed("bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key", "kexec_load", "init_module", "finit_module", "name_to_handle_at", "open_by_handle_at", "reboot")},
	{ID: "P30", Axis: task.KRN, Level: 1, Text: "push input into a terminal", targets: fixed("TIOCSTI", "TIOCLINUX")},
	{ID: "P30.setd", Axis: task.KRN, Text: "load a line discipline"},
	{ID: "krn.boot", Axis: task.KRN, Level: 2, Text: "see the boot of the host's kernel", when: func(s *Spec) bool { return s.HostKernel[0] != "" }},
	{ID: "krn.version", Axis: task.KRN, Level: 2, Text: "see the version of the host's kernel", when: func(s *Spec) bool { return s.HostKernel[0] != "" }},
	{ID: "syslog", Axis: task.KRN, Text: "read the kernel's log", Control: needRoot},

	// Network.
	{ID: "net.interfaces", Axis: task.NET, Level: 4, Text: "find an interface beyond loopback", Control: "a host may be without"},
	{ID: "net.routes", Axis: task.NET, Level: 4, Text: "find a route that leaves loopback", Control: "a host may be without"},
	{ID: "P41.tcp", Axis: task.NET, Level: 2, Text: "connect to an address that must be out of reach", Control: "only planted listeners are there for certain", targets: dial},
	{ID: "P41.udp", Axis: task.NET, Level: 2, Text: "find a route for a datagram to it", Control: "a host may be without a route", targets: dialOut},
	{ID: "P17.connect", Axis: task.NET, Level: 1, Text: "connect to an abstract socket of the host", targets: abstract},
	{ID: "P17.list", Axis: task.NET, Level: 1, Text: "find a socket of the host in /proc/net/unix", Control: "needs a socket to look for"},

	// Control plane.
	{ID: "P19", Axis: task.CPL, Level: 1, Text: "connect to a daemon with host authority (P16, P18, P19, P44)", targets: control},
	{ID: "P19.root", Axis: task.CPL, Level: 1, Text: "the same through /proc/self/root", targets: control},
	{ID: "P19.initroot", Axis: task.CPL, Level: 1, Text: "the same through /proc/1/root", Control: otherInit, targets: control},
	{ID: "P19.known", Axis: task.CPL, Level: 1, Text: "connect to a runtime at its well-known place", Control: "a host may run none", targets: fixed(wellKnown...)},

	// Credentials.
	{ID: "crd.env", Axis: task.CRD, Level: 1, Text: "find a variable that was not planned in the environment"},
}

// wellKnown are tried whether or not the host has them now.
var wellKnown = []string{
	"/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock",
	"/run/crio/crio.sock", "/run/buildkit/buildkitd.sock", "/run/systemd/private", "/run/dbus/system_bus_socket",
	"/run/libvirt/libvirt-sock", "/run/snapd.socket", "/var/lib/lxd/unix.socket", "/run/WSL/1_interop",
}

// Standard lists the checks of the standard set, for doctor and documents.
func Standard() []Check { return append([]Check(nil), standard...) }

// item is one attempt: a check on one target.
type item struct {
	id     string
	check  *Check
	target string
}

// items lists every attempt that s asks for. Both halves call it: what the host
// expects is what the inside does.
func items(s *Spec) []item {
	var out []item
	for i := range standard {
		c := &standard[i]
		if c.when != nil && !c.when(s) {
			continue
		}
		if c.targets == nil {
			out = append(out, item{id: c.ID, check: c})
			continue
		}
		for n, t := range c.targets(s) {
			out = append(out, item{id: c.ID + "#" + strconv.Itoa(n), check: c, target: t})
		}
	}
	return out
}
