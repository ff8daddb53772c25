//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// fake is an engine that behaves, without any boundary: tasks are files in a
// folder that processes share, commands run on this machine. What a test wants
// to see fail it says by the task's name or by a flag, as a person would.
type fake struct {
	door.Policies // nil: no script asks the fake for them
	dir           string
}

func openFake(_ context.Context, _ bool, _ func(string)) (door.Engine, func(), error) {
	dir := os.Getenv("CAISSON_STATE_DIR")
	if dir == "" {
		return nil, nil, task.Errorf(task.CodeStateStore, "fake", "no state folder").WithHint("set CAISSON_STATE_DIR")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, task.Errorf(task.CodeStateStore, "fake", "state folder: %w", err)
	}
	return &fake{dir: dir}, func() {}, nil
}

func (f *fake) path(id task.ID) string { return filepath.Join(f.dir, string(id)+".json") }

func (f *fake) save(v *task.View) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(f.path(v.ID), data, 0o600)
}

func (f *fake) find(ref string) (*task.View, error) {
	all, err := f.List(context.Background(), true)
	if err != nil {
		return nil, err
	}
	var found []task.View
	for _, v := range all {
		if v.Name == ref || string(v.ID) == ref || strings.HasPrefix(string(v.ID), ref) {
			found = append(found, v)
		}
	}
	switch len(found) {
	case 0:
		return nil, task.Errorf(task.CodeNotFound, "fake", "no task %q", ref).WithHint("`caisson ls` lists them")
	case 1:
		return &found[0], nil
	}
	return nil, task.Errorf(task.CodeConflict, "fake", "%q means more than one task", ref)
}

func (f *fake) event(id task.ID, typ string, body map[string]any) {
	old, _ := os.ReadFile(filepath.Join(f.dir, string(id)+".jsonl"))
	line, _ := json.Marshal(door.Event{
		Seq: uint64(strings.Count(string(old), "\n") + 1), Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Type: typ, Task: id,
		Actor: map[string]any{"kind": "person", "id": "tester"}, Body: body,
	})
	_ = os.WriteFile(filepath.Join(f.dir, string(id)+".jsonl"), append(append(old, line...), '\n'), 0o600)
}

var levels = []task.Level{
	{Axis: task.SRC, Required: 2, Promised: 2, Proved: 2, Why: "base", How: "private clone", Seen: "object store is read-only"},
	{Axis: task.NET, Required: 2, Promised: 3, Proved: 3, Why: "base", How: "no interface", Seen: "only lo"},
	{Axis: task.APR, Promised: task.LevelNA, Proved: task.LevelNA},
}

func (f *fake) Plan(_ context.Context, r task.Request, argv []string) (*task.PlanReport, error) {
	p := &task.PlanReport{
		Schema: "caisson.plan/1", Matrix: "matrix/1", Rows: []string{"base", "R3"}, Backend: "linux", Levels: levels, Missing: []task.Missing{},
		Findings: []task.Finding{}, Grants: []task.Grant{}, Limits: r.Limits, Source: task.SourceRef{Repo: "/repo", Strategy: r.Strategy, History: r.History},
		Digest: "sha256:0", NotIsolated: []string{"what you do with its results"},
	}
	for _, g := range r.RO {
		p.Grants = append(p.Grants, task.Grant{Kind: "ro", Value: g, Source: "flag"})
	}
	if r.Need[task.NET] > 3 {
		p.Missing = append(p.Missing, task.Missing{
			Axis: task.NET, Required: 4, Effective: 3, WhyRequired: "you asked (--need)", WhyLower: "no machine of its own",
			Shared: []string{"the kernel's network stack"}, Options: []string{"drop --need NET=4"}, Acceptable: []string{"operator"},
		})
	}
	return p, nil
}

func blocked(p *task.PlanReport) error {
	if len(p.Missing) == 0 {
		return nil
	}
	e := task.Errorf(task.CodeBoundaryMissing, "fake.plan", "a layer is missing; nothing was created").WithHint("`caisson plan` lists the ways out")
	e.Detail = p.Missing
	return e
}

