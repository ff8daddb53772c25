package verify

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/verify/attack"
)

// foreignRun attacks what is not caisson's: a running container, or what a command
// line makes. Nothing in it is changed; see attack.Config.Foreign.
func (m *campaign) foreignRun(ctx context.Context) error {
	in := m.world.Config
	in.Inside, in.Foreign, in.Work = true, true, ""
	enter := m.byCommand
	if m.Container != "" {
		engine, at, err := m.intoContainer(ctx)
		if err != nil {
			return err
		}
		defer m.outOfContainer(ctx, engine, at)
		enter = func(ctx context.Context, args ...string) (ran, error) {
			return m.start(ctx, "/", engine, append([]string{"exec", m.Container, at, attack.Arg}, args...)...)
		}
	}
	if err := m.attacks(ctx, in, func(ctx context.Context, config string) (ran, error) { return enter(ctx, config) }); err != nil {
		return err
	}
	r, err := enter(ctx, "inventory")
	if err != nil {
		return err
	}
	var seen struct{ Mounts []string }
	if json.Unmarshal(r.out, &seen) == nil {
		m.rep.Mounts = mountLines(seen.Mounts)
	}
	var all []task.VerifyProbe
	for _, p := range attack.Properties {
		v := task.VerifyProbe{ID: p.ID, Axis: p.Axis, Text: p.Text, Control: p.Control, Result: task.VerifyNotTried, Why: "it is about caisson's own part in a task, which is not there"}
		for _, have := range m.rep.Probes {
			if have.ID == p.ID && have.Attempts > 0 {
				v = have
			}
		}
		all = append(all, v)
	}
	m.rep.Probes = all
	return nil
}

// byCommand runs the command line of a person, with the hostile program in the place
// that it leaves for one.
func (m *campaign) byCommand(ctx context.Context, args ...string) (ran, error) {
	program := []string{quote(m.bin + "/attack"), attack.Arg}
	for _, a := range args {
		program = append(program, quote(a))
	}
	line := strings.ReplaceAll(m.Command, "{dir}", quote(m.bin))
	line = strings.ReplaceAll(line, "{}", strings.Join(program, " "))
	return m.start(ctx, m.work, "/bin/sh", "-c", line)
}

// quote makes one word of a shell's of s.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// intoContainer finds the engine that runs the container and puts the program there.
func (m *campaign) intoContainer(ctx context.Context) (engine, at string, err error) {
	var why []string
	for _, name := range []string{"docker", "podman"} {
		path, err := exec.LookPath(name)
		if err != nil {
			why = append(why, name+" is not installed")
			continue
		}
		r, err := m.start(ctx, "/", path, "container", "inspect", "--format", "{{.State.Running}}", "--", m.Container)
		if err != nil {
			return "", "", err
		}
		if r.status != 0 || strings.TrimSpace(string(r.out)) != "true" {
			why = append(why, name+" runs none of this name: "+clean(last(r.errs)))
			continue
		}
		at = "/tmp/" + m.Tag
		if r, err = m.start(ctx, "/", path, "cp", m.bin+"/attack", m.Container+":"+at); err != nil {
			return "", "", err
		} else if r.status != 0 {
			return "", "", &refusedOpen{task.CodeUnavailable, "the program cannot be put into the container's /tmp: " + clean(last(r.errs))}
		}
		if r, err = m.start(ctx, "/", path, "version", "--format", "{{.Server.Version}}"); err == nil && r.status == 0 {
			m.rep.Target.Version = name + " " + clean(strings.TrimSpace(string(r.out)))
		}
		return path, at, nil
	}
	return "", "", &refusedOpen{task.CodeUnavailable, "no running container " + m.Container + ": " + strings.Join(why, "; ")}
}

// outOfContainer has the program remove itself.
func (m *campaign) outOfContainer(ctx context.Context, engine, at string) {
	ctx, cancel := sys.Detach(ctx, settle)
	defer cancel()
	r, err := m.start(ctx, "/", engine, "exec", "--user", "0", m.Container, at, attack.Arg, "remove", at)
	if err != nil || r.status != 0 {
		m.notes = append(m.notes, "the program could not be removed again from the container: "+at)
	}
}
