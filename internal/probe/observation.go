package probe

import "github.com/caisson-dev/caisson/internal/task"

// Observation is what the host brings to a judgement.
type Observation struct {
	// Worker and Space are the host's look at the two processes that stay:
	// the worker and the first process of the tool space. Nil: not looked at,
	// so PRC, KRN and NET are unproved.
	Worker, Space *HostView
	// Levels the host vouches for on the axes the inside cannot show (SRC, RES,
	// CHN, SVC, CRD, APR, VER, EVD, CLN), and what each rests on.
	Levels task.Vector
	Seen   map[task.Axis]string
	// Gated is how often the host's gate was asked for something from inside while
	// it let nothing out.
	Gated int
	// Kernel is what the host sees of the process that is the boundary's own kernel:
	// Worker is of it then. Empty: it has none.
	Kernel string
	// Touched are the sentinels that somebody reached, from Plants.Touched.
	Touched []string
}

// HostView is one process of a boundary as the host's own /proc shows it.
type HostView struct {
	PID        int               `json:"pid"` // in the host's numbering
	Start      uint64            `json:"start_ticks"`
	NS         map[string]uint64 `json:"ns"`  // inode numbers
	Own        map[string]uint64 `json:"own"` // those of the observer
	UID        int               `json:"uid"` // real id outside
	NoNewPrivs bool              `json:"no_new_privs"`
	Seccomp    int               `json:"seccomp"` // 2: filtered
	CapEff     uint64            `json:"cap_eff"`
	CapPrm     uint64            `json:"cap_prm"`
	UIDMap     []string          `json:"uid_map"`
	Interfaces []string          `json:"interfaces"`
	Routes     []string          `json:"routes"` // that leave loopback
	Mounts     []Mount           `json:"mounts"`
	Cgroup     []string          `json:"cgroup"`
	Unread     []string          `json:"unread,omitempty"` // what could not be read, with the reason
	// Told are namespaces that who made the boundary says are its own, where they
	// could not be read.
	Told []string `json:"told,omitempty"`
}
