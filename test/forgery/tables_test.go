//go:build linux

package forgery

// probe is one row of the forgery suite.
type probe struct {
	id, does string
	apart    bool // needs no tool: it is about the bytes between host and worker
}

var probes = []probe{
	{"F1", "connect to every listener that the tables of unix, tcp, udp, packet, netlink and vsock sockets name, and to vsock", false},
	{"F2", "list, read and open every descriptor of the worker's processes, and use what was left open", false},
	{"F3", "`pidfd_open` and `pidfd_getfd` over all processes, seen or only numbered", false},
	{"F4", "`PTRACE_SEIZE` and `PTRACE_ATTACH`", false},
	{"F5", "`process_vm_writev`, `process_vm_readv`, `/proc/PID/mem`", false},
	{"F6", "read environ, cmdline, maps, auxv, stack and others of the worker's processes, for keys and frames", false},
	{"F7", "stop and kill process 1, the worker and the guardian, then speak on every socket there is", false},
	{"F8", "programs that look at what they were born with, eight at a time, beside one that forks without end", false},
	{"F9", "print old frames, byte by byte as they were, on standard output, standard error and a terminal", false},
	{"F10", "a relay without keys: a frame twice, missing, reordered, with a changed bit, in both directions", true},
	{"F11", "a relay that sends a direction's frames back", true},
	{"F12", "descriptors of an earlier operation, by SCM_RIGHTS from a server that it left", false},
	{"F13", "write to and start the worker's program by `/proc/PID/exe`; `LD_*`, `/etc/ld.so.preload`, binfmt", false},
	{"F14", "core dumps: core_pattern, limits, dump filter and fatal signals of the worker's processes", false},
	{"F15", "F3 to F5 from a user namespace of the tool's own, with CAP_SYS_PTRACE there", false},
	{"F16", "sockets kept in an io_uring", false},
	{"F17", "use up descriptors, processes and memory; set the limits and priorities of the worker's processes", false},
	{"F18", "kill the worker at any moment of the traffic; frames cut in the middle", true},
	{"F19", "giant and negative lengths, invalid text, doubled names, deep nesting", true},
	{"F20", "keyrings, memfd, System V memory", false},
	{"F21", "start a second worker, from the real one's file and from one of the tool's own", false},
	{"F21r", "a root folder whose every program is hostile: nothing of it runs unasked; started as init, shell, loader or entry point it does what F2, F3, F6, F19 and F21 do", false},
	{"F22", "set and adjust clocks, a time namespace", false},
	{"F23", "names, links, folders and contents that change under the hands of the tools that the worker itself carries out, magic links of its own process among them", false},
}

// variant is one build of host and worker.
type variant struct {
	name, without string
	always        bool // also where only a sample runs
}

var variants = []variant{
	{"as shipped", "none", true},
	{"no CLOEXEC flags", "cloexec", false},
	{"no `close_range`", "close_range", true},
	{"no fresh `/proc`", "proc", false},
	{"no own pid namespace for tools, so no fresh `/proc` either", "pidns", false},
	{"no own user namespace for tools", "userns", true},
	{"no Landlock", "landlock", false},
	{"not made non-dumpable", "dumpable", false},
	{"worker's file readable", "unreadable", false},
	{"no system call filters", "seccomp", false},
	{"tags not checked", "mac", true},
	{"sender not checked", "sender", false},
	{"no scores for the out-of-memory killer", "scores", false},
	{"paths of the worker's own tools not checked", "paths", false},
	{"none of these", "all", true},
}

// sample is what is tried with a protection missing where only a sample runs.
var sample = []string{"F2", "F3", "F5", "F6", "F7", "F8", "F12", "F15", "F16", "F21"}
