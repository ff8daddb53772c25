// Package backend is the contract that a boundary technology fulfils: say what
// it can prove here, make an instance, find it again, take it away.
//
// Its limit: a backend decides no policy, holds no secrets and never falls
// back to something weaker. Each technology is a child package; package
// backend/all lists them; package backendtest is the suite they all pass.
package backend

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"

	"github.com/caisson-dev/caisson/internal/task"
)

// ErrNotFound says that an instance certainly does not exist (any more).
// A backend that is not certain returns another error.
var ErrNotFound = errors.New("backend: instance not found")

// Resource is one thing a backend makes on the host. Name is decided before
// anything is made, and carries enough of the token that a stranger's thing
// cannot have it by accident.
type Resource struct {
	Kind     string // "process", "cgroup", …
	Name     string // deterministic, unique per kind
	Token    string // the recorded proof of ownership
	External string // filled once it exists: pid and start time, inode, …
}

// Mount is one host folder or file that appears inside.
type Mount struct {
	Source   string // absolute host path without links
	Target   string // absolute path inside
	Writable bool   // the zero value is read-only
	// Hide lists paths below Target, relative, that are covered by an empty
	// read-only file or folder: credentials, configuration, sockets.
	Hide []string
	// Cover lists paths that are covered in the same way and must be there: a
	// boundary in which one cannot be covered is not made.
	Cover []string
}

// File is a generated file that appears inside, read-only, below BinDir.
type File struct {
	Target string // absolute path inside
	Mode   uint32
	Text   string
}

// BinDir is the one folder inside for programs that a boundary brings along.
const BinDir = "/run/boundary/bin"

// Spec says what to make. It is complete: a backend looks nothing up in the
// environment of the process.
type Spec struct {
	Task     task.ID
	Instance string // eight characters naming this caisson installation
	Token    string
	Identity task.Identity // who files made inside must belong to outside

	Source  Mount   // the task's source; Writable except in a throwaway boundary
	Objects []Mount // the user's object stores, read-only, below ObjectsDir
	Out     Mount   // the output store
	Write   []Mount // further folders of the task's own, Writable; one below the source lies over it
	RO      []Mount // granted by a person
	Tools   []Mount // toolchains found on PATH
	Rootfs  string  // a folder to use as read-only root instead of host system folders
	Image   string  // id of an image of an engine's to use instead; only where Capabilities.Images
	Home    string  // path inside; a tmpfs

	Files []File // generated, below BinDir

	// Trust are certificates in PEM that programs inside trust beside those of the
	// system; empty: none. Both are in TrustFile, which also lies read-only over the
	// system's own list. A backend that cannot do that refuses.
	Trust string

	// Way is how programs inside reach what the host lets them reach; nil: they
	// reach nothing.
	Way *Way
	// Local are names of Unix sockets below LocalDir that are the host's: what is said
	// there is answered outside.
	Local []string
	// KnownHosts is the text of the SSH hosts that are known inside; empty: none is.
	KnownHosts string
	// Inward is how many connections at a time the host can make to servers inside;
	// 0: none.
	Inward int

	Env []string // K=V, complete
	// Git is who commits made inside belong to where a repository says nothing;
	// empty: git is left without.
	Git      task.GitIdentity
	Hostname string
	Limits   task.Limits
	Ptrace   bool // --grant ptrace
	Userns   bool // --grant userns

	WorkerPath string // the worker program, digest-checked, never mounted inside
	// Absent lists host paths that must not be reachable inside, nor anything
	// below them but the task's own mounts (Source, Objects, Out); a backend
	// refuses a mount that would expose one.
	Absent []string
}

// Way is where sockets listen inside that are the host's. Whatever is not caught
// by one of them is refused there by the kernel.
type Way struct {
	Proxy uint16   // TCP, at 127.0.0.1: programs that know a proxy are told of it
	Ports []uint16 // TCP, at whatever address of IPv4 a program believes to go to
	Six   []uint16 // TCP, at whatever address of IPv6
	At    []string // TCP, at these "address:port" of the loopback interface alone
}

