package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/verify/attack"
)

// hostProbe is one property that is tried from the host's side.
type hostProbe struct {
	attack.Property
	attempts, refused, shown int
	broken                   []string
	why                      string // not shown or not tried, because
	odd                      bool   // what happened inside says nothing
}

func (h *hostProbe) probe() task.VerifyProbe {
	v := task.VerifyProbe{ID: h.ID, Axis: h.Axis, Text: h.Text, Control: h.Property.Control, Why: h.why, Attempts: h.attempts, Refused: h.refused, Shown: h.shown, Unshown: h.refused - h.shown, Broken: h.broken}
	switch {
	case len(h.broken) > 0:
		v.Result, v.Why = task.VerifyBroken, fmt.Sprintf("%d of %d attempts worked", len(h.broken), h.attempts)
	case h.attempts == 0:
		v.Result = task.VerifyNotTried
	case h.shown == 0 || h.odd:
		v.Result = task.VerifyNotShown
	default:
		v.Result = task.VerifyHeld
	}
	return v
}

// attempt notes one attempt: it worked inside, or was refused; shown says that it
// works outside.
func (h *hostProbe) attempt(what string, worked, shown bool) {
	h.attempts++
	switch {
	case worked:
		h.broken = append(h.broken, what)
	default:
		h.refused++
		if shown {
			h.shown++
		} else if h.why == "" {
			h.why = "the control of it does not work here: " + what
		}
	}
}

// hostProbes are what the host sees and the hostile program cannot know, in an order
// that ends with the end of the task.
func (m *campaign) hostProbes(ctx context.Context, t *task.View) error {
	r, err := m.inside(ctx, t.ID, "inventory")
	if err != nil {
		return err
	}
	var seen struct{ Mounts []string }
	if json.Unmarshal(r.out, &seen) == nil {
		m.rep.Mounts = mountLines(seen.Mounts)
	}
	if m.rep.Refusal, err = m.demand(ctx); err != nil {
		return err
	}
	probes := map[string]*hostProbe{}
	for _, step := range []struct {
		id, say string
		do      func(context.Context, *task.View, *hostProbe) error
	}{
		{"P59", "forging messages", m.forge},
		{"P10", "planting what git on the host would run", m.plantGit},
		{"P54", "asking for too many processes and too much memory", m.exceed},
		{"P56", "leaving things behind", m.leave},
	} {
		p, _ := attack.Find(step.id)
		h := &hostProbe{Property: p}
		m.say(step.say)
		if err := step.do(ctx, t, h); err != nil {
			return err
		}
		probes[step.id] = h
	}
	var all []task.VerifyProbe
	for _, p := range attack.Properties {
		if h := probes[p.ID]; h != nil {
			all = append(all, h.probe())
			continue
		}
		for _, v := range m.rep.Probes {
			if v.ID == p.ID {
				all = append(all, v)
			}
		}
	}
	m.rep.Probes = all
	return nil
}

// demand asks for a level that no backend without a machine of its own has, and says
// what came of it.
func (m *campaign) demand(ctx context.Context) (string, error) {
	const need = "KRN=4"
	before := len(m.tasks)
	_, err := m.openTask(ctx, "too-much", "--need", need)
	refused, ok := err.(*refusedOpen)
	switch {
	case err == nil:
		return fmt.Sprintf("--need %s was given to a task: this backend says that it has it", need), nil
	case !ok:
		return "", err
	case len(m.tasks) != before:
		return "a task was made for a demand that was refused", nil
	}
	return fmt.Sprintf("a demand that cannot be fulfilled (--need %s) was refused before anything was made, with the code %s", need, refused.code), nil
}

// mountLines is what a person wants to know of a mount table: where, what, how.
func mountLines(table []string) []string {
	var out []string
	for _, line := range table {
		f := strings.Fields(line)
		for i := 6; i+2 < len(f); i++ {
			if f[i] == "-" {
				how := "read-only"
				if strings.HasPrefix(f[5], "rw") {
					how = "writable"
				}
				out = append(out, clean(fmt.Sprintf("%s %s (%s)", f[4], how, f[i+1])))
				break
			}
		}
	}
	return out
}

// forge has a program print what looks like messages of the channel. It must come
// out as what it is, and the task must go on.
func (m *campaign) forge(ctx context.Context, t *task.View, h *hostProbe) error {
	out, err := m.outside(ctx, "forge")
	if err != nil {
		return err
	}
	in, err := m.inside(ctx, t.ID, "forge")
	if err != nil {
		return err
	}
	echo, err := m.inside(ctx, t.ID, "say", "alive")
	if err != nil {
		return err
	}
	shown := out.status == 0 && len(out.out) > 0
	h.attempt("the bytes that were printed are not those that came out", !bytes.Equal(in.out, out.out) || in.status != out.status, shown)
	h.attempt("the task does not go on after them", echo.status != 0 || string(echo.out) != "alive\n", shown)
	return nil
}

