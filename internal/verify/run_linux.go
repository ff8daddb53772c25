package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/verify/attack"
)

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// run keeps one thread for the whole run: the session keyring is the thread's, and
// programs inherit that of the thread which starts them. The thread ends with it.
func run(ctx context.Context, c Config) (rep *task.VerifyReport, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		rep, err = attackOne(ctx, c)
	}()
	<-done
	return rep, err
}

// campaign is one run.
type campaign struct {
	Config
	*product
	rep   *task.VerifyReport
	sides sides
	// Of the way out: why nothing of it was tried; and what should leave and did not.
	farWhy string
	dull   []string
}

func attackOne(ctx context.Context, c Config) (*task.VerifyReport, error) {
	dirs, err := sys.FindDirs(lookup(c.Environ))
	if err != nil {
		return nil, task.Errorf(task.CodeStateStore, "verify", "no place for state: %w", err)
	}
	user := "unprivileged"
	if os.Geteuid() == 0 {
		user = "root"
	}
	m := &campaign{Config: c, rep: &task.VerifyReport{
		Schema: Schema, Version: c.Version, Platform: c.Platform, User: user, Began: time.Now().UTC(),
		Target: c.target(), Lacks: c.Lacks, Probes: []task.VerifyProbe{}, NotTried: slices.Clone(never),
	}}
	m.sides = sides{root: os.Geteuid() == 0, filtered: filtered(), touched: map[string][]string{}}
	c.say("planting what must not be reached")
	w, err := makeWorld(ctx, dirs, c.Program)
	if err != nil {
		return nil, err
	}
	m.product = &product{world: w, program: c.Program, environ: c.Environ, backend: c.Backend, flags: c.Flags}
	defer w.end()
	defer m.closeAll(ctx)
	if c.Backend != "" {
		err = m.makeRepo(ctx)
	} else if err = copyFile(c.Program, w.bin+"/attack", 0o755); err == nil {
		err = os.Chmod(w.bin+"/attack", 0o755)
	}
	if err != nil {
		return nil, task.Errorf(task.CodeStateStore, "verify", "the hostile program cannot be put in place: %w", err)
	}
	if err := w.plant(c.Environ, c.Program); err != nil {
		return nil, task.Errorf(task.CodeUnavailable, "verify", "a sentinel cannot be planted: %w", err)
	}
	w.Gentle = true
	w.Forbidden = append(w.Forbidden, m.sensitive(lookup(c.Environ), dirs)...)
	if c.Backend != "" {
		err = m.backendRun(ctx)
	} else {
		err = m.foreignRun(ctx)
	}
	if refused, ok := errors.AsType[*refusedOpen](err); ok && refused.code == task.CodeUsage {
		err = task.Errorf(task.CodeUsage, "verify", "%s", refused.why)
	} else if ok {
		m.rep.Verdict, m.rep.Why, err = task.VerifyNotTried, refused.why, nil
	} else if err == nil {
		m.rep.Verdict = verdict(m.rep.Probes)
	}
	if err != nil {
		return nil, err
	}
	m.rep.NotTried = append(m.rep.NotTried, w.notes...)
	m.rep.Ended = time.Now().UTC()
	m.rep.Questions = questions(m.rep)
	return m.rep, nil
}

func (c *Config) target() task.VerifyTarget {
	switch {
	case c.Container != "":
		return task.VerifyTarget{Kind: "container", Name: c.Container, Version: c.BackendVersion}
	case c.Command != "":
		return task.VerifyTarget{Kind: "command", Name: c.Command, Version: c.BackendVersion}
	}
	return task.VerifyTarget{Kind: "backend", Name: c.Backend, Version: c.BackendVersion}
}

// never is what a run of this kind never tries.
var never = []string{
	"filling a disk, inodes, descriptors or processors: a running machine could suffer; the project's own tests do it",
	"a terminal of the task's (P30 but for the 32-bit gate): there is none in this run",
	"killing caisson in the middle (P56) and twenty tasks at once (P57): the project's own tests do it",
	"another kernel than this one",
}

