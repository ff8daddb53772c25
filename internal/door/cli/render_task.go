package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) renderTask(w io.Writer, v *task.View) error {
	t := &text{w: w, u: a.ui}
	title := string(v.ID)
	if v.Name != "" {
		title += "  " + clean(v.Name)
	}
	t.printf("%s  %s\n", a.ui.paint(bold, title), a.ui.paint(stateColor(v.State), stateWord(v.State, v.Removing)))
	t.field("problem", v.Problem)
	t.field("owner", v.Owner)
	t.field("child of", string(v.Parent))
	t.field("created", v.Created.Local().Format(time.DateTime)+" ("+age(time.Since(v.Created))+" ago)")
	t.field("backend", v.Backend)
	t.source(v.Source)
	if len(v.Command) > 0 {
		// Already quoted and cleaned; field cleans again, which changes nothing.
		t.field("command", quoteArgv(v.Command))
	}
	if v.Exit != nil {
		t.field("exit", fmt.Sprint(*v.Exit))
	}
	if p := v.Supervisor; p != nil {
		t.field("supervisor", fmt.Sprintf("pid %d", p.PID))
	}
	var said []string
	if v.Trust {
		said = append(said, "repository trusted")
	}
	if v.Unattended {
		said = append(said, "unattended")
	}
	if v.Asking != nil {
		for _, r := range v.Asking.Rules {
			said = append(said, clean(r.String()))
		}
		if v.Asking.Frozen {
			said = append(said, "--frozen")
		}
	}
	t.field("declared", strings.Join(said, ", "))
	t.limits(v.Limits)
	var ports []string
	for _, p := range v.Ports {
		ports = append(ports, fmt.Sprintf("%d at 127.0.0.1:%d", p.Inside, p.Host))
	}
	t.field("ports", strings.Join(ports, ", "))
	if v.State.Live() {
		for _, w := range v.Widened {
			t.field("allowed", widenedText(w))
		}
	}
	if r := v.Retention; r != nil {
		t.field("kept", fmt.Sprintf("until %s for %s: %s", r.Until.Local().Format(time.DateTime), r.Owner, r.Why))
	}
	if r := v.Asked; r != nil {
		t.field("to keep", fmt.Sprintf("when it ends, until %s for %s: %s", stamp(r.Until), r.Owner, r.Why))
	}
	t.field("folder", v.TaskDir)
	t.field("channel", clean(string(v.Channel)))
	t.levels(v.Levels, true)
	t.findings(v.Findings)
	t.grants(v.Grants)
	if len(v.Tools) > 0 {
		t.head("tools inside, read-only")
		for _, x := range v.Tools {
			t.printf("  %s  %s\n", clean(x.Path), a.ui.paint(dim, clean(x.Why)))
			for _, h := range x.Hide {
				t.printf("    hidden: %s\n", clean(h))
			}
		}
	}
	if len(v.Resources) > 0 {
		t.head("resources")
		held, gone := v.Resources, 0
		if !a.ui.verbose {
			held = nil
			for _, r := range v.Resources {
				if r.State == task.Gone {
					gone++
				} else {
					held = append(held, r)
				}
			}
		}
		t.resources(held)
		if gone > 0 {
			t.printf("  %d gone (-v lists them)\n", gone)
		}
	}
	t.results("results", v.Results)
	t.artifacts(v.Artifacts)
	t.checks(v.Checks)
	t.ways(v)
	t.notIsolated(v.NotIsolated)
	return t.err
}

func (t *text) resources(list []task.Resource) {
	var rows [][]string
	for _, r := range list {
		row := []string{clean(r.Kind), clean(r.Name), string(r.State), clean(r.External)}
		if r.Error != "" {
			note := r.Error
			if r.Attempts > 0 {
				note += fmt.Sprintf(" (%d attempts", r.Attempts)
				if r.NextTry != nil {
					note += ", next " + r.NextTry.Local().Format(time.TimeOnly)
				}
				note += ")"
			}
			row = append(row, clean(note))
		}
		rows = append(rows, row)
	}
	t.table("  ", rows, nil)
}

func (t *text) results(title string, list []task.ResultRef) {
	if len(list) == 0 {
		return
	}
	t.head(title)
	for _, r := range list {
		line := fmt.Sprintf("%s: %s", r.Kind, r.Name)
		if len(r.Object) >= 12 {
			line += " " + r.Object[:12]
		}
		switch {
		case r.Count <= 0, r.Kind == "worktree": // one commit, which holds all the files
		case r.Kind == "ignored":
			line += " (" + counted(r.Count, "file") + ")"
		case r.Kind == "bundle":
			line += " (" + counted(r.Count, "ref") + ")"
		default:
			line += " (" + counted(r.Count, "commit") + ")"
		}
		t.printf("  %s\n", clean(line))
		if r.Why != "" {
			t.printf("    not put into the repository: %s\n", clean(r.Why))
		}
	}
}

