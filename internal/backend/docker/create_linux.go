package docker

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/foreign"
	"github.com/caisson-dev/caisson/internal/backend/internal/rootdir"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/guest"
)

// setupTime bounds the worker's answer to its plan.
const setupTime = 30 * time.Second

// insidersOf says as whom tools must run inside so that the task's files are
// theirs, without changing a file's owner: with root's engine, as the user
// outside (root's are another's first: see remap); with a user's, as 0, which that user is inside.
func insidersOf(k *known, s backend.Spec) foreign.Insiders {
	if k.rootless() {
		return foreign.Insiders{Worker: 1}
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.Token))
	return foreign.Insiders{UID: s.Identity.UID, GID: s.Identity.GID, Worker: 1<<30 + int(h.Sum32()>>3)}
}

func (k *known) option(name string) bool {
	return slices.ContainsFunc(k.system.SecurityOptions, func(o string) bool {
		first, _, _ := strings.Cut(o, ",")
		return first == "name="+name || first == name
	})
}

func (k *known) rootless() bool { return k.system.Rootless || k.option("rootless") }

// Create implements backend.Driver.
func (d *Driver) Create(ctx context.Context, s backend.Spec) (backend.Instance, error) {
	const op = "docker.create"
	if err := ctx.Err(); err != nil {
		return nil, task.Errorf(task.CodeCanceled, op, "%w", context.Cause(ctx))
	}
	if err := d.check(s); err != nil {
		return nil, err
	}
	in, err := d.create(ctx, s, false)
	if task.CodeOf(err) == task.CodeUnavailable && d.mistook(ctx) {
		in, err = d.create(ctx, s, false) // what failed is gone, and nobody's command ran in it
	}
	if err != nil {
		return nil, err
	}
	return in, nil
}

// create is Create; in a trial it is no error that no sockets came from inside.
func (d *Driver) create(ctx context.Context, s backend.Spec, trial bool) (*instance, error) {
	const op = "docker.create"
	e, k, err := d.engine(ctx)
	if err != nil {
		return nil, err
	}
	in := &instance{trial: trial, driver: d, spec: s, engine: e, known: k, token: s.Token, limits: foreign.Limits(s.Limits, k.system.MemTotal, k.system.NCPU), ids: insidersOf(k, s)}
	if err := in.start(ctx); err != nil {
		cctx, cancel := sys.Detach(ctx, destroyTimeout)
		defer cancel()
		if derr := in.Destroy(cctx); derr != nil {
			return nil, task.Errorf(task.CodeStuck, op, "%v; and what was made is not gone: %w", err, derr)
		}
		return nil, foreign.AsError(op, err, "run `caisson doctor` to see what this engine can do")
	}
	return in, nil
}

// check refuses a spec that cannot be fulfilled, before anything is made.
func (d *Driver) check(s backend.Spec) error {
	const op = "docker.create"
	if err := foreign.Check(op, s); err != nil {
		return err
	}
	if s.Userns {
		return task.Errorf(task.CodeUnsupported, op, "%s", noUserns).WithHint("%s", noUsernsFix)
	}
	if s.Image != "" && s.Rootfs != "" {
		return task.Errorf(task.CodeUsage, op, "a boundary has one root: --image and --rootfs exclude each other").WithHint("leave one of the two out")
	}
	return nil
}

// What is not offered, and what to do instead.
const (
	noUserns    = "--grant userns: an engine's own filter refuses user namespaces to what it starts"
	noUsernsFix = "--backend linux can give it"
)