// sensitive are files of the user and of caisson that are there and must not be.
func (m *campaign) sensitive(env func(string) string, dirs sys.Dirs) []string {
	var out []string
	m.Ident = map[string]string{}
	remember := func(p string, stat func(string) (os.FileInfo, error)) bool {
		fi, err := stat(p)
		if err != nil {
			return false
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			m.Ident[p] = fmt.Sprintf("%d:%d", st.Dev, st.Ino)
		}
		return true
	}
	for _, p := range slices.Concat(attack.SystemFiles, attack.SystemFolders) {
		remember(p, os.Stat)
	}
	add := func(p string) {
		if filepath.IsAbs(p) && remember(p, os.Stat) {
			out = append(out, p)
		}
	}
	if home := env("HOME"); home != "" {
		for _, n := range []string{".ssh", ".aws", ".gnupg", ".kube/config", ".docker/config.json", ".netrc", ".npmrc", ".pypirc", ".git-credentials", ".config/gcloud", ".config/gh", ".claude", ".codex", ".gemini", ".bash_history", ".mozilla"} {
			add(filepath.Join(home, n))
		}
	}
	add(filepath.Join(dirs.State, "state.db"))
	add(filepath.Join(dirs.State, "tasks"))
	return out
}

// filtered reports whether this process, so the control too, runs under a system
// call filter.
func filtered() bool {
	status, err := os.ReadFile("/proc/self/status")
	return err == nil && strings.Contains(string(status), "\nSeccomp:\t2")
}

// attacks runs the hostile program inside by run, then outside, and judges.
func (m *campaign) attacks(ctx context.Context, in attack.Config, run func(ctx context.Context, config string) (ran, error)) error {
	if _, err := m.log(); err != nil {
		return task.Errorf(task.CodeInternal, "verify", "a sentinel does not listen: %w", err)
	}
	m.say("attacking from inside")
	r, err := run(ctx, jsonOf(in))
	if err != nil {
		return err
	}
	inside, perr := Outcomes(r.out)
	if len(inside) == 0 {
		return &refusedOpen{task.CodeUnavailable, fmt.Sprintf("the hostile program did not run inside: status %d: %s", r.status, clean(last(r.errs)))}
	}
	if perr != nil || r.status != 0 {
		m.notes = append(m.notes, fmt.Sprintf("the attacks ended before their end: status %d, %s", r.status, clean(last(r.errs))))
	}
	touched, err := m.log()
	if err != nil {
		return task.Errorf(task.CodeInternal, "verify", "a sentinel does not listen any more: %w", err)
	}
	m.sides.inside, m.sides.touched = inside, group(append(touched, m.untouched()...))
	m.say("the same attacks outside, as controls")
	out := in
	out.Inside, out.Foreign, out.Gentle, out.Work = false, false, true, m.work
	r, err = m.outside(ctx, jsonOf(out))
	if err != nil {
		return err
	}
	control, err := Outcomes(r.out)
	if err != nil || len(control) == 0 {
		return task.Errorf(task.CodeInternal, "verify", "the hostile program did not run outside: %v", failure(r))
	}
	m.sides.control = control
	if _, err := m.log(); err != nil {
		return task.Errorf(task.CodeInternal, "verify", "a sentinel does not listen any more: %w", err)
	}
	if m.Backend != "" {
		if err := m.beyond(ctx); err != nil {
			return err
		}
	}
	for _, p := range attack.Properties {
		if !p.Host {
			m.rep.Probes = append(m.rep.Probes, m.wayJudged(m.sides.judge(p)))
		}
	}
	return nil
}

func last(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain values
	}
	return string(b)
}

// backendRun attacks a task of caisson's own.
func (m *campaign) backendRun(ctx context.Context) error {
	m.say("opening a task with the backend " + m.Backend)
	t, err := m.openTask(ctx, "victim")
	if err != nil {
		return err
	}
	m.rep.Levels, m.rep.Findings = t.Levels, t.Findings
	m.sides.promised = task.Vector{}
	for _, l := range t.Levels {
		m.sides.promised[l.Axis] = l.Promised
	}
	if _, err := m.openTask(ctx, "other"); err != nil {
		return err
	}
	in := m.world.Config
	in.Inside, in.Work = true, m.repo
	in.Forbidden = append(in.Forbidden, m.state(), m.state()+"/state.db", m.state()+"/tasks", m.state()+"/bin")
	for _, id := range m.tasks {
		dir := m.state() + "/tasks/" + id
		for _, n := range []string{"", "/task.json", "/shadow.git", "/source", "/source/a.txt", "/home", "/out", "/lock"} {
			if exists(dir + n) {
				in.Forbidden = append(in.Forbidden, dir+n)
			}
		}
		if f := dir + "/evidence/events.jsonl"; exists(f) {
			in.Record = append(in.Record, f)
		}
	}
	socks, _ := filepath.Glob(m.runtime + "/*.sock")
	for _, s := range socks {
		in.Known = append(in.Known, [2]string{"P44", s})
	}
	err = m.attacks(ctx, in, func(ctx context.Context, config string) (ran, error) { return m.inside(ctx, t.ID, config) })
	if err != nil {
		return err
	}
	return m.hostProbes(ctx, t)
}