// artifacts lists the files that a task published.
func (t *text) artifacts(list []task.Artifact) {
	if len(list) == 0 {
		return
	}
	t.head("artifacts")
	for _, a := range list {
		line := a.Path + " (" + bytesText(a.Size) + ")"
		if a.Title != "" {
			line += " " + a.Title
		}
		t.printf("  %s\n", clean(line))
	}
}

// bundleOf is the file that holds a result which no repository took; empty: none.
func bundleOf(list []task.ResultRef) string {
	for _, r := range list {
		if r.Kind == "bundle" {
			return r.Name
		}
	}
	return ""
}

// ways names the commands that bring a task's result in.
func (t *text) ways(v *task.View) {
	result := hasKind(v.Results, "worktree") || hasKind(v.Results, "branch") || hasKind(v.Results, "bundle")
	if !v.Ran || v.State == task.Blocked || v.State == task.Closed && !result {
		return
	}
	t.head("to bring it in")
	rows := [][]string{{"caisson diff " + string(v.ID), "what it changed"}}
	if v.Source.Strategy != task.StrategyCheckout { // there its changes are in already
		rows = append(rows, []string{"caisson apply " + string(v.ID), "into your checkout"})
	}
	if v.Source.CommonDir != "" {
		rows = append(rows, []string{"caisson branch " + string(v.ID), "as a branch"})
	}
	rows = append(rows, []string{"caisson export " + string(v.ID) + " --patch", "or --bundle, --dir DIR"})
	if v.State == task.Kept {
		rows = append(rows, []string{"caisson resume " + string(v.ID), "to work on it"})
	}
	t.table("  ", rows, nil)
}

// counted is "1 commit", "2 commits".
func counted(n int, unit string) string {
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprintf("%d %s", n, unit)
}

// work prints the inventory of what could be lost.
func (t *text) work(w *task.Work) {
	for _, g := range []struct {
		title string
		list  []string
	}{
		{"changed files", w.Tracked}, {"untracked files", w.Untracked}, {"ignored files", w.Ignored}, {"commits", w.Commits}, {"special files", w.Special},
	} {
		if len(g.list) == 0 {
			continue
		}
		t.printf("  %s (%d)\n", t.u.paint(bold, g.title), len(g.list))
		for i, s := range g.list {
			if i == 20 {
				t.printf("    … and %d more (--json lists them)\n", len(g.list)-i)
				break
			}
			t.printf("    %s\n", clean(s))
		}
	}
	if w.Truncated {
		t.printf("  there is more than was listed\n")
	}
}

// takes says how a result gets out; a bare repository has no checkout to apply it to.
func takes(id task.ID, bare bool) string {
	if bare {
		return fmt.Sprintf("`caisson branch %s` or `caisson export %s` takes it out", id, id)
	}
	return fmt.Sprintf("`caisson apply %s` or `caisson branch %s` brings it in", id, id)
}

func (a *app) renderClose(w io.Writer, r *task.CloseReport) error {
	t := &text{w: w, u: a.ui}
	if a.quiet && !r.DryRun && len(r.Stuck) == 0 {
		return nil
	}
	if r.DryRun {
		if r.State == task.Closed {
			t.printf("%s is closed already\n", r.ID)
		} else {
			t.printf("%s would be closed\n", r.ID)
		}
		if r.Work.Empty() && len(r.Rescued) == 0 {
			t.printf("  no work to lose\n")
		}
		t.work(&r.Work)
		if len(r.Rescued) > 0 { // by an earlier close
			t.results("rescued already", r.Rescued)
		}
		for _, n := range r.Notes {
			t.printf("  note: %s\n", clean(n))
		}
		return t.err
	}
	t.printf("%s %s\n", r.ID, a.ui.paint(stateColor(r.State), stateWord(r.State, r.Removing)))
	if r.Removing {
		t.printf("  it has ended; a process of its own removes its files, and `caisson ls` lists it until they are gone\n")
	}
	switch {
	case r.Discarded:
		t.printf("  what was not in a ref was given up; results in refs stay\n")
	case len(r.Rescued) > 0:
		t.results("rescued", r.Rescued)
		if hasKind(r.Rescued, "worktree") || hasKind(r.Rescued, "branch") {
			t.printf("  `caisson diff %s` shows it; %s\n", r.ID, takes(r.ID, r.Bare))
		}
	}
	if b := bundleOf(r.Rescued); b != "" {
		t.printf("  `caisson diff %s` shows it; `git fetch %s 'refs/caisson/*:refs/caisson/*'` brings it into a repository\n", r.ID, task.ShellWord(clean(b)))
	}
	if k := r.Retention; k != nil {
		t.printf("  files stay until %s: %s\n", k.Until.Local().Format(time.DateTime), clean(k.Why))
		if r.State == task.Kept && len(r.Rescued) == 0 {
			way := "apply"
			if r.Bare {
				way = "branch"
			}
			t.printf("  `caisson diff %s` shows what it changed; `caisson %s %s` or `caisson export %s` takes it out\n", r.ID, way, r.ID, r.ID)
		}
		if r.State == task.Kept && hasKind(r.Rescued, "ignored") {
			t.printf("  take what you need; `caisson close --discard %s` removes them now, results in refs stay\n", r.ID)
		}
	}
	for _, n := range r.Notes {
		t.printf("  note: %s\n", clean(n))
	}
	if len(r.Stuck) > 0 {
		t.head("stuck: still ours, retried by the next command and by `caisson reap`")
		t.resources(r.Stuck)
	}
	return t.err
}

