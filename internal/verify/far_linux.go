package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/verify/attack"
	"github.com/caisson-dev/caisson/internal/verify/far"
)

// wayProps are the properties of a task's way out.
var wayProps = []string{"P33", "P34", "P35", "P36", "P37", "P38", "P39", "P45", "P46"}

// farAsked is what the process in the network of its own is to do.
type farAsked struct {
	Program, Backend, Repo, Open, Private, Runtime, Work, Config string
	Environ, Flags                                               []string
}

// farSaid is what came of it.
type farSaid struct {
	Inside, Control map[string]attack.Outcome
	Touched         []far.Touch
	Why             string   // nothing was tried, because
	Notes           []string // parts that were not tried
}

// loanName is the handle that is lent, and loanVariable where the placeholder stands.
const loanName, loanVariable = "far", "VERIFY_LOAN"

// beyond attacks tasks with a way out, in a network of its own, and adds what came
// of it to what came of the rest. An error means that the run is over.
func (m *campaign) beyond(ctx context.Context) error {
	m.say("attacking the way out, in a network of its own")
	dir := m.open + "/far"
	config := m.private + "/config"
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755), os.MkdirAll(config+"/caisson", 0o700)); err != nil {
		return err
	}
	in, err := json.Marshal(farAsked{Program: m.program, Backend: m.backend, Repo: m.repo, Open: dir, Private: m.private, Runtime: m.runtime, Work: m.work, Config: config, Environ: m.environ, Flags: m.flags})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, m.program, FarArg)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.SysProcAttr = "/", m.environment(), bytes.NewReader(in), far.Namespaces()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &bounded{w: &out, left: maxOutput}, &bounded{w: &errs, left: 1 << 20}
	err = cmd.Run()
	if ctx.Err() != nil {
		return task.Errorf(task.CodeCanceled, "verify", "it was canceled: %w", context.Cause(ctx))
	}
	var said farSaid
	if cmd.ProcessState == nil {
		said.Why = "no network namespace of its own can be made here: " + clean(err.Error())
	} else if jerr := json.Unmarshal(out.Bytes(), &said); jerr != nil {
		said.Why = fmt.Sprintf("what plays the network ended with status %d: %s", cmd.ProcessState.ExitCode(), clean(last(errs.String())))
	}
	m.farWhy = said.Why
	maps.Copy(m.sides.inside, said.Inside)
	maps.Copy(m.sides.control, said.Control)
	var ts []touch
	for _, t := range said.Touched {
		ts = append(ts, touch{t.Prop, t.What})
	}
	maps.Copy(m.sides.touched, group(ts))
	m.notes = append(m.notes, said.Notes...)
	// What may leave and does not says that nothing was shown of what may not.
	for k, o := range said.Inside {
		if o.Prop == attack.Way && o.Errno != "" {
			m.dull = append(m.dull, clean(k+": "+o.Errno+" "+o.Detail))
		}
	}
	slices.Sort(m.dull)
	return nil
}

// wayJudged adds to a property of the way out why it was not tried, or why what was
// refused shows nothing.
func (m *campaign) wayJudged(v task.VerifyProbe) task.VerifyProbe {
	if !slices.Contains(wayProps, v.ID) {
		return v
	}
	switch {
	case m.farWhy != "" && v.Result != task.VerifyBroken:
		v.Result, v.Why = task.VerifyNotTried, m.farWhy
	case len(m.dull) > 0 && v.Result == task.VerifyHeld:
		v.Result, v.Why = task.VerifyNotShown, "what is allowed does not get out either: "+m.dull[0]
	}
	return v
}

func playFar() int {
	var a farAsked
	if err := json.NewDecoder(os.Stdin).Decode(&a); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	said := &farSaid{Inside: map[string]attack.Outcome{}, Control: map[string]attack.Outcome{}}
	secret := "ver_" + nonce() + "/x+y=z"
	w, err := far.Play(a.Open, secret)
	if err != nil {
		said.Why = "no network of its own can be made here: " + clean(err.Error())
	} else if err := a.attack(context.Background(), w, said); err != nil {
		said.Why = clean(err.Error())
	}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		return 1
	}
	return 0
}

