// Package wire is where the rooms meet: it finds folders and identity, opens
// the inventory, lists the backends and makes the engine that doors act on.
//
// Its limit: it joins; every decision is made in a room.
package wire

import (
	"context"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	"github.com/caisson-dev/caisson/internal/backend/all"
	"github.com/caisson-dev/caisson/internal/boundary"
	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/door/control"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/version"
	"github.com/caisson-dev/caisson/internal/workerbin"
	"github.com/caisson-dev/caisson/internal/workerprog"
)

// house is one opened installation.
type house struct {
	dirs    sys.Dirs
	who     task.Identity
	db      *inventory.DB
	manager *boundary.Manager
	worker  func() (string, error)
	servers servers
	front   front
}

// Engine opens the installation of the calling user and returns the engine that
// doors act on, and what closes it. Unless quick, it first opens the inventory and
// finishes what is due: dead supervisors, ended retentions, cleanups to retry.
// With quick an operation opens it that needs it. note receives what no
// caller can be told, one line at a time, at any moment until it is closed.
func Engine(ctx context.Context, quick bool, note func(string)) (door.Engine, func(), error) {
	h, err := open(ctx, quick, note)
	if err != nil {
		return nil, nil, err
	}
	if !quick {
		h.manager.ReapDue(ctx)
	}
	return h.manager, h.close, nil
}

func (h *house) close() { _ = h.db.Close() }

func open(ctx context.Context, quick bool, note func(string)) (*house, error) {
	dirs, err := findDirs()
	if err != nil {
		return nil, err
	}
	if quick {
		return newHouse(dirs, later(dirs), true, note), nil
	}
	db, err := inventory.Open(ctx, dbFile(dirs))
	if err != nil {
		return nil, err
	}
	return newHouse(dirs, db, false, note), nil
}

func dbFile(d sys.Dirs) string { return filepath.Join(d.State, "state.db") }

func later(d sys.Dirs) *inventory.DB { return inventory.Later(dbFile(d)) }

// findDirs finds the folders, makes them where they are not there and checks them.
func findDirs() (dirs sys.Dirs, err error) {
	if dirs, err = sys.FindDirs(os.Getenv); err != nil {
		return dirs, task.Errorf(task.CodeStateStore, "wire", "no place for state: %w", err).
			WithHint("set HOME, or CAISSON_STATE_DIR and CAISSON_RUNTIME_DIR to absolute folders")
	}
	if os.Getenv("CAISSON_RUNTIME_DIR") == "" && sys.PrivateDir(dirs.Runtime) != nil {
		// Nobody asked for this place, and it cannot be had: uid 0 of a user
		// namespace, for one, may not write below /run.
		dirs.Runtime = filepath.Join(os.TempDir(), "caisson-"+strconv.Itoa(os.Getuid()))
	}
	if err := inventory.CheckDisk(dirs.State); err != nil {
		return dirs, err // before a folder is made there
	}
	for _, d := range []string{dirs.State, dirs.Runtime} {
		if err := sys.PrivateDir(d); err != nil {
			return dirs, task.Errorf(task.CodeStateStore, "wire", "the folder %s cannot be used: %w", d, err).
				WithHint("it must be writable, belong to you and be closed to others (chmod 700); CAISSON_STATE_DIR and CAISSON_RUNTIME_DIR name others")
		}
	}
	// Links in the way are resolved once: comparisons of paths rely on it.
	if dirs.State, err = filepath.EvalSymlinks(dirs.State); err == nil {
		dirs.Runtime, err = filepath.EvalSymlinks(dirs.Runtime)
	}
	if err != nil {
		return dirs, task.Errorf(task.CodeStateStore, "wire", "the state folders cannot be resolved: %w", err)
	}
	return dirs, nil
}

// newHouse joins the rooms. near: operations may follow hints that cost no inventory.
func newHouse(dirs sys.Dirs, db *inventory.DB, near bool, note func(string)) *house {
	source.RememberIn(dirs.State)
	h := &house{dirs: dirs, who: identity(dirs), db: db}
	h.worker = sync.OnceValues(func() (string, error) { return ensureWorker(filepath.Join(dirs.State, "bin"), workerbin.Unread) })
	readable := func() (string, error) { return ensureWorker(filepath.Join(dirs.State, "bin"), workerbin.Readable) }
	cfg := boundary.Config{
		StateDir: dirs.State, RuntimeDir: dirs.Runtime, DB: h.db, Identity: h.who,
		Version: version.String(), Environ: os.Environ(), Platform: platform(),
		Worker: h.worker,
		Remote: func(id task.ID) boundary.Remote { return &control.Client{Path: h.socket(id), Task: id} },
		Serve:  h.serve, Unname: h.unname, Spawn: h.spawn, Remove: h.remove, Checks: h.checks, Machine: h.machine, Usage: usage, Hook: h.hook, Print: printed, Decide: h.decide,
		Log: note,
	}
	cfg.Policies = h.policies()
	if near {
		cfg.Near = h.near
	}
	cfg.Drivers = remember(all.Drivers(all.Config{Worker: h.worker, Readable: readable, Engines: filepath.Join(dirs.State, "engine"), Bundles: filepath.Join(dirs.State, "oci"), Runtime: dirs.Runtime, Getenv: os.Getenv}), dirs.State, h.worker)
	cfg.Policy, cfg.Detect, cfg.Stamp = h.govern, h.detect, h.stamp
	linuxParts(&cfg)
	h.manager = boundary.New(cfg)
	return h
}

// identity is the user who started the program. The login name is for people
// and for the passwd entry inside; nothing is decided by it.
func identity(dirs sys.Dirs) task.Identity {
	id := task.Identity{UID: os.Getuid(), GID: os.Getgid(), Home: dirs.Home}
	if u, err := user.LookupId(strconv.Itoa(id.UID)); err == nil {
		id.Login = u.Username
	}
	if id.Login == "" {
		id.Login = "user" + strconv.Itoa(id.UID)
	}
	if !filepath.IsAbs(id.Home) || id.Home == "/" {
		id.Home = "/home/" + id.Login
	}
	return id
}

func ensureWorker(dir string, mode workerbin.Mode) (string, error) {
	path, err := workerbin.Ensure(dir, mode)
	if errors.Is(err, workerbin.ErrAbsent) {
		// Built without the small worker (go install): this program has its roles.
		if !workerprog.Able {
			return "", task.Errorf(task.CodeUnavailable, "wire.worker", "this program carries no worker and, linked with C, cannot be one itself").
				WithHint("build it with `make build`, or with CGO_ENABLED=0")
		}
		exe, err := os.Executable()
		if err != nil {
			return "", task.Errorf(task.CodeInternal, "wire.worker", "the own program cannot be found: %w", err)
		}
		path, err = workerbin.EnsureCopy(dir, exe, mode)
		if err == nil {
			return path, nil
		}
	}
	if err != nil {
		return "", task.Errorf(task.CodeUnavailable, "wire.worker", "the worker program cannot be put in place: %w", err).
			WithHint("the folder %s must be writable and allow programs to run", dir)
	}
	return path, nil
}

func platform() string {
	p := runtime.GOOS + "/" + runtime.GOARCH
	if k := kernel(); k != "" {
		p += " " + k
	}
	return p
}