func (f *fake) create(r task.Request) (*task.View, error) {
	p, _ := f.Plan(context.Background(), r, nil)
	if err := blocked(p); err != nil {
		return nil, err
	}
	if r.Name != "" {
		if _, err := f.find(r.Name); err == nil {
			return nil, task.Errorf(task.CodeConflict, "fake.open", "there is a task named %q", r.Name)
		}
	}
	v := &task.View{
		Schema: "caisson.task/1", ID: task.NewID(), Name: r.Name, State: task.Ready, Owner: "tester", Created: time.Now(), Backend: "linux",
		Source: p.Source, Levels: levels, Grants: p.Grants, Limits: r.Limits, Trust: r.Trust, Unattended: r.Unattended, NotIsolated: p.NotIsolated,
		Findings: []task.Finding{{ID: "ro-seed", Axis: task.FS, Cap: 3, Text: "a folder of yours is readable", Fix: "drop --ro"}},
	}
	origin, _ := json.Marshal(r.Origin)
	f.event(v.ID, "task.created", map[string]any{"origin": string(origin), "need": r.Need.String(), "env": r.Env, "backend": r.Backend})
	return v, f.save(v)
}

func (f *fake) Open(_ context.Context, r task.Request, progress func(string)) (*task.View, error) {
	progress("opening")
	return f.create(r)
}

func (f *fake) Run(ctx context.Context, r task.Request, cmd task.Command, io *door.ExecIO) (task.Outcome, bool, error) {
	v, err := f.create(r)
	if err != nil {
		return task.Outcome{}, false, err
	}
	v.Command = cmd.Argv
	cmd.Env = append(cmd.Env, r.Env...)
	out, err := f.exec(ctx, v.ID, cmd, io)
	if err != nil {
		v.State = task.Closed
		return out, false, errors.Join(err, f.save(v))
	}
	v.Exit = &out.Exit
	v.State = task.Closed
	if r.Keep == task.KeepAlways {
		v.State = task.Kept
		v.Retention = &task.Retention{Owner: "tester", Until: time.Now().Add(24 * time.Hour), Why: "keep always"}
	}
	if r.Name == "stuck" {
		v.State = task.Stuck
		err = task.Errorf(task.CodeStuck, "fake.close", "a cleanup did not finish").WithHint("`caisson reap` retries it")
	}
	return out, true, errors.Join(err, f.save(v))
}

func (f *fake) Exec(ctx context.Context, ref string, cmd task.Command, io *door.ExecIO) (task.Outcome, error) {
	v, err := f.find(ref)
	if err != nil {
		return task.Outcome{}, err
	}
	if v.State != task.Ready {
		return task.Outcome{}, task.Errorf(task.CodeState, "fake.exec", "task %s is %s", v.ID, v.State)
	}
	return f.exec(ctx, v.ID, cmd, io)
}

func (f *fake) Check(ctx context.Context, ref string, o door.CheckOptions, io *door.ExecIO) (*task.Check, task.Outcome, error) {
	out, err := f.Exec(ctx, ref, o.Command, io)
	if err != nil {
		return nil, out, err
	}
	c := &task.Check{Name: o.Name, Argv: o.Command.Argv, Exit: out.Exit, Level: 2, Why: "the fake believes it"}
	if out.Exit != 0 {
		c.Level, c.Why = 0, "it failed"
	}
	return c, out, nil
}

func (f *fake) Checks(_ context.Context, ref string) (*task.CheckList, error) {
	v, err := f.find(ref)
	if err != nil {
		return nil, err
	}
	return &task.CheckList{Schema: "caisson.checks/1", Task: v.ID, Checks: []task.DeclaredCheck{{Name: "unit", Run: []string{"make", "a b"}, Pinned: "project 0123:.caisson.yaml:3"}}}, nil
}