// policy lends one credential for one part of one host.
const farPolicy = `version: 1
credentials:
  %s:
    from: {file: %q}
    as: bearer
    class: dev
    to: [{host: %s, path: /lent, methods: [GET, POST]}]
    env: [%s]
    form: ver_
`

func (a *farAsked) attack(ctx context.Context, w *far.World, said *farSaid) error {
	file := filepath.Join(a.Config, "secret")
	policy := fmt.Sprintf(farPolicy, loanName, file, w.Lent, loanVariable)
	if err := errors.Join(os.WriteFile(file, []byte(w.Secret+"\n"), 0o600), os.WriteFile(a.Config+"/caisson/policy.yaml", []byte(policy), 0o600)); err != nil {
		return err
	}
	// The authority of this network stands where programs look of themselves.
	env := slices.DeleteFunc(slices.Clone(a.Environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return strings.HasPrefix(name, "SSL_CERT_") || strings.HasSuffix(strings.ToLower(name), "_proxy") || name == "XDG_CONFIG_HOME" || name == loanVariable
	})
	p := &product{world: &world{private: a.Private, runtime: a.Runtime, repo: a.Repo, work: a.Work}, program: a.Program, environ: append(env, "XDG_CONFIG_HOME="+a.Config), backend: a.Backend, flags: a.Flags}
	list := []string{"--allow", w.Allowed + ":80", "--allow", w.Allowed + ":443", "--allow", w.Lent + ":80", "--allow", w.Lent + ":443"}
	for _, n := range w.Flips {
		list = append(list, "--allow", n+":80")
	}
	for _, t := range []struct {
		name  string
		open  bool
		flags []string
	}{{"listed", false, append(list, "--lend", loanName)}, {"whole", true, []string{"--net", "open"}}} {
		v, err := p.openTask(ctx, t.name, t.flags...)
		if refused, ok := errors.AsType[*refusedOpen](err); ok && t.open {
			said.Notes = append(said.Notes, "a task with the whole network (P37, P41): "+refused.why)
			continue
		} else if ok {
			return fmt.Errorf("not offered: %s", refused.why)
		} else if err != nil {
			return err
		}
		c := attack.Config{Inside: true, Work: a.Repo, Far: &w.Far}
		c.Far.Open, c.Far.Token, c.Far.Proxy = t.open, loanVariable, proxyAt
		w.Taken()
		r, err := p.inside(ctx, v.ID, append([]string{jsonOf(c), attack.Way}, append(slices.Clone(wayProps), "P41")...)...)
		if err != nil {
			return err
		}
		inside, perr := Outcomes(r.out)
		if perr != nil || len(inside) == 0 || r.status != 0 {
			return fmt.Errorf("the hostile program did not come to its end inside: status %d: %s", r.status, clean(last(r.errs)))
		}
		said.Touched = append(said.Touched, w.Taken()...)
		c.Inside, c.Gentle, c.Work = false, true, a.Work
		p.env = []string{loanVariable + "=" + w.Secret}
		r, err = p.outside(ctx, append([]string{jsonOf(c), attack.Way}, append(slices.Clone(wayProps), "P41")...)...)
		p.env = nil
		if err != nil {
			return err
		}
		control, perr := Outcomes(r.out)
		if perr != nil || r.status != 0 {
			return fmt.Errorf("the hostile program did not come to its end outside: status %d: %s", r.status, clean(last(r.errs)))
		}
		maps.Copy(said.Inside, inside)
		maps.Copy(said.Control, control)
		if r, err := p.caisson(ctx, "close", "--discard", "--json", string(v.ID)); err != nil || r.status != 0 {
			said.Notes = append(said.Notes, "the task with a way out could not be ended: "+failure(r).why)
		}
	}
	return nil
}

// proxyAt is where a task finds its way out.
const proxyAt = "127.0.0.1:61080"
