package foreign

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/hostsockets"
	"github.com/caisson-dev/caisson/internal/backend/internal/rootdir"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/crossing"
	"github.com/caisson-dev/caisson/internal/worker/guest"
)

// doorAt is where the worker hands the host's sockets over.
const doorAt = "/run/boundary/door"

// Folders of the generated root that hold sockets of the host's.
const (
	doorDir = "root/door"
	lentDir = "root/lent"
)

// Capabilities are those that the worker of a boundary begins with.
func Capabilities(s backend.Spec) []string {
	if s.Way == nil {
		return guest.Needed
	}
	return append(slices.Clone(guest.Needed), guest.NeededOfWay...)
}

// Crossings are the host's sockets of one boundary whose root another program makes.
// The zero value has none. What makes the boundary calls Open before, and Take when
// the worker has answered; anybody calls the rest at any time.
type Crossings struct {
	hostsockets.Set
	// Carry says that no descriptor can be handed over: see hostsockets.Carried. It is
	// set before Open.
	Carry bool

	key  []byte
	door *hostsockets.Door
	why  string // nothing came; empty: it did
}

// crosses reports whether sockets are to come from inside.
func crosses(s backend.Spec) bool { return s.Way != nil || s.Inward > 0 }

// Open makes what the host listens at itself, and the files by which programs inside
// find their way, in the generated folder dir, and has them mounted.
func (x *Crossings) Open(dir string, l *rootdir.Layout, s backend.Spec, ids Insiders) error {
	bind := func(name, target string) {
		l.Binds = append(l.Binds, backend.Mount{Source: filepath.Join(dir, name), Target: target})
	}
	if crosses(s) {
		if err := os.Mkdir(filepath.Join(dir, doorDir), 0o755); err != nil {
			return err
		}
		var err error
		if x.Carry && s.Way != nil {
			x.key = make([]byte, crossing.KeySize)
			_, _ = rand.Read(x.key) // it does not fail
			c, err := hostsockets.OpenCarried(filepath.Join(dir, doorDir), [crossing.KeySize]byte(x.key), s.Way)
			if err != nil {
				return err
			}
			x.SetCarried(c)
		} else if x.door, err = hostsockets.OpenDoor(filepath.Join(dir, doorDir)); err != nil {
			return err
		}
		bind(doorDir, doorAt)
	}
	if len(s.Local) > 0 {
		if err := os.Mkdir(filepath.Join(dir, lentDir), 0o755); err != nil {
			return err
		}
		for _, n := range s.Local {
			fd, err := hostsockets.ListenLocal(filepath.Join(dir, lentDir), n, unix.SOCK_STREAM)
			if err != nil {
				return err
			}
			x.AddLocal(fd)
		}
		bind(lentDir, backend.LocalDir)
	}
	file := func(name, text string) error {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(p, []byte(text), 0o444); err != nil {
			return err
		}
		return os.Chmod(p, 0o444) // whatever the mask is
	}
	if text, over := rootdir.Trust(s); text != "" {
		if err := file("root/trust.pem", text); err != nil {
			return err
		}
		for _, at := range append([]string{backend.TrustFile}, over...) {
			bind("root/trust.pem", at)
		}
	}
	// An engine writes files of its own at the first two, unless something lies there;
	// an image has none of the others that knows of this boundary.
	for name, text := range rootdir.Identity(s, "", ids.UID, ids.GID) {
		own := s.Way != nil && (name == "resolv.conf" || name == "hosts")
		if s.Image != "" {
			own = own || s.Way != nil && name == "nsswitch.conf" || name == "ssh/ssh_known_hosts"
		}
		if own {
			if err := file("root/etc/"+name, text); err != nil {
				return err
			}
			bind("root/etc/"+name, "/etc/"+name)
		}
	}
	return nil
}

// planCrossings adds to a plan what the worker makes for the host.
func planCrossings(p *guest.Plan, s backend.Spec) {
	if !crosses(s) {
		return
	}
	p.Door, p.Inward = doorAt+"/"+hostsockets.DoorName, s.Inward
	if w := s.Way; w != nil {
		p.Way = &crossing.Way{Proxy: w.Proxy, Ports: w.Ports, Six: w.Six, At: w.At}
	}
}

// Plan adds the secret of what is carried.
func (x *Crossings) Plan(p *guest.Plan) { p.Carry = x.key }

// Take takes what the worker handed over. pid is its number as this process sees it, 0
// where it is seen to be none of this machine; why is what it said where it handed
// nothing over. Nothing but the worker ran inside yet, and the door is closed before
// anything does. Where nothing came that the boundary needs it is an error.
func (x *Crossings) Take(s backend.Spec, pid int, why string) error {
	if !crosses(s) {
		return nil
	}
	defer x.closeDoor()
	if why == "" && x.key != nil {
		return nil // it is behind its door
	}
	if why == "" && pid == 0 {
		why = "the worker is no process of this machine that can be told from here"
	}
	if why == "" {
		got, err := x.door.Take(pid)
		if err == nil {
			err = x.Add(got, s.Way, s.Inward)
		}
		if err != nil {
			why = err.Error()
		}
	}
	if x.why = Printable(why, 300); why == "" || s.Way == nil {
		return nil
	}
	return task.Errorf(task.CodeUnavailable, "backend.way", "the host got no sockets from inside the boundary: %s", x.why).WithHint("%s", noSocketsFix)
}

// What to do where nothing is let through to a socket of this machine.
const noSocketsFix = "a runtime on this machine's own kernel, whose processes may connect to a socket in a folder that they are given (SELinux may refuse it); or --backend linux"

// Variant says what a trial found out.
func (x *Crossings) Variant() backend.Variant {
	if x.why == "" {
		return backend.Variant{}
	}
	return backend.Variant{Why: "the host gets no sockets from inside such a boundary: " + x.why, Fix: noSocketsFix}
}

// Feature is the same as a line of a report; there says what came about where it works.
func (x *Crossings) Feature(there string) task.Feature {
	v := x.Variant()
	f := task.Feature{Name: "egress", OK: v.Why == "", Detail: there, Fix: v.Fix}
	if !f.OK {
		f.Detail = v.Why
	}
	return f
}

// Close ends all of it. What was handed out before goes on.
func (x *Crossings) Close() {
	x.closeDoor()
	x.Set.Close()
}

func (x *Crossings) closeDoor() {
	if x.door != nil {
		_ = x.door.Close() // its folder goes with the boundary
		x.door = nil
	}
}
