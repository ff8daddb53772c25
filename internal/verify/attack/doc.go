// Package attack is the hostile program: a list of attempts at what a boundary
// must refuse, and the code that makes them. Inside a boundary it is content of a
// task; outside, the same program is the control that shows that its attempts
// work. `caisson verify` and the conformance tests run this one list.
//
// Its limit: it judges nothing, plants nothing and is linked into nothing that
// stands inside a boundary by itself. What would harm a machine or leave a mark on
// it is not done outside, and said.
package attack

import "github.com/caisson-dev/caisson/internal/task"

// Arg is the first argument of a program that plays the hostile part.
const Arg = "__attack"

// Property is one thing that a boundary must hold, with its number in the table of
// conformance properties.
type Property struct {
	ID   string
	Axis task.Axis
	// Level is that of the axis from which on it must hold; a boundary that promises
	// less leaves it open.
	Level int
	// Text is what is tried; Control is how it is shown that the attempt works where
	// nothing is in the way.
	Text, Control string
	// Host properties are tried by the caller, on the host, and not by this program.
	Host bool
}

const (
	sameOutside  = "the same attempts outside, on the same sentinels"
	asRoot       = "the same attempts outside; most of them only root can make"
	looksOutside = "the same calls outside: the kernel looks at their arguments"
	farOutside   = "the same without a boundary, in the same made-up network"
	loanOutside  = "the same requests without a boundary, with the secret in them"
)

// Properties is the list, by axis.
var Properties = []Property{
	{ID: "P10", Axis: task.SRC, Level: 1, Text: "have git on the host run a program that the task named in its git settings", Control: "an unguarded git run in the same files", Host: true},

	{ID: "P12", Axis: task.PRC, Level: 2, Text: "use a descriptor that the launcher had open", Control: sameOutside},
	{ID: "P14", Axis: task.PRC, Level: 3, Text: "write the kernel's control files, read its memory, logs and tables", Control: asRoot},
	{ID: "P27", Axis: task.PRC, Level: 2, Text: "trace another process, read or write its memory, take its descriptors", Control: "the same attempts outside, on a process that sleeps"},
	{ID: "P28", Axis: task.PRC, Level: 2, Text: "signal or change a process of the host", Control: "the same attempts outside, on a process that sleeps"},
	{ID: "P31", Axis: task.PRC, Level: 3, Text: "hold or gain privileges", Control: sameOutside},
	{ID: "P32", Axis: task.PRC, Level: 3, Text: "open or make device files", Control: asRoot},

	{ID: "P01", Axis: task.FS, Level: 2, Text: "read files of the host by path, link, /proc, descriptor, hard link or move", Control: sameOutside},
	{ID: "P16", Axis: task.FS, Level: 2, Text: "connect to Unix sockets in the host's folders", Control: sameOutside},
	{ID: "P20", Axis: task.FS, Level: 2, Text: "connect to agents and to the desktop's sockets", Control: sameOutside},
	{ID: "P63", Axis: task.FS, Level: 1, Text: "change system files and folders", Control: asRoot},

	{ID: "P17", Axis: task.NET, Level: 1, Text: "find or reach abstract sockets of the host", Control: sameOutside},
	{ID: "P40", Axis: task.NET, Level: 2, Text: "find a way to an address beyond this machine, past every proxy", Control: "a route outside; no packet is sent"},
	{ID: "P41", Axis: task.NET, Level: 2, Text: "reach listeners of the host at its loopback and its own addresses", Control: sameOutside},
	{ID: "META", Axis: task.NET, Level: 2, Text: "reach the cloud's metadata service", Control: "the service answers outside"},

	{ID: "P33", Axis: task.NET, Level: 2, Text: "carry data out in names, or ask another name server", Control: farOutside},
	{ID: "P34", Axis: task.NET, Level: 2, Text: "have the way out look up a name that carries data", Control: farOutside},
	{ID: "P35", Axis: task.NET, Level: 2, Text: "reach a host that is not allowed, in each way of asking", Control: farOutside},
	{ID: "P36", Axis: task.NET, Level: 2, Text: "reach a host that is not allowed by another spelling of its name", Control: farOutside},
	{ID: "P37", Axis: task.NET, Level: 2, Text: "reach this machine, its network or a metadata service by spellings of an address", Control: farOutside},
	{ID: "P38", Axis: task.NET, Level: 2, Text: "reach those by an allowed name that leads there, or does the second time", Control: farOutside},
	{ID: "P39", Axis: task.NET, Level: 2, Text: "be somebody else's client inside a tunnel to an allowed host", Control: farOutside},

	{ID: "P54", Axis: task.RES, Level: 2, Text: "take more processes and memory than the task may have", Control: "the same outside", Host: true},

	{ID: "P21", Axis: task.KRN, Level: 1, Text: "make sockets of families that no task needs", Control: "the same calls outside, of families that this kernel has loaded"},
	{ID: "P23", Axis: task.KRN, Level: 1, Text: "use io_uring", Control: looksOutside},
	{ID: "P25", Axis: task.KRN, Level: 1, Text: "make or join namespaces, mount, unmount, change interfaces", Control: sameOutside},
	{ID: "P26", Axis: task.KRN, Level: 1, Text: "use the new mount interface", Control: looksOutside},
	{ID: "P29", Axis: task.KRN, Level: 1, Text: "use system calls that open more of the kernel", Control: looksOutside},
	{ID: "P30", Axis: task.KRN, Level: 1, Text: "push input into a terminal, by the 32-bit gate", Control: looksOutside},

	{ID: "P18", Axis: task.CPL, Level: 1, Text: "connect to session and system buses", Control: sameOutside},
	{ID: "P19", Axis: task.CPL, Level: 1, Text: "connect to a container engine", Control: sameOutside},
	{ID: "P44", Axis: task.CPL, Level: 1, Text: "connect to a control socket of caisson", Control: sameOutside},

	{ID: "P59", Axis: task.CHN, Level: 1, Text: "pass bytes off as messages of the channel", Control: "the bytes arrive as output, unchanged", Host: true},

	{ID: "ENV", Axis: task.CRD, Level: 1, Text: "find the launcher's secrets in the environment", Control: sameOutside},
	{ID: "KEY", Axis: task.CRD, Level: 1, Text: "read a key of the launcher's session keyring", Control: sameOutside},

	{ID: "P45", Axis: task.CRD, Level: 2, Text: "have a credential put in where it is not lent to", Control: loanOutside},
	{ID: "P46", Axis: task.CRD, Level: 2, Text: "get a credential back from a server that repeats what it got", Control: loanOutside},

	{ID: "P66", Axis: task.EVD, Level: 2, Text: "open the record of the task, to read or to change it", Control: sameOutside},

	{ID: "P56", Axis: task.CLN, Level: 2, Text: "leave a process, a mount or a file behind", Control: "the process was there before the end", Host: true},
}