// start makes folder and container, starts it and has the worker answer.
func (in *instance) start(ctx context.Context) error {
	in.remap()
	layout, err := in.generate(ctx)
	if err != nil {
		return err
	}
	if err := sys.Fault("docker.folder"); err != nil {
		return err
	}
	image, err := in.image(ctx, layout)
	if err != nil {
		return err
	}
	if err := in.crossings.Open(in.folder, layout, in.spec, in.ids); err != nil {
		return err
	}
	mounts, err := in.mounts(layout)
	if err != nil {
		return err
	}
	if err := in.covered(image); err != nil {
		return err
	}
	if err := in.attachMapped(mounts); err != nil {
		return err
	}
	if err := sys.Fault("docker.mapped"); err != nil {
		return err
	}
	cfg := in.config(image, mounts)
	var made struct {
		ID       string `json:"Id"`
		Warnings []string
	}
	cctx, done := context.WithTimeout(ctx, answerTime)
	err = in.engine.call(cctx, http.MethodPost, "/containers/create", url.Values{"name": {nameOf(in.spec)}}, cfg, &made)
	done()
	if err != nil {
		if unreachable(err) || conflict(err) {
			// It may have been made all the same, and is found by its name; one that was
			// there before is not ours, which its labels say.
			in.maybe()
		}
		return in.explainCreate(err)
	}
	if !isID(made.ID) {
		in.maybe() // it has its name
		return task.Errorf(task.CodeUnavailable, "docker.create", "the engine at %s does not say which container it made: %q", in.engine.at, printable(made.ID, 80)).
			WithHint("nothing ran; what answers there may be no engine")
	}
	in.mu.Lock()
	in.id = made.ID
	in.mu.Unlock()
	if err := sys.Fault("docker.created"); err != nil {
		return err
	}
	conn, err := in.engine.attach(ctx, in.id)
	if err != nil {
		return fmt.Errorf("attach to the container: %w", err)
	}
	in.mu.Lock()
	in.conn = conn
	in.mu.Unlock()
	if err := sys.Fault("docker.attached"); err != nil {
		return err
	}
	seen, why, err := in.launch(ctx, conn)
	if err != nil {
		return err
	}
	if err := in.detachMapped(); err != nil {
		return err
	}
	if err := sys.Fault("docker.answered"); err != nil {
		return err
	}
	pid, err := in.verify(ctx, seen)
	if err != nil {
		return err
	}
	if err := in.takeSockets(pid, why); err != nil {
		return err
	}
	return sys.Fault("docker.sockets")
}

// launch has the engine start the container and the worker answer. It returns what
// the engine then says of it, nil: nothing, and why no sockets came. The plan lies in
// the worker's input before there is a worker, and whatever is waited for is waited
// for together.
func (in *instance) launch(ctx context.Context, conn *attached) (seen *containerInfo, door string, err error) {
	type start struct {
		err  error
		seen *containerInfo
	}
	started := make(chan start, 1)
	if err := conn.SetDeadline(time.Now().Add(answerTime + setupTime)); err != nil {
		return nil, "", err
	}
	go func() {
		var s start
		cctx, done := context.WithTimeout(ctx, answerTime)
		s.err = in.engine.call(cctx, http.MethodPost, "/containers/"+in.id+"/start", nil, nil, nil)
		done()
		if s.err != nil {
			s.err = in.explainStart(s.err)
		} else if s.err = sys.Fault("docker.started"); s.err == nil {
			s.seen, _ = in.engine.inspect(ctx, in.id) // else verify looks
		}
		if s.err != nil {
			_ = conn.SetDeadline(time.Unix(1, 0)) // nobody will answer
		}
		started <- s
	}()
	door, err = in.greet(ctx, conn)
	s := <-started
	if s.err != nil {
		return nil, "", s.err
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	return s.seen, door, err
}

// greet sends the plan and takes the answer, until the deadline of conn or the end of
// ctx; door says why no sockets came.
func (in *instance) greet(ctx context.Context, conn *attached) (door string, err error) {
	const op = "docker.start"
	s := in.spec
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err = guest.Send(conn, foreign.Plan(s, in.ids, in.limits))
	var r guest.Report
	if err == nil {
		err = guest.Receive(conn, &r)
	}
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		text := conn.complaint()
		if c, ierr := in.engine.inspect(ctx, in.id); ierr == nil && !c.State.Running {
			text = strings.TrimSpace(fmt.Sprintf("it ended with %d; %s %s", c.State.ExitCode, c.State.Error, text))
		}
		return "", task.Errorf(task.CodeUnavailable, op, "the worker did not answer from inside the container: %v; %s", err, printable(text, 600)).
			WithHint("run `caisson doctor` to see what this engine can do")
	case r.OK:
		in.mu.Lock()
		in.boot, in.begun = r.Boot, r.Start
		in.mu.Unlock()
		if r.Seccomp != 2 {
			in.finding(task.Finding{ID: "engine-no-seccomp", Axis: task.KRN, Cap: task.MaxLevel(task.KRN), Text: "the engine starts containers without a system call filter; tools have this program's, the worker has none",
				Fix: "an engine with seccomp; start it without seccomp-profile unconfined"})
		}
		return r.Door, nil
	case r.Why == guest.WhyMark:
		return "", task.Errorf(task.CodeUnavailable, op, "the engine at %s does not see this machine's files: %s", in.engine.at, printable(r.Error, 200)).
			WithHint("an engine in a virtual machine must share %s; a remote one cannot be used", in.driver.cfg.Dir)
	case r.Why == guest.WhyOwner:
		return "", task.Errorf(task.CodeUnavailable, op, "inside the container the task's files belong to user %d, not to %d as whom its commands would run: %s", r.Owner, in.ids.UID, printable(r.Error, 200)).
			WithHint("run caisson as the user that runs the engine, or with root's engine in the same mounts as this program; no file's owner is changed")
	}
	return "", task.Errorf(task.CodeUnavailable, op, "the worker could not set itself apart inside the container: %s", printable(r.Error, 400)).
		WithHint("%s", cmp.Or(in.labels(r.Error), "the engine must give it the capabilities "+strings.Join(guest.Needed, ", ")+" and more than one user id"))
}