// exec keeps the contract of door.ExecIO with a command on this machine.
func (f *fake) exec(_ context.Context, id task.ID, cmd task.Command, io *door.ExecIO) (task.Outcome, error) {
	begun := time.Now()
	path, err := exec.LookPath(cmd.Argv[0])
	switch {
	case errors.Is(err, os.ErrPermission):
		return task.Outcome{}, task.Errorf(task.CodeNotExecutable, "fake.exec", "%s is not executable", cmd.Argv[0])
	case err != nil:
		return task.Outcome{}, task.Errorf(task.CodeNoCommand, "fake.exec", "no command %q inside", cmd.Argv[0])
	}
	c := &exec.Cmd{Path: path, Args: cmd.Argv, Dir: cmd.Dir, Env: append([]string{"PATH=" + os.Getenv("PATH")}, cmd.Env...), SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	var master *os.File
	if cmd.TTY {
		var slave *os.File
		if master, slave, err = harness.OpenPTY(cmd.Rows, cmd.Cols); err != nil {
			return task.Outcome{}, err
		}
		c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
		c.SysProcAttr.Setctty = true
		defer slave.Close()
	} else {
		c.Stdin, c.Stdout, c.Stderr = io.Files[0], io.Files[1], io.Files[2]
	}
	if err := c.Start(); err != nil {
		return task.Outcome{}, task.Errorf(task.CodeInternal, "fake.exec", "%w", err)
	}
	if cmd.TTY {
		io.OnPTY(master)
		c.Stdin.(*os.File).Close()
	}
	for _, x := range io.Files {
		if x != nil {
			x.Close()
		}
	}
	f.event(id, "call.intent", map[string]any{"argv": cmd.Argv, "dir": cmd.Dir, "tty": cmd.TTY})
	if io.Started != nil {
		io.Started(id)
	}
	wait := make(chan struct{})
	go func() { _ = c.Wait(); close(wait) }()
	reason := ""
	for steps := 0; ; {
		select {
		case <-wait:
			ws := c.ProcessState.Sys().(syscall.WaitStatus)
			out := task.Outcome{Exit: ws.ExitStatus(), Observed: true, Duration: time.Since(begun), Reason: reason}
			if ws.Signaled() {
				out.Signal, out.Exit = int(ws.Signal()), 128+int(ws.Signal())
			}
			sum := io.Summary()
			f.event(id, "call.outcome", map[string]any{
				"exit": out.Exit, "signal": out.Signal, "observed": true, "duration_ms": 12, "reason": reason,
				"stdin_bytes": sum.StdinBytes, "stdout_bytes": sum.StdoutBytes, "stderr_bytes": sum.StderrBytes,
				"stdout_sha256": sum.StdoutSHA256, "stdout_tail": string(sum.StdoutTail), "stderr_tail": string(sum.StderrTail),
			})
			return out, nil
		case s := <-io.Signals:
			_ = syscall.Kill(-c.Process.Pid, s.(syscall.Signal))
		case <-io.Cancels:
			reason = "canceled"
			if steps++; steps < 3 {
				_ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
			} else {
				_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			}
		}
	}
}

func (f *fake) List(_ context.Context, all bool) ([]task.View, error) {
	files, err := filepath.Glob(filepath.Join(f.dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var out []task.View
	for _, p := range files {
		data, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		var v task.View
		if err := json.Unmarshal(data, &v); err != nil {
			return nil, err
		}
		if all || v.State != task.Closed {
			out = append(out, v)
		}
	}
	return out, nil
}

func (f *fake) Show(_ context.Context, ref string) (*task.View, error) { return f.find(ref) }

func (f *fake) Log(_ context.Context, ref string, _ bool, emit func(door.Event) error) error {
	v, err := f.find(ref)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(f.dir, string(v.ID)+".jsonl"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		var e door.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return err
		}
		if err := emit(e); err != nil {
			return err
		}
	}
	return nil
}

// fakePatch has what must not reach a terminal, and bytes that are not UTF-8.
const fakePatch = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new \x1b[2J\xff\r\n"

func (f *fake) Diff(_ context.Context, ref string, w io.Writer, o door.DiffOptions) (*task.DiffReport, error) {
	v, err := f.find(ref)
	if err != nil {
		return nil, err
	}
	rep := &task.DiffReport{Schema: "caisson.diff/1", ID: v.ID, Start: strings.Repeat("1", 40), Tree: strings.Repeat("2", 40), From: "files", Files: 2, Risky: []task.Risk{
		{Path: ".envrc", Rule: "shell-environment", Why: "direnv loads it", Raw: []byte(".envrc")},
		{Path: ".envrc", Rule: "executable", Why: "it is newly executable", Raw: []byte(".envrc")},
		{Path: `"new\nname"`, Rule: "deceptive-name", Why: "the name has a control character \x1b[2J", Raw: []byte("new\nname")},
	}}
	if slices.Equal(o.Paths, []string{"nothing"}) {
		rep.Files, rep.Risky = 0, nil
	}
	if o.Found != nil {
		if err := o.Found(rep); err != nil {
			return rep, err
		}
	}
	text := fakePatch
	switch {
	case o.NameStatus && o.NUL:
		text = "M\x00x\x00R100\x00old\xff\x00new\nname\x00"
	case o.NameStatus:
		text = "M\tx\nR100\t\"old\\377\"\t\"new\\nname\"\n"
	case o.Stat:
		text = " x | 2 +-\n"
	}
	if rep.Files == 0 {
		text = ""
	}
	_, err = io.WriteString(w, text)
	return rep, err
}

func (f *fake) Close(_ context.Context, ref string, o door.CloseOptions) (*task.CloseReport, error) {
	v, err := f.find(ref)
	if err != nil {
		return nil, err
	}
	r := &task.CloseReport{Schema: "caisson.close/1", ID: v.ID, DryRun: o.DryRun, State: task.Closed, Discarded: o.Discard, Work: task.Work{Untracked: []string{"new\nfile"}}, Rescued: []task.ResultRef{}}
	if !o.Discard {
		r.Rescued = append(r.Rescued, task.ResultRef{Kind: "branch", Name: "refs/caisson/" + string(v.ID) + "/main", Object: strings.Repeat("a", 40), Count: 2})
	}
	if o.Keep == task.KeepAlways {
		r.State = task.Kept
		r.Retention = &task.Retention{Owner: "tester", Until: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Why: "asked"}
	}
	if o.DryRun {
		return r, nil
	}
	v.State = r.State
	return r, f.save(v)
}

// fakeRisks are what every result of the fake has when its task is named risky.
func fakeRisks(v *task.View) []task.Risk {
	if v.Name != "risky" {
		return []task.Risk{}
	}
	return []task.Risk{{Path: ".envrc", Rule: "env-files", Why: "a shell would run it \x1b[2J"}}
}

// Apply keeps the contract of door.Engine with a file for the checkout: a task
// named conflict collides, one named moving is never the same twice.
func (f *fake) Apply(_ context.Context, ref string, o door.ApplyOptions) (*task.ApplyReport, error) {
	v, err := f.find(ref)
	if err != nil {
		return nil, err
	}
	r := &task.ApplyReport{
		Schema: "caisson.apply/1", ID: v.ID, DryRun: o.DryRun, Checkout: "/repo", Digest: "sha256:1", Risky: fakeRisks(v), Conflicts: []task.Conflict{}, From: "files",
		Changes: []task.FileChange{{Status: "M", Path: "a\x1b.txt", OldMode: "100644", NewMode: "100755"}, {Status: "A", Path: "b.txt", OldMode: "000000", NewMode: "100644"}},
	}
	done := filepath.Join(f.dir, string(v.ID)+".applied")
	if v.Name == "moving" {
		r.Digest, r.Risky = "sha256:"+task.NewToken(), []task.Risk{{Path: "x", Rule: "y", Why: "z"}}
	}
	if _, err := os.Stat(done); err == nil {
		r.Changes, r.Already = nil, 2
	}
	switch {
	case v.Name == "conflict":
		r.Conflicts = []task.Conflict{{Path: "a.txt", Why: "both changed it", Hunks: "<<<<<<< checkout\nx\x1b[2J\n=======\ny\n>>>>>>> task\n"}}
		return r, task.Errorf(task.CodeConflict, "fake.apply", "1 file collides; nothing was changed").WithHint("resolve it")
	case o.DryRun || len(r.Changes) == 0:
		return r, nil
	case o.Agreed != "" && o.Agreed != r.Digest, len(r.Risky) > 0 && !o.AllowRisky && o.Agreed == "":
		return r, task.Errorf(task.CodeDenied, "fake.apply", "risky files; nothing was changed").WithHint("--allow-risky")
	}
	r.Applied = true
	return r, os.WriteFile(done, []byte(o.Agreed), 0o600)
}

func (f *fake) Branch(_ context.Context, ref string, o door.BranchOptions) (*task.BranchReport, error) {
	v, err := f.find(ref)
	if err != nil {
		return nil, err
	}
	if o.Name == "taken" && !o.Force {
		return nil, task.Errorf(task.CodeConflict, "fake.branch", "there is a branch %q", o.Name)
	}
	if o.Name == "" {
		o.Name = "caisson/" + string(v.ID)
	}
	o.Risky(fakeRisks(v))
	return &task.BranchReport{Schema: "caisson.branch/1", ID: v.ID, Branch: "refs/heads/" + o.Name, Object: strings.Repeat("b", 40), Commits: 1, Files: 2, Created: !o.Force,
		Risky: fakeRisks(v), From: "files", Notes: []string{"a note \x1b[2J"}}, nil
}

func (f *fake) Export(_ context.Context, ref string, w io.Writer, o door.ExportOptions) (*task.ExportReport, error) {
	v, err := f.find(ref)
	if err != nil {
		return nil, err
	}
	o.Risky(fakeRisks(v))
	r := &task.ExportReport{Schema: "caisson.export/1", ID: v.ID, Form: o.Form, To: "-", Files: 2, Risky: fakeRisks(v), From: "files"}
	switch {
	case v.Name == "half":
		_, _ = io.WriteString(w, "half")
		return nil, task.Errorf(task.CodeSource, "fake.export", "broke in the middle")
	case o.Form == "dir":
		return r, os.Mkdir(o.Dir, 0o755)
	}
	n, err := io.WriteString(w, o.Form+" "+fakePatch)
	r.Bytes = int64(n)
	return r, err
}

func (f *fake) Allow(_ context.Context, ref string, o door.AllowOptions) (*task.AllowReport, error) {
	v, err := f.find(ref)
	if err != nil {
		return nil, err
	}
	r := &task.AllowReport{Schema: "caisson.allow/1", Task: v.ID, Widened: []task.Widened{}}
	for _, to := range o.Places {
		r.Widened = append(r.Widened, task.Widened{To: to, By: "ada", Reason: o.Reason, At: v.Created})
	}
	return r, nil
}

func (f *fake) Ports(_ context.Context, ref string, o door.PortsOptions) (*task.PortsReport, error) {
	v, err := f.find(ref)
	if err != nil {
		return nil, err
	}
	r := &task.PortsReport{Schema: "caisson.ports/1", Task: v.ID, Ports: []task.Port{{Inside: 8080, Listening: true, At: []string{"127.0.0.1"}}}}
	for _, s := range o.Publish {
		p, err := task.ParsePublish(s)
		if err != nil {
			return nil, err
		}
		if p.Host == 0 {
			p.Host = 20000 + p.Inside
		}
		r.Ports = append(r.Ports, p)
	}
	return r, nil
}

func (f *fake) Keep(_ context.Context, ref string, o door.KeepOptions) (*task.View, error) {
	v, err := f.find(ref)
	if err != nil {
		return nil, err
	}
	r := &task.Retention{Owner: "tester", Until: time.Now().Add(o.For), Why: o.Reason}
	switch v.State {
	case task.Ready:
		v.Asked = r
	case task.Kept:
		v.Retention = r
	default:
		return nil, task.Errorf(task.CodeState, "fake.keep", "task %s is %s", v.ID, v.State)
	}
	return v, f.save(v)
}

func (f *fake) Resume(_ context.Context, ref string, o door.ResumeOptions) (*task.View, error) {
	v, err := f.find(ref)
	if err != nil {
		return nil, err
	}
	if v.State != task.Kept {
		return nil, task.Errorf(task.CodeState, "fake.resume", "task %s is %s", v.ID, v.State)
	}
	f.event(v.ID, "resume.intent", map[string]any{"env": o.Env})
	v.State, v.Retention = task.Ready, nil
	return v, f.save(v)
}

func (f *fake) Reap(ctx context.Context, dry bool) (*task.ReapReport, error) {
	r := &task.ReapReport{Schema: "caisson.reap/1", DryRun: dry, Actions: []task.ReapAction{}, Orphans: []task.Resource{}}
	all, err := f.List(ctx, true)
	for _, v := range all {
		if v.State == task.Stuck {
			r.StillHeld++
			r.Actions = append(r.Actions, task.ReapAction{Task: v.ID, Action: "remove folder", Result: "still busy"})
		}
	}
	return r, err
}

func (f *fake) Budget(context.Context) (*task.BudgetReport, error) { return nil, nil }

func (f *fake) Doctor(context.Context) (*task.DoctorReport, error) {
	return &task.DoctorReport{
		Schema: "caisson.doctor/1", Version: "test", Platform: "linux/amd64",
		Backends: []task.BackendReport{{
			Name: "linux", Usable: true, Levels: slices.Clone(levels), Findings: []task.Finding{},
			Features: []task.Feature{{Name: "user namespace", OK: true, Detail: "made one"}, {Name: "cgroup v2", OK: false, Detail: "not delegated", Fix: "delegate a scope"}},
		}},
		Checks: []task.Feature{{Name: "git", OK: true, Detail: "2.39"}},
	}, nil
}

// The tool half of door.Engine is not what these tests are about.
func (f *fake) Tools(context.Context) ([]task.ToolInfo, error) { return nil, nil }

func (f *fake) Tool(context.Context, string, task.ToolCall, door.ToolOptions) (*task.ToolResult, error) {
	return nil, task.Errorf(task.CodeUnsupported, "fake", "no tools")
}

func (f *fake) Questions(context.Context, string) ([]task.Question, error) { return nil, nil }

func (f *fake) Accept(context.Context, door.Actor, task.AcceptRequest) ([]task.Acceptance, error) {
	return nil, nil
}
func (f *fake) Acceptances(context.Context) ([]task.Acceptance, error)   { return nil, nil }
func (f *fake) Revoke(context.Context, door.Actor, string, string) error { return nil }

func (f *fake) Answer(context.Context, door.Actor, task.Answer) (*task.Question, error) {
	return nil, task.Errorf(task.CodeNotFound, "fake", "no questions")
}

func (f *fake) Hold(context.Context, task.Request, func(string), func(context.Context, task.ID) error) (*task.CloseReport, error) {
	return nil, task.Errorf(task.CodeUnsupported, "fake", "no tools")
}