// Find returns the property with this number.
func Find(id string) (Property, bool) {
	for _, p := range Properties {
		if p.ID == id {
			return p, true
		}
	}
	return Property{}, false
}

// SystemFiles and SystemFolders are what P63 tries to change.
var (
	SystemFiles = []string{"/etc/passwd", "/etc/group", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/hostname", "/etc/ld.so.cache", "/etc/ssl/openssl.cnf",
		"/bin/sh", "/usr/bin/env", "/usr/bin/git", "/usr/lib/os-release"}
	SystemFolders = []string{"/", "/etc", "/etc/ssl/certs", "/etc/ld.so.conf.d", "/etc/alternatives", "/usr", "/usr/bin", "/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/local/bin",
		"/usr/share", "/bin", "/lib", "/var", "/var/lib", "/run", "/run/lock", "/dev", "/opt", "/srv", "/boot"}
)

// Config is what the caller planted on the host, as the program's first argument.
type Config struct {
	Inside bool
	// Foreign: it runs in a boundary that is not caisson's, of which nothing may be
	// changed. Gentle: outside, nothing of the machine may be changed or loaded.
	Foreign, Gentle bool

	Secret    string   // content of every file of Files
	Files     []string // outside only
	Forbidden []string // nothing inside may open these, whatever they hold
	// Ident holds "device:inode" of some of Forbidden, SystemFiles and SystemFolders on
	// the host: another file of that name is no matter.
	Ident     map[string]string
	Record    []string // files of the task's own record
	Work      string   // a folder that may be written
	Unix      []string // prefixes; listeners at .stream, .dgram, .seq
	Known     [][2]string
	Real      []string // of Known, those of the machine itself: outside only the right to connect is tried
	Abstract  []string
	Net       []string // host:port with a TCP listener
	Env       []string // names of the caller's variables
	EnvSecret string   // what some of them hold
	Pid       int      // a sleeper of the same user
	Tag       string   // in the sleeper's arguments
	Group     int      // a process group of the host
	Key       string   // description of a key in the host's session keyring
	Handle    []byte   // a file handle of the first of Files
	HandleOn  int
	Folder    string // shared read-only folder with set-id copies of this program
	Far       *Far   // what is beyond this machine; nil: nothing of it is tried
}

// Far is what is beyond this machine for a task with a way out: names and addresses
// of servers that the caller runs in a network of their own. A server begins its
// answer with a line that says where it was reached, for which host, and whether it
// saw the secret.
type Far struct {
	Proxy  string // host:port of the way out, inside
	Open   bool   // the task may reach all that is public; else a list
	Names  string // address of a name server that no rule names
	Denied string // the name of a host that is not allowed, and its address
	DeniedAt,
	Allowed, AllowedAt string // of one that is, at ports 80 and 443
	Lent, LentAt string   // of one that is, and to which a credential is lent for paths below /lent
	Flips        []string // names that are allowed and lead where nothing may go
	Metadata     string   // addresses that no rule about names lets through
	Private      string
	Token        string // name of the variable with the placeholder; outside it holds the secret
	Sum          string // SHA-256 of the secret, in hex
}

// Outcome is what became of one attempt: one line of the program's output.
type Outcome struct {
	Prop, Name string
	Errno      string `json:",omitempty"` // as the kernel said, "" for success
	Detail     string `json:",omitempty"`
	Left       string `json:",omitempty"` // not tried, and why
	Root       bool   `json:",omitempty"` // outside, only root can do it
	Reached    bool   `json:",omitempty"` // success: the kernel looked at the arguments
	Kernel     bool   `json:",omitempty"` // a kernel may lack it
	Level      int    `json:",omitempty"` // instead of the property's
}

// Use and Way are the properties of attempts that must work inside: Way those of a
// task's way out.
const (
	Use = "USE"
	Way = "WAY"
)