// plantGit plants programs in the git settings of the task, then has every command of
// caisson's look at it that starts git on the host.
func (m *campaign) plantGit(ctx context.Context, t *task.View, h *hostProbe) error {
	mark := m.open + "/mark"
	if err := os.Mkdir(mark, 0o755); err != nil {
		return err
	}
	if r, err := m.inside(ctx, t.ID, "plant-git", m.repo, mark+"/task"); err != nil {
		return err
	} else if r.status != 0 {
		h.why = "nothing could be planted: " + clean(last(r.errs))
		return nil
	}
	if err := copyTree(m.repo+"/.git", m.work+"/control/.git"); err != nil {
		return err
	}
	if err := os.WriteFile(m.work+"/control/a.txt", []byte("changed\n"), 0o644); err != nil {
		return err
	}
	shown := false
	if r, err := m.outside(ctx, "plant-git", m.work+"/control", mark+"/control"); err != nil {
		return err
	} else if r.status == 0 {
		if _, err := m.outside(ctx, "unguarded-git", m.work+"/control"); err != nil {
			return err
		}
		shown = exists(mark + "/control")
	}
	for _, args := range [][]string{{"diff"}, {"diff", "--stat"}, {"show"}, {"export", "--patch"}, {"close", "--dry-run"}} {
		if _, err := m.caisson(ctx, append(args, string(t.ID))...); err != nil {
			return err
		}
		h.attempt("caisson "+strings.Join(args, " ")+" ran a program that the task named", exists(mark+"/task"), shown)
		_ = os.Remove(mark + "/task")
	}
	return nil
}

// The limits of the task that asks for more, and what it asks for.
const (
	fewPids, manyPids     = 100, 200
	littleMemory, tooMuch = 96, 256 // MiB
)

// exceed asks for more than the task may have, by little.
func (m *campaign) exceed(ctx context.Context, _ *task.View, h *hostProbe) error {
	for _, l := range m.rep.Levels {
		if l.Axis == task.RES && l.Proved < 2 {
			h.why = fmt.Sprintf("the backend bounds no resources here (RES %d): %s", max(l.Proved, 0), clean(l.How))
			return nil
		}
	}
	t, err := m.openTask(ctx, "limited", "--pids", fmt.Sprint(fewPids), "--memory", fmt.Sprintf("%dm", littleMemory))
	if refused, ok := err.(*refusedOpen); ok {
		h.why = "a task with limits could not be had: " + refused.why
		return nil
	} else if err != nil {
		return err
	}
	for _, x := range []struct {
		what string
		args []string
	}{
		{fmt.Sprintf("%d processes where %d are allowed", manyPids, fewPids), []string{"crowd", fmt.Sprint(manyPids)}},
		{fmt.Sprintf("%d MiB where %d are allowed", tooMuch, littleMemory), []string{"memory", fmt.Sprint(tooMuch)}},
	} {
		in, err := m.inside(ctx, t.ID, x.args...)
		if err != nil {
			return err
		}
		out, err := m.outside(ctx, x.args...)
		if err != nil {
			return err
		}
		h.attempt(x.what, in.status == 0 && strings.HasPrefix(string(in.out), "unbounded"), out.status == 0 && strings.HasPrefix(string(out.out), "unbounded"))
	}
	return nil
}

// leave has a process stay behind, ends the task and looks for what is left.
func (m *campaign) leave(ctx context.Context, t *task.View, h *hostProbe) error {
	tag := "linger-" + nonce()
	if r, err := m.inside(ctx, t.ID, "linger", tag); err != nil {
		return err
	} else if r.status != 0 {
		h.why = "no process stayed: " + clean(last(r.errs))
		return nil
	}
	was := running(tag)
	dir := m.state() + "/tasks/" + string(t.ID)
	r, err := m.caisson(ctx, "close", "--discard", "--json", string(t.ID))
	if err != nil {
		return err
	}
	var c task.CloseReport
	_ = json.Unmarshal(r.out, &c)
	h.attempt("a process of the task outlives it", running(tag), was)
	h.attempt("close ended with status "+fmt.Sprint(r.status), r.status != 0, true)
	table, _ := os.ReadFile("/proc/self/mountinfo")
	h.attempt("a mount of the task is left", strings.Contains(string(table), dir), was)
	for deadline := time.Now().Add(30 * time.Second); c.Removing && exists(dir+"/source") && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond) // a process of its own removes the files
	}
	h.attempt("files of the task's are left", exists(dir+"/source"), true)
	head, err := evidence.Verify(dir+"/evidence", evidence.Head{})
	h.attempt("the record of the task does not verify", err != nil || head.Seq == 0, true)
	m.rep.Head = head.Hash
	return nil
}

// running reports whether a process has tag among its arguments.
func running(tag string) bool {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, n := range names {
		if data, err := os.ReadFile(n); err == nil && bytes.Contains(data, []byte(tag)) {
			return true
		}
	}
	return false
}

// copyTree copies a folder of the run's own.
func copyTree(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}