// ObjectsDir is the one reserved path inside below which the user's object
// stores appear read-only, as 0, 1, ….
const ObjectsDir = "/run/boundary/objects"

// TrustFile is where the certificates are that programs inside trust, where a
// boundary has some of its own.
const TrustFile = "/run/boundary/trust.pem"

// DepsDir is where package managers of a task whose dependencies are installed in
// a phase of their own keep what they fetched.
const DepsDir = "/run/boundary/deps"

// LocalDir is where Unix sockets of the host's appear inside.
const LocalDir = "/run/boundary/lent"

// OutDir is where the output store appears inside.
const OutDir = "/run/boundary/out"

// Capabilities is what a backend can do on this machine, found by doing it.
type Capabilities struct {
	Usable   bool
	Why      string      // why not usable, for a person
	Fix      string      // how to make it usable
	Levels   task.Vector // promised; an axis that is not there is 0
	Rootfs   task.Vector // promised instead, where higher, when Spec.Rootfs is set
	How      map[task.Axis]string
	Features []task.Feature
	Findings []task.Finding
	Version  string
	Userns   Variant // what differs when Spec.Userns is set
	Way      Variant // what differs when Spec.Way is set, or anything that goes with it
	Inward   Variant // what differs when the host connects to servers inside
	Images   bool    // Spec.Image can be fulfilled; the levels of Rootfs are its too
}

// Imager is a Driver that has images: Spec.Image can be set.
type Imager interface {
	// FindImage returns the id by which Create takes what a person calls an image.
	// CodeNotFound: it is not there. With pull the engine fetches it then, which may
	// take long.
	FindImage(ctx context.Context, ref string, pull bool) (id string, err error)
}

// Variant is what a wish changes of what a backend promises.
type Variant struct {
	How map[task.Axis]string // said instead of Capabilities.How
	Why string               // why no such boundary can be made here; empty: it can
	Fix string               // what to do then
}

// Driver makes boundaries of one technology. All methods may be called from
// several processes at once.
type Driver interface {
	// Name is the word a person types after --backend.
	Name() string
	// Probe finds out by trial what can be proved here. It leaves nothing
	// behind. A machine that cannot is Usable=false, not an error.
	Probe(ctx context.Context) (Capabilities, error)
	// Resources names, without any effect, everything Create would make, so
	// that the caller can record the intent first.
	Resources(Spec) []Resource
	// Create makes the instance and returns when its worker is ready to talk.
	// On error everything it made is gone again, or the error says what is not.
	Create(ctx context.Context, s Spec) (Instance, error)
	// Attach finds what an earlier process made, from the recorded resources,
	// so that it can be destroyed. ErrNotFound only when certain that nothing
	// of it exists.
	Attach(ctx context.Context, rs []Resource) (Instance, error)
	// List returns everything on this host that carries the marks of the given
	// caisson installation, recorded or not.
	List(ctx context.Context, instance string) ([]Resource, error)
}

// Instance is one live boundary. Safe for concurrent use.
type Instance interface {
	// Resources returns what was made, with External filled in.
	Resources() []Resource
	// Dial returns the byte stream to the worker. It can be taken once; the
	// caller closes it. Closing it ends the boundary.
	Dial(ctx context.Context) (net.Conn, error)
	// Observe returns what the host sees of it.
	Observe(ctx context.Context) (Observation, error)
	// Destroy ends every process inside and removes what was made. nil means
	// confirmed gone. It is idempotent.
	Destroy(ctx context.Context) error
}

// PTYOpener is an Instance that can open terminals in the boundary's own
// devpts, so that the master never was inside. The caller closes both files.
type PTYOpener interface {
	OpenPTY(rows, cols uint16) (master, slave *os.File, err error)
}

// Listeners is an Instance that can have sockets of the host's inside: those of
// Spec.Way, and one for questions for names.
type Listeners interface {
	// Sockets returns them, each time anew: to close what it returns does not end
	// the sockets, which go with the instance. The caller closes them.
	Sockets() (Sockets, error)
}

