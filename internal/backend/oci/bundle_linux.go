package oci

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/foreign"
	"github.com/caisson-dev/caisson/internal/backend/internal/rootdir"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/guest"
)

// The part of the runtime specification that is needed, under its own names.
type (
	config struct {
		Version  string  `json:"ociVersion"`
		Process  process `json:"process"`
		Root     root    `json:"root"`
		Hostname string  `json:"hostname"`
		Mounts   []mount `json:"mounts"`
		Linux    linux   `json:"linux"`
	}
	process struct {
		Terminal        bool                `json:"terminal"`
		User            user                `json:"user"`
		Args            []string            `json:"args"`
		Env             []string            `json:"env"`
		Cwd             string              `json:"cwd"`
		Capabilities    map[string][]string `json:"capabilities"`
		Rlimits         []rlimit            `json:"rlimits"`
		NoNewPrivileges bool                `json:"noNewPrivileges"`
	}
	user struct {
		UID int `json:"uid"`
		GID int `json:"gid"`
	}
	rlimit struct {
		Type string `json:"type"`
		Hard uint64 `json:"hard"`
		Soft uint64 `json:"soft"`
	}
	root struct {
		Path     string `json:"path"`
		ReadOnly bool   `json:"readonly"`
	}
	mount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options"`
	}
	linux struct {
		UIDMappings   []idMap     `json:"uidMappings,omitempty"`
		GIDMappings   []idMap     `json:"gidMappings,omitempty"`
		Resources     *resources  `json:"resources,omitempty"`
		CgroupsPath   string      `json:"cgroupsPath,omitempty"`
		Namespaces    []namespace `json:"namespaces"`
		MaskedPaths   []string    `json:"maskedPaths,omitempty"`
		ReadonlyPaths []string    `json:"readonlyPaths,omitempty"`
	}
	idMap struct {
		Container int `json:"containerID"`
		Host      int `json:"hostID"`
		Size      int `json:"size"`
	}
	namespace struct {
		Type string `json:"type"`
	}
	resources struct {
		Devices []device `json:"devices"`
		Memory  *memory  `json:"memory,omitempty"`
		CPU     *cpu     `json:"cpu,omitempty"`
		Pids    *pids    `json:"pids,omitempty"`
	}
	device struct {
		Allow  bool   `json:"allow"`
		Type   string `json:"type,omitempty"`
		Major  *int64 `json:"major,omitempty"`
		Minor  *int64 `json:"minor,omitempty"`
		Access string `json:"access"`
	}
	memory struct {
		Limit int64 `json:"limit"`
		Swap  int64 `json:"swap,omitempty"`
	}
	cpu struct {
		Quota  int64  `json:"quota"`
		Period uint64 `json:"period"`
	}
	pids struct {
		Limit int64 `json:"limit"`
	}
)

// nodes are the devices that a program may use: null, zero, full, random, urandom,
// tty, ptmx and terminals.
var nodes = [][2]int64{{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}, {5, 2}, {136, -1}}

// bundle makes config.json and the root's mount points below dir. binds come with
// outer places before inner ones.
func (in *instance) bundle(dir string, l *rootdir.Layout, binds []backend.Mount) error {
	s := in.spec
	rootfs := filepath.Join(dir, "rootfs")
	if err := os.MkdirAll(rootfs, 0o755); err != nil {
		return err
	}
	for at, to := range l.Links {
		p := filepath.Join(rootfs, at)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(to, p); err != nil {
			return err
		}
	}
	mounts := in.mounts(binds)
	for i, m := range mounts {
		switch below, err := in.placed(mounts[:i], m); {
		case err != nil:
			return err
		case below:
			continue
		}
		p := filepath.Join(rootfs, m.Destination)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if st, err := os.Stat(m.Source); m.Type == "bind" && err == nil && !st.IsDir() {
			if err := os.WriteFile(p, nil, 0o444); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(p, 0o755); err != nil {
			return err
		}
	}
	caps := make([]string, 0, len(guest.Needed)+2)
	for _, c := range foreign.Capabilities(s) {
		caps = append(caps, "CAP_"+c)
	}
	c := config{
		Version: "1.0.2", Hostname: rootdir.Hostname(s), Root: root{Path: rootfs, ReadOnly: true}, Mounts: mounts,
		Process: process{
			Args: []string{foreign.WorkerAt, "guest"}, Env: []string{}, Cwd: "/", NoNewPrivileges: true,
			Capabilities: map[string][]string{"bounding": caps, "effective": caps, "permitted": caps},
			Rlimits:      []rlimit{{Type: "RLIMIT_CORE"}},
		},
		Linux: linux{UIDMappings: in.shape.maps, GIDMappings: in.shape.maps, MaskedPaths: foreign.Masked, ReadonlyPaths: foreign.ReadOnly, CgroupsPath: in.shape.group},
	}
	var nofile unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &nofile) == nil {
		n := min(nofile.Max, 1<<16)
		c.Process.Rlimits = append(c.Process.Rlimits, rlimit{Type: "RLIMIT_NOFILE", Hard: n, Soft: n})
	}
	for _, n := range []string{"pid", "ipc", "uts", "mount", "network"} {
		c.Linux.Namespaces = append(c.Linux.Namespaces, namespace{n})
	}
	if in.driver.name != GVisor {
		c.Linux.Namespaces = append(c.Linux.Namespaces, namespace{"cgroup"})
	}
	if len(in.shape.maps) > 0 {
		c.Linux.Namespaces = append(c.Linux.Namespaces, namespace{"user"})
	}
	if in.shape.group != "" {
		c.Linux.Resources = in.bounds()
	}
	b, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600)
}

