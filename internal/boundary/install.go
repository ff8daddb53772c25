package boundary

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/egress"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/probe"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
	"github.com/caisson-dev/caisson/internal/worker/capture"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// Dependencies are installed in a boundary of their own that lives as long as the
// package manager: it sees the task's files read-only but for the folders that
// the manager is there to fill, has no variable that a person passed in, and
// reaches package registries and the repository's remotes alone. What it wrote is
// the task's, which stays without a network.

var _ = sys.RegisterFaults("install.intended", "install.standing", "install.ended", "install.destroyed")

// phaseInstall is the one phase that --phase takes.
const phaseInstall = "install"

// installRefused is the next step after an installation that failed, or that
// waited for what it cannot reach until it was stopped.
const installRefused = "`caisson log --egress %s` says what was refused"

// installTime bounds one installation.
const installTime = time.Hour

// installer is one package manager: the files by which a project says that it
// uses it, what it is called with, and the folders beside the file that it fills.
type installer struct {
	name  string
	files []string
	argv  []string
	fills []string
}

// installers are asked in this order for a project that has files of several.
var installers = []installer{
	{"pnpm", []string{"pnpm-lock.yaml"}, []string{"pnpm", "install", "--frozen-lockfile"}, []string{"node_modules"}},
	{"yarn", []string{"yarn.lock"}, []string{"yarn", "install", "--frozen-lockfile"}, []string{"node_modules"}},
	{"npm", []string{"package-lock.json", "npm-shrinkwrap.json"}, []string{"npm", "ci", "--no-audit", "--no-fund"}, []string{"node_modules"}},
	{"uv", []string{"uv.lock"}, []string{"uv", "sync", "--frozen"}, []string{".venv"}},
	{"pip", []string{"requirements.txt"}, []string{"sh", "-c", `test -x .venv/bin/python || python3 -m venv .venv; exec .venv/bin/python -m pip install --disable-pip-version-check -r requirements.txt "$@"`, "pip"}, []string{".venv"}},
	{"go", []string{"go.mod"}, []string{"go", "mod", "download"}, nil},
	{"cargo", []string{"Cargo.lock"}, []string{"cargo", "fetch", "--locked"}, nil},
}

// call is what a person reads while it runs.
func (i installer) call() string {
	if i.argv[0] == "sh" {
		return i.name + " install"
	}
	return strings.Join(i.argv[:2], " ")
}

// deps are the variables by which package managers find what they fetched, in
// the phase and after it.
func deps(phase string) map[string]string {
	if phase != phaseInstall {
		return nil
	}
	at := func(name string) string { return backend.DepsDir + "/" + name }
	return map[string]string{
		"npm_config_cache": at("npm"), "npm_config_store_dir": at("pnpm"), "YARN_CACHE_FOLDER": at("yarn"), "PIP_CACHE_DIR": at("pip"), "UV_CACHE_DIR": at("uv"),
		"GOMODCACHE": at("go"), "CARGO_HOME": at("cargo"),
	}
}

func merged(ms ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range ms {
		maps.Copy(out, m)
	}
	return out
}

// chosen returns the manager of that name, or without one those whose files the
// project has.
func (l *live) chosen(name string) ([]installer, error) {
	if name != "" {
		for _, i := range installers {
			if i.name == name {
				return []installer{i}, nil
			}
		}
		return nil, contract.Fail(contract.BadArgs, "no package manager is called %q here: there are pnpm, yarn, npm, uv, pip, go and cargo", short(name, 60))
	}
	root, err := os.OpenRoot(l.spec.Source.Source)
	if err != nil {
		return nil, task.Errorf(task.CodeUnavailable, "install", "the task's files cannot be read: %w", err)
	}
	defer root.Close()
	var out []installer
	node := false // of the managers for Node only one
	for _, i := range installers {
		for _, f := range i.files {
			if st, err := root.Lstat(f); err == nil && st.Mode().IsRegular() && !(node && len(i.fills) == 1 && i.fills[0] == "node_modules") {
				out = append(out, i)
				node = node || len(i.fills) == 1 && i.fills[0] == "node_modules"
				break
			}
		}
	}
	if len(out) == 0 {
		return nil, contract.Fail(contract.NotFound, "no file of the project names dependencies: pnpm-lock.yaml, yarn.lock, package-lock.json, uv.lock, requirements.txt, go.mod, Cargo.lock")
	}
	return out, nil
}