// Sockets listen inside a boundary. The address at which one of Direct gets a
// connection, or of Names a packet, is the one that was asked for.
type Sockets struct {
	Proxy  net.Listener
	Direct []net.Listener
	Names  []net.PacketConn
}

// Close closes all of them.
func (s Sockets) Close() error {
	var errs []error
	if s.Proxy != nil {
		errs = append(errs, s.Proxy.Close())
	}
	for _, l := range s.Direct {
		errs = append(errs, l.Close())
	}
	for _, n := range s.Names {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// Locals is an Instance that can have Unix sockets of the host's inside: those of
// Spec.Local.
type Locals interface {
	// LocalSockets returns them by name, each time anew: to close what it returns
	// does not end the sockets, which go with the instance. The caller closes them.
	LocalSockets() (map[string]net.Listener, error)
}

// Inward is an Instance into which the host can connect: see Spec.Inward.
type Inward interface {
	// DialInside connects to an address of the boundary's loopback interface. It
	// waits for one of the connections that may be had, and the caller closes it.
	DialInside(ctx context.Context, at netip.AddrPort) (net.Conn, error)
	// Listening returns where servers inside wait for TCP connections, as the host's
	// kernel says, without the sockets that are the host's own.
	Listening() ([]netip.AddrPort, error)
}

// Movable is an Instance that stays whole when the process which made it becomes
// another program.
type Movable interface {
	// Carry returns what Take needs there, and the descriptors that must be open.
	// The stream to the worker, once dialed, is not among them.
	Carry() (state []byte, fds []int, err error)
	// Become makes this process the program at path, with fds open beside the
	// standard ones. It returns only when it could not, with everything as before.
	Become(path string, argv, env []string, fds []int) error
}

// Taker is a Driver whose instances are Movable.
type Taker interface {
	// Take takes an instance over in the program that the process became. Only
	// descriptors may be taken twice.
	Take(state []byte) (Instance, error)
}

// Qualified is an Instance that knows findings which only came up while it was
// made. They lower the levels as those of Capabilities do.
type Qualified interface {
	Findings() []task.Finding
}

// Insider is an Instance whose tools do not have the usual user and group ids.
type Insider interface {
	// Inside returns them as the inside counts.
	Inside() (uid, gid int)
}

// Kerneled is an Instance whose inside has a kernel of its own: what runs there are no
// processes of this machine's.
type Kerneled interface {
	// Kernel returns what this machine's kernel shows of the process that is the
	// other one, and the user that the worker has there, as it said before anything
	// else ran. Empty: it does not show what must be.
	Kernel() (seen string, worker int)
}

// Observation is what the host itself measured, never what the inside said.
type Observation struct {
	Alive       bool
	WorkerPID   int
	MemoryBytes int64 // -1: not measurable here
	Pids        int64
	CPUSeconds  float64
	OOMKills    int64
	// Told are the namespaces, by their names in /proc, of which who made the boundary
	// says that they are its own: it counts where the kernel does not show them to
	// this process. "mnt" says too that no more is mounted than was asked for.
	Told []string
	// Levels the host can vouch for by its own look at the live instance, with
	// what it saw.
	Levels task.Vector
	Seen   map[task.Axis]string
}

// Keyed is a Driver whose answer to Probe rests on more than this machine and the
// worker.
type Keyed interface {
	// Key changes when that may have changed. Empty: no answer may be remembered.
	Key() string
}

// Learner is a Driver that has to hear from another program before it can make
// anything.
type Learner interface {
	// Learned is what it heard for Probe and need not hear again under the same key;
	// nil: nothing.
	Learned() []byte
	// Recall returns that to it, or nil, and has it begin to reach that program. It
	// does not wait.
	Recall(learned []byte)
	// Forget has it hear everything anew.
	Forget()
}

// Fresher is implemented by drivers whose Probe may answer from memory.
type Fresher interface {
	// Fresh is Probe that tries everything again.
	Fresh(ctx context.Context) (Capabilities, error)
}