// labels is the next step where an engine with SELinux says that something may not be
// used: its labels stay on, and no file is labelled anew, as a mount with :z would
// have it, because whoever else may use the file would be shut out.
func (in *instance) labels(text string) string {
	if !in.known.option("selinux") || !strings.Contains(strings.ToLower(text), "permission denied") {
		return ""
	}
	dir := filepath.Dir(in.driver.cfg.Dir)
	return fmt.Sprintf("SELinux keeps containers from files without their label, and nothing is labelled anew without being told; "+
		"sudo semanage fcontext -a -t container_file_t '%s(/.*)?' && sudo restorecon -R %s lets them have caisson's own", dir, dir)
}

// generate makes the folder of what is generated for the root.
func (in *instance) generate(ctx context.Context) (*rootdir.Layout, error) {
	s, dir := in.spec, in.driver.folderOf(nameOf(in.spec))
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	in.mu.Lock()
	in.folder = dir
	in.mu.Unlock()
	return foreign.Generate(dir, s, in.ids.UID, in.ids.GID)
}

// mounts lists every bind, outer places before inner ones.
func (in *instance) mounts(l *rootdir.Layout) ([]mount, error) {
	binds, err := foreign.Binds(in.folder, l, in.spec)
	out := make([]mount, 0, len(binds))
	for _, b := range binds {
		out = append(out, mount{Type: "bind", Source: b.Source, Target: b.Target, ReadOnly: !b.Writable, BindOptions: &bindOptions{Propagation: "rprivate"}})
	}
	return out, err
}

// covered refuses an image that would have one of its volumes shown in the task's
// folders or in what is ours: what tools write there would come to nothing.
func (in *instance) covered(image *imageInfo) error {
	for _, v := range image.volumes() {
		for _, at := range []string{in.spec.Source.Target, in.spec.Out.Target, filepath.Dir(foreign.WorkerAt)} {
			if at != "" && v != at && strings.HasPrefix(v, at+"/") {
				return task.Errorf(task.CodeUnsupported, "docker.image", "the image has a volume at %s, which would cover a part of %s", printable(v, 200), at).
					WithHint("an image without that VOLUME; nothing was created")
			}
		}
	}
	return nil
}

// volumes are the places at which an image would have a volume, as the engine takes
// their names.
func (i *imageInfo) volumes() []string {
	var out []string
	if i.Config != nil {
		for v := range i.Config.Volumes {
			out = append(out, filepath.Clean("/"+v))
		}
	}
	return out
}