// mayInstall refuses a task that was opened without the phase.
func (l *live) mayInstall() error {
	if len(l.spec.Write) > 0 {
		return nil
	}
	return task.Errorf(task.CodeDenied, "install", "the task was not opened with --phase install, so nothing is installed for it").
		WithHint("a person opens one with `caisson open --phase install`; or bring what is needed in with --ro DIR")
}

// installer finds out what a call would run.
func (l *live) installer(k *toolCall, a *contract.InstallDependenciesArgs) error {
	if err := l.mayInstall(); err != nil {
		return err
	}
	list, err := l.chosen(a.Manager)
	if err != nil {
		if f := (*contract.Failure)(nil); errors.As(err, &f) {
			return badCall(k.tool, err)
		}
		return err
	}
	if len(list) > 1 {
		return badCall(k.tool, contract.Fail(contract.BadArgs, "the project uses several package managers: name one with manager"))
	}
	for _, s := range a.Args {
		if strings.ContainsRune(s, 0) {
			return badCall(k.tool, contract.Fail(contract.BadArgs, "an argument holds a NUL"))
		}
	}
	a.Manager = list[0].name
	k.argv, k.dir = append(append([]string{}, list[0].argv...), a.Args...), l.spec.Source.Target
	return nil
}

// installTool carries out install_dependencies.
func (m *Manager) installTool(ctx context.Context, l *live, k *toolCall, res *task.ToolResult) (*contract.InstallDependenciesResult, map[string]any, error) {
	list, err := l.chosen(k.args.(*contract.InstallDependenciesArgs).Manager)
	if err != nil {
		return nil, nil, err
	}
	i := list[0]
	i.argv = k.argv
	out, errs := l.stream(k, "stdout"), l.stream(k, "stderr")
	o, err := m.install(ctx, l, i, out, errs, k.o.Progress)
	so, se := out.Result(), errs.Result()
	res.Observed.StdoutBytes, res.Observed.StderrBytes, res.Observed.Reason = so.Bytes, se.Bytes, o.Reason
	sum := map[string]any{"stdout_sha256": so.SHA256, "stderr_sha256": se.SHA256, "stdout_tail": string(so.Tail), "stderr_tail": string(se.Tail)}
	if err != nil {
		if f := startFailure(err); f != nil {
			return nil, nil, f
		}
		return nil, sum, err
	}
	res.Ended(o)
	return &contract.InstallDependenciesResult{Manager: i.name, Exit: &o.Exit, Stdout: so.Text, Stderr: se.Text}, sum, nil
}

// installAll installs what the project declares, before the command of a run.
func (m *Manager) installAll(ctx context.Context, l *live, progress func(string)) error {
	list, err := l.chosen("")
	if f := (*contract.Failure)(nil); errors.As(err, &f) {
		return task.Errorf(task.CodeUsage, "install", "--phase install: %s", f.Msg).WithHint("leave --phase out, or install with a command of your own and --net registries")
	}
	if err != nil {
		return err
	}
	for _, i := range list {
		tell(progress, "installing dependencies: "+i.call())
		var out, errs capture.Stream
		before := l.refused.Load()
		o, err := m.install(ctx, l, i, &out, &errs, progress)
		if err != nil {
			return err
		}
		if o.Exit != 0 || o.Signal != 0 {
			text := strings.TrimSpace(string(errs.Result().Tail))
			if text == "" {
				text = strings.TrimSpace(string(out.Result().Tail))
			}
			how := fmt.Sprintf("exit %d", o.Exit)
			if o.Signal != 0 {
				how = fmt.Sprintf("signal %d ended it", o.Signal)
			}
			if text != "" {
				text = ": " + short(text, 2000)
			}
			if n := l.refused.Load() - before; n > 0 {
				text += "; " + refusedText(n)
			}
			return task.Errorf(task.CodeUnavailable, phaseInstall, "%s could not install the dependencies (%s)%s", i.name, how, text).
				WithHint(installRefused, l.id)
		}
	}
	return nil
}