func hasKind(list []task.ResultRef, kind string) bool {
	return slices.ContainsFunc(list, func(r task.ResultRef) bool { return r.Kind == kind })
}

func (a *app) renderReap(w io.Writer, r *task.ReapReport) error {
	t := &text{w: w, u: a.ui}
	if len(r.Actions) == 0 && len(r.Orphans) == 0 && r.StillHeld == 0 {
		if !a.quiet {
			t.printf("nothing to do\n")
		}
		return t.err
	}
	var rows [][]string
	for _, x := range r.Actions {
		rows = append(rows, []string{string(x.Task), clean(x.Action), clean(x.Result)})
	}
	t.table("", rows, nil)
	if len(r.Orphans) > 0 {
		t.head("named like ours, not proven ours: left alone")
		t.resources(r.Orphans)
	}
	if r.StillHeld > 0 {
		t.printf("%d resources are still stuck; `caisson ls` and `caisson show TASK` say why\n", r.StillHeld)
	}
	return t.err
}

func (a *app) renderPlan(w io.Writer, r *task.PlanReport) error {
	t := &text{w: w, u: a.ui}
	if len(r.Missing) == 0 {
		t.printf("%s the task may run on %s\n", a.ui.mark(true), clean(r.Backend))
	} else {
		t.printf("%s the task would be stopped before anything is created: %s missing\n", a.ui.mark(false), counted(len(r.Missing), "layer"))
	}
	t.field("backend", r.Backend)
	t.field("rows", strings.Join(r.Rows, ", ")+" of "+r.Matrix)
	t.source(r.Source)
	t.limits(r.Limits)
	t.field("digest", r.Digest)
	if len(r.Missing) > 0 {
		t.printf("\n")
		t.missing(r.Missing)
	}
	t.levels(r.Levels, false)
	t.known(r.Facts)
	t.considered(r.Considered)
	t.accepted(r.Accepted)
	t.findings(r.Findings)
	t.grants(r.Grants)
	t.shared(r.Shared)
	t.budget(r.Budget, 0)
	t.notIsolated(r.NotIsolated)
	if len(r.Notes) > 0 {
		t.head("also")
		for _, n := range r.Notes {
			t.printf("  - %s\n", clean(n))
		}
	}
	if len(r.Missing) > 0 {
		cmd := "caisson accept " + r.Report
		for _, m := range r.Missing {
			cmd += fmt.Sprintf(" --axis %s=%d", m.Axis, max(m.Effective, 0))
		}
		t.head("to accept the gap, where that is yours to do")
		t.printf("  %s --reason TEXT\n", cmd)
	}
	return t.err
}

func (a *app) renderDoctor(w io.Writer, r *task.DoctorReport) error {
	t := &text{w: w, u: a.ui}
	t.printf("caisson %s on %s\n", clean(r.Version), clean(r.Platform))
	features := func(list []task.Feature) {
		var rows [][]string
		for _, f := range list {
			rows = append(rows, []string{plainMark(a.ui, f.OK), clean(f.Name), clean(f.Detail)})
		}
		t.table("  ", rows, func(r, c int, s string) string {
			if c == 0 {
				return a.ui.mark(list[r].OK)
			}
			return s
		})
	}
	for _, b := range r.Backends {
		t.head("backend " + clean(b.Name))
		if b.Usable {
			t.printf("  %s usable\n", a.ui.mark(true))
		} else {
			t.printf("  %s not usable: %s\n", a.ui.mark(false), clean(b.Why))
		}
		features(b.Features)
		features(b.Needs)
		if len(b.Levels) > 0 {
			var parts []string
			for _, l := range b.Levels {
				parts = append(parts, string(l.Axis)+" "+level(l.Promised))
			}
			t.printf("  levels  %s\n", strings.Join(parts, "  "))
		}
		t.findings(b.Findings)
	}
	if len(r.Checks) > 0 {
		t.head("this machine")
		features(r.Checks)
	}
	if r.Budget != nil {
		t.budget(r.Budget.Uses, r.Budget.Waiting)
	}
	var fixes [][]string
	get := func(of string, list []task.Feature) {
		for _, f := range list {
			if !f.OK && f.Fix != "" {
				fixes = append(fixes, []string{clean(strings.TrimSpace(of + " " + f.Name)), clean(f.Fix)})
			}
		}
	}
	get("", r.Checks)
	for _, b := range r.Backends {
		get(b.Name+":", b.Features)
		get(b.Name+":", b.Needs)
	}
	if len(fixes) > 0 {
		t.head("to get more")
		t.table("  ", fixes, nil)
	}
	return t.err
}

// plainMark is mark without colour, for measuring.
func plainMark(u *ui, ok bool) string { return (&ui{utf8: u.utf8}).mark(ok) }
