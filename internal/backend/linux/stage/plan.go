package stage

import "github.com/caisson-dev/caisson/internal/worker/crossing"

// Plan is everything W and I need to build and seal one boundary. The host
// computes it; it is sent once, before anything untrusted exists.
type Plan struct {
	UID      int // inside, 1000
	GID      int
	Hostname string
	Workdir  string // the source's path inside

	Steps        []Step   // builds M1 in order
	Space        []Step   // builds M2's own mounts (fresh proc, masks) in order
	Landlock     []string // paths inside that stay writable; nil only with NoLandlock
	NoLandlock   bool     // the kernel has none: a finding on the host
	ToolFilter   []byte   // BPF, struct sock_filter little endian
	WorkerFilter []byte
	Rlimits      []Rlimit
	Userns       bool     // tools may make user namespaces
	Ptrace       bool     // tools may trace each other
	Env          []string // of tools

	// UserLimits are values of /proc/sys/user for the boundary's user namespace:
	// what the kernel counts per user of the machine, across all namespaces.
	UserLimits map[string]int

	// Way is the way out; nil: there is none.
	Way *Way
	// Local are names of Unix sockets of the host's, in LocalDir.
	Local []string
	// Inward is how many sockets the host gets by which it connects to servers
	// inside.
	Inward int
}

// Way is where sockets of the host's listen inside.
type Way = crossing.Way

// LocalDir is where Unix sockets of the host's are inside. The plan has a step that
// makes it, which can be written until they are there.
const LocalDir = "/run/boundary/lent"

// Rest is what W and I need after they have exec'd themselves, when the plan
// and all that was made of it is gone from their memory. It follows the plan on
// the same socket.
type Rest struct {
	Filter  []byte // of W, which may not start a program any more
	Userns  bool
	Workdir string
	Env     []string
	Rlimits []Rlimit

	// Of W: what it may change for file tools, or that the kernel has no Landlock.
	Landlock   []string
	NoLandlock bool
}

// Step is one mount operation. Source inodes are checked when Dev or Ino is set.
type Step struct {
	Op     string // see the executor for the closed set
	Source string
	FD     int // index+1 into the descriptors sent with the plan; 0 = none
	Target string
	Flags  []string // "ro","nosuid","nodev","noexec","recursive"
	Data   string
	Dev    uint64
	Ino    uint64
	Mode   uint32
}

// Rlimit is one resource limit of tools.
type Rlimit struct {
	Resource int
	Soft     uint64
	Hard     uint64
}