// refusedText says how many connections were refused.
func refusedText(n int64) string {
	if n == 1 {
		return "1 connection was refused"
	}
	return fmt.Sprintf("%d connections were refused", n)
}

// install runs one package manager in a boundary of its own, while nothing else
// runs in the task. It closes out and errs.
func (m *Manager) install(ctx context.Context, l *live, i installer, out, errs *capture.Stream, progress func(string)) (o task.Outcome, err error) {
	given := false
	defer func() {
		if !given {
			_ = out.Close()
			_ = errs.Close()
		}
	}()
	if err := l.mayInstall(); err != nil {
		return o, err
	}
	ctx, stop := l.while(ctx)
	defer stop()
	ctx, done := context.WithTimeoutCause(ctx, installTime, task.Errorf(task.CodeLimit, "install", "an installation may take %s", installTime))
	defer done()
	over, why := l.clear(ctx, lonely{"install", task.CodeState, "dependencies are installed while nothing else runs", "and install again"})
	if over != nil {
		defer over()
	}
	if why != nil {
		return o, why
	}
	t, err := m.cfg.DB.Task(ctx, l.id)
	if err != nil {
		return o, err
	}
	// The policy of this moment, held against the phase as it was asked for.
	d, err := m.again(ctx, &t.View)
	if err != nil {
		return o, err
	}
	if d.req.Phase != phaseInstall {
		return o, task.Errorf(task.CodeDenied, "install", "the task was not opened with --phase install")
	}
	rules := d.rules.Rules.Leaving(policy.NetRegistries, d.usual("--phase install"))
	s, ca, err := m.installSpec(l, t, i, rules)
	if err != nil {
		return o, err
	}
	drv, err := m.driver(t.View.Backend)
	if err != nil {
		return o, err
	}
	rs := backendResources(drv, s)
	if err := m.cfg.DB.Intend(ctx, l.id, rs); err != nil {
		return o, err
	}
	if _, err := l.log.Append(ctx, evidence.InstallIntent, self, map[string]any{"manager": i.name, "argv": shortened(i.argv), "fills": i.fills, "net": string(policy.NetRegistries)}); err != nil {
		return o, err
	}
	if err := sys.Fault("install.intended"); err != nil {
		return o, err
	}
	err, left := m.standFor(ctx, drv, &s, func(st *standing) error {
		given = true
		var err error
		o, err = m.installIn(ctx, l, st, &s, t, i, rules, ca, out, errs)
		if ferr := sys.Fault("install.ended"); ferr != nil {
			err = errors.Join(err, ferr)
		}
		return err
	})
	err = errors.Join(err, left, sys.Fault("install.destroyed"))
	mctx, mdone := sys.Detach(ctx, time.Minute)
	defer mdone()
	body := map[string]any{"manager": i.name, "exit": o.Exit, "signal": o.Signal, "reason": o.Reason}
	if err != nil {
		body["error"], body["code"] = err.Error(), string(task.CodeOf(err))
	}
	_, lerr := l.log.Append(mctx, evidence.InstallOutcome, self, body)
	return o, errors.Join(err, lerr, m.mark(mctx, l.id, gone(rs, left)))
}

