package stage

import "github.com/caisson-dev/caisson/internal/task"

// Plan is everything W and I need to build and seal one boundary. The host
// computes it; it is sent once, before anything untrusted exists.
type Plan struct {
	Task     task.ID `json:"task"`
	UID      int     `json:"uid"` // inside, 1000
	GID      int     `json:"gid"`
	Hostname string  `json:"hostname"`
	Home     string  `json:"home"`
	Workdir  string  `json:"workdir"` // the source's path inside
	Rootfs   string  `json:"rootfs,omitempty"`

	Steps        []Step   `json:"steps"`       // builds M1 in order
	Space        []Step   `json:"space"`       // builds M2's own mounts (fresh proc, masks) in order
	Landlock     []string `json:"landlock"`    // paths inside that stay writable; nil only with NoLandlock
	NoLandlock   bool     `json:"no_landlock"` // the kernel has none: a finding on the host
	ToolFilter   []byte   `json:"tool_filter"` // BPF, struct sock_filter little endian
	WorkerFilter []byte   `json:"worker_filter"`
	Rlimits      []Rlimit `json:"rlimits"`
	Userns       bool     `json:"userns"` // tools may make user namespaces
	Env          []string `json:"env"`    // of tools

	// UserLimits are values of /proc/sys/user for the boundary's user namespace:
	// what the kernel counts per user of the machine, across all namespaces.
	UserLimits map[string]int `json:"user_limits,omitempty"`
}

// Rest is what W and I need after they have exec'd themselves, when the plan
// and all that was made of it is gone from their memory. It follows the plan on
// the same socket.
type Rest struct {
	Filter  []byte   `json:"filter,omitempty"` // of W, which may not start a program any more
	Userns  bool     `json:"userns,omitempty"`
	Workdir string   `json:"workdir,omitempty"`
	Env     []string `json:"env,omitempty"`
	Rlimits []Rlimit `json:"rlimits,omitempty"`
}

// Step is one mount operation. Source inodes are checked when Dev or Ino is set.
type Step struct {
	Op     string   `json:"op"` // see the executor for the closed set
	Source string   `json:"source,omitempty"`
	FD     int      `json:"fd,omitempty"` // index+1 into the descriptors sent with the plan; 0 = none
	Target string   `json:"target,omitempty"`
	Flags  []string `json:"flags,omitempty"` // "ro","nosuid","nodev","noexec","recursive"
	Data   string   `json:"data,omitempty"`
	Dev    uint64   `json:"dev,omitempty"`
	Ino    uint64   `json:"ino,omitempty"`
	Mode   uint32   `json:"mode,omitempty"`
}

// Rlimit is one resource limit of tools.
type Rlimit struct {
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}