// placed reports whether m lies in one of the mounts before it. A runtime would make
// a place for it there, also in a folder of this machine's: so it must be there, but
// in memory and in what is the task's own.
func (in *instance) placed(before []mount, m mount) (bool, error) {
	outer := mount{}
	for _, o := range before {
		if strings.HasPrefix(m.Destination, o.Destination+"/") && len(o.Destination) >= len(outer.Destination) {
			outer = o
		}
	}
	switch {
	case outer.Destination == "":
		return false, nil
	case outer.Type != "bind" || slices.Contains(outer.Options, "rw"):
		return true, nil
	}
	rel := strings.TrimPrefix(m.Destination, outer.Destination+"/")
	at, err := os.OpenRoot(outer.Source)
	if err != nil {
		return true, err
	}
	defer at.Close()
	if _, err := at.Lstat(rel); err != nil {
		return true, task.Errorf(task.CodeUsage, "oci.create", "%s cannot be shown inside: it lies in %s, which is read-only and has no such place", m.Destination, outer.Destination).
			WithHint("choose a path outside of the system folders; nothing was created")
	}
	return true, nil
}

func (in *instance) bounds() *resources {
	l := in.limits
	r := &resources{Devices: []device{{Access: "rwm"}}, Pids: &pids{int64(l.Pids)}, Memory: &memory{Limit: l.MemoryBytes}, CPU: &cpu{Quota: int64(l.CPUs * 100000), Period: 100000}}
	if swapCounted() {
		r.Memory.Swap = l.MemoryBytes
	}
	for _, n := range nodes {
		d := device{Allow: true, Type: "c", Major: &n[0], Minor: &n[1], Access: "rw"}
		if n[1] < 0 {
			d.Minor = nil
		}
		r.Devices = append(r.Devices, d)
	}
	return r
}

// swapCounted reports whether swap can be limited here. A version 1 kernel without
// the count refuses such a limit.
func swapCounted() bool {
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err != nil {
		return true
	}
	_, err := os.Stat("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
	return err == nil
}

// mounts lists everything that lies in the root, outer places before inner ones.
func (in *instance) mounts(binds []backend.Mount) []mount {
	s, size := in.spec, strconv.FormatInt(foreign.MemoryFolder(in.limits), 10)
	ids := fmt.Sprintf(",uid=%d,gid=%d", in.shape.ids.UID, in.shape.ids.GID)
	inMemory := func(at, options string) mount {
		return mount{Destination: at, Type: "tmpfs", Source: "tmpfs", Options: strings.Split(options, ",")}
	}
	out := []mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		inMemory("/dev", "nosuid,strictatime,mode=755,size=64k"),
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
		inMemory("/dev/shm", "nosuid,noexec,nodev,mode=1777,size="+size),
	}
	if in.driver.name != GVisor {
		out = append(out, mount{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}})
	}
	for _, m := range []mount{
		inMemory("/tmp", "nosuid,nodev,mode=1777,size="+size), inMemory("/var/tmp", "nosuid,nodev,mode=1777,size="+size),
		inMemory(s.Home, "nosuid,nodev,mode=0700,size="+size+ids),
	} {
		if !slices.ContainsFunc(binds, func(b backend.Mount) bool { return b.Target == m.Destination }) {
			out = append(out, m)
		}
	}
	for _, b := range binds {
		m := mount{Destination: b.Target, Type: "bind", Source: b.Source, Options: []string{"rbind", "rprivate", "nosuid", "nodev", "ro"}}
		if b.Writable {
			m.Options[4] = "rw"
		} else if st, err := os.Stat(b.Source); err == nil && st.IsDir() {
			// What is mounted below it is read-only too. Of a file crun can only say "ro".
			m.Options = append(m.Options, "rro")
		}
		out = append(out, m)
	}
	sort.SliceStable(out, func(i, j int) bool {
		return strings.Count(out[i].Destination, "/") < strings.Count(out[j].Destination, "/")
	})
	return out
}