// installSpec is the boundary of an installation.
func (m *Manager) installSpec(l *live, t inventory.Task, i installer, rules *policy.Rules) (backend.Spec, *egress.CA, error) {
	w, _, _ := listen(rules)
	read := rules.ReadPlaces()
	env, _, err := environment(task.Request{}, l.id, t.View.Identity, m.cfg.Environ, merged(proxied(w), trusting(read), deps(phaseInstall)))
	if err != nil {
		return backend.Spec{}, nil, err
	}
	s := l.spec
	s.Token, s.Env, s.Way, s.Inward, s.Local, s.KnownHosts = task.NewToken(), env, w, 0, nil, ""
	s.Source.Writable, s.Source.Cover, s.Out, s.Git = false, nil, backend.Mount{}, task.GitIdentity{}
	s.Ptrace, s.Userns, s.Files = false, false, nil
	s.Write = append([]backend.Mount{}, s.Write...)
	for _, f := range i.fills {
		if err := fillable(s.Source.Source, f, t.View.Identity); err != nil {
			return s, nil, err
		}
		s.Write = append(s.Write, backend.Mount{Source: filepath.Join(s.Source.Source, f), Target: filepath.Join(s.Source.Target, f), Writable: true})
	}
	ca, err := certify(&s, read)
	return s, ca, err
}

// fillable makes a folder of the task's files that a package manager fills, and
// refuses anything else that is there: the task's content decides no place that
// the host mounts.
func fillable(source, name string, who task.Identity) error {
	root, err := os.OpenRoot(source)
	if err != nil {
		return task.Errorf(task.CodeUnavailable, "install", "the task's files cannot be read: %w", err)
	}
	defer root.Close()
	st, err := root.Lstat(name)
	if errors.Is(err, os.ErrNotExist) {
		if err = root.Mkdir(name, 0o755); err == nil {
			err = root.Lchown(name, who.UID, who.GID)
		}
	} else if err == nil && !st.IsDir() {
		return task.Errorf(task.CodeUnsafePath, "install", "%s of the task is no folder, so nothing is installed into it", name).WithHint("remove it in the task first")
	}
	if err != nil {
		return task.Errorf(task.CodeUnavailable, "install", "the folder %s cannot be made in the task's files: %w", name, err)
	}
	return nil
}

// installIn runs the manager in its boundary, once that is proved.
func (m *Manager) installIn(ctx context.Context, l *live, st *standing, s *backend.Spec, t inventory.Task, i installer, rules *policy.Rules, ca *egress.CA, out, errs *capture.Stream) (o task.Outcome, err error) {
	p, err := capture.Plumb(false, out, errs)
	if err != nil {
		_ = out.Close()
		_ = errs.Close()
		return o, task.Errorf(task.CodeUnavailable, "install", "no pipe for the package manager: %w", err)
	}
	ended := false
	end := func() {
		if !ended {
			ended = true
			p.End()
		}
	}
	defer end()
	files := p.Files
	defer func() { closeFiles(files[:]) }()
	way, err := m.pass(l, passing{inst: st.inst, kind: probe.GateList, phase: phaseInstall, rules: func() (*policy.Rules, error) { return rules, nil }, ca: ca})
	if err != nil {
		return o, err
	}
	defer way.end()
	proved, seen, _, _, err := m.probe(ctx, st, s, hostLevels(t.View.Source, nil), way)
	if err != nil {
		return o, err
	}
	// What the task itself was proved to have it must have too, but for the network.
	for _, lv := range t.View.Levels {
		want := lv.Required
		if lv.Axis == task.NET {
			want = min(want, 2)
		}
		if want > 0 && proved[lv.Axis] != task.LevelNA && proved[lv.Axis] < want {
			return o, task.Errorf(task.CodeProbeMismatch, "install", "the boundary of the installation was proved to have %s %d, and the task needs %d: %s", lv.Axis, proved[lv.Axis], want, seen[lv.Axis])
		}
	}
	if err := sys.Fault("install.standing"); err != nil {
		return o, err
	}
	way.letOut()
	call, err := st.wk.Exec(ctx, worker.Command{Argv: i.argv, Dir: s.Source.Target, Env: s.Env}, files[:])
	closeFiles(files[:])
	files = [3]*os.File{}
	if err != nil {
		return o, err
	}
	p.Feed("", false)
	o, err = call.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		dctx, done := sys.Detach(ctx, killTime)
		defer done()
		_ = call.Cancel(dctx, 0)
		err = task.Errorf(task.CodeCanceled, phaseInstall, "the installation was stopped: %w", context.Cause(ctx)).WithHint(installRefused, l.id)
	}
	end()
	return o, err
}