// config is everything that is asked of the engine.
func (in *instance) config(image *imageInfo, mounts []mount) *containerConfig {
	s, l := in.spec, in.limits
	size := strconv.FormatInt(foreign.MemoryFolder(l), 10)
	home := "mode=0700"
	switch {
	case in.ids.UID == 0: // the owner of what an engine makes
	case in.known.version.podman():
		home = "mode=0777" // it knows no owner; inside are the tools' user and the worker alone
	default:
		home += fmt.Sprintf(",uid=%d,gid=%d", in.ids.UID, in.ids.GID)
	}
	memory := map[string]string{
		"/tmp": "rw,exec,nosuid,nodev,mode=1777,size=" + size, "/var/tmp": "rw,exec,nosuid,nodev,mode=1777,size=" + size,
		s.Home: "rw,exec,nosuid,nodev,size=" + size + "," + home,
	}
	if in.known.version.podman() {
		memory["/run"] = "ro,noexec,nosuid,nodev,mode=0755,size=64k" // else it makes one that can be written
	}
	for _, m := range mounts {
		delete(memory, m.Target)
	}
	for _, v := range image.volumes() {
		// An anonymous volume would be a place to write that nobody planned.
		if _, have := memory[v]; !have && !slices.ContainsFunc(mounts, func(m mount) bool { return m.Target == v }) {
			memory[v] = "rw,nosuid,nodev,noexec,mode=0755,size=64k"
		}
	}
	boot, _ := sys.BootID()
	mode := ""
	if in.known.option("userns") {
		mode = "host" // remapped ids would not be the owners of the task's files
	}
	security := []string{"no-new-privileges"}
	if in.known.version.podman() {
		security = append(security, "mask="+strings.Join(foreign.Masked, ":")) // its only way to hear of them
	}
	return &containerConfig{
		Image: image.ID, Entrypoint: []string{foreign.WorkerAt, "guest"}, Cmd: []string{}, Env: []string{}, User: "0:0", WorkingDir: "/",
		Hostname: rootdir.Hostname(s), OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true, NetworkDisabled: true,
		StopSignal: "SIGKILL", Healthcheck: &healthcheck{Test: []string{"NONE"}},
		Labels: map[string]string{labelInstance: s.Instance, labelTask: string(s.Task), labelToken: s.Token, labelOwner: strconv.Itoa(s.Identity.UID), labelBoot: boot},
		HostConfig: &hostConfig{
			NetworkMode: "none", IpcMode: "private", UsernsMode: mode, ReadonlyRootfs: true,
			CapDrop: []string{"ALL"}, CapAdd: foreign.Capabilities(s), SecurityOpt: security,
			Tmpfs: memory, Mounts: mounts, Memory: l.MemoryBytes, MemorySwap: l.MemoryBytes, NanoCpus: int64(l.CPUs * 1e9), PidsLimit: int64(l.Pids),
			ShmSize: foreign.MemoryFolder(l), Ulimits: in.ulimits(), LogConfig: logConfig{Type: "none"}, RestartPolicy: restartPolicy{Name: "no"}, Binds: []string{},
			MaskedPaths: foreign.Masked, ReadonlyPaths: foreign.ReadOnly,
		},
	}
}

// ulimits are what the worker begins with. Podman would set what it does not hear of
// as high as can be, which ends the start where it may not raise limits; an unequal
// pair does too.
func (in *instance) ulimits() []ulimit {
	out := []ulimit{{Name: "core"}}
	limit := func(name string, resource int, most uint64) {
		var r unix.Rlimit
		if unix.Getrlimit(resource, &r) == nil {
			n := int64(min(r.Max, most))
			out = append(out, ulimit{Name: name, Soft: n, Hard: n})
		}
	}
	limit("nofile", unix.RLIMIT_NOFILE, 1<<16)
	if in.known.version.podman() {
		limit("nproc", unix.RLIMIT_NPROC, 1<<15) // what it has left for itself
	}
	return out
}

func (in *instance) explainCreate(err error) error {
	if unreachable(err) {
		return fmt.Errorf("make the container: %w", err)
	}
	return task.Errorf(task.CodeUnavailable, "docker.create", "the engine refused to make the container: %v", err).
		WithHint("nothing runs; %s", cmp.Or(in.labels(err.Error()), nextStep(err)))
}

func (in *instance) explainStart(err error) error {
	if unreachable(err) {
		return fmt.Errorf("start the container: %w", err)
	}
	return task.Errorf(task.CodeUnavailable, "docker.start", "the engine could not start the container: %v", err).
		WithHint("nothing ran; %s", cmp.Or(in.labels(err.Error()), nextStep(err)))
}

// nextStep is what a person does about what an engine says went wrong. Only a hint
// rests on its words.
func nextStep(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "no space left") || strings.Contains(text, "disk quota"):
		return "free space where the engine keeps its data; `docker system df` shows what is used"
	case strings.Contains(text, "address pool"):
		return "free a network of the engine's (docker network prune); containers of caisson's have none, and need no address"
	case strings.Contains(text, "already in use"):
		return "another container has that name, and is left alone; try again: the next one gets another name"
	}
	return "`caisson doctor` shows what this engine can do"
}
