package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/task"
)

// page text: everything below is for a person; programs use --json.

// text collects output and keeps the first write error.
type text struct {
	w   io.Writer
	u   *ui
	err error
}

func (t *text) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format, args...)
	}
}

func (t *text) head(s string) { t.printf("\n%s\n", t.u.paint(bold, s)) }

// table aligns columns by visible width; color paints a whole cell.
func (t *text) table(indent string, rows [][]string, color func(row, col int, s string) string) {
	var width []int
	for _, r := range rows {
		for i, c := range r {
			for len(width) <= i {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for ri, r := range rows {
		var b strings.Builder
		b.WriteString(indent)
		for i, c := range r {
			shown := c
			if color != nil {
				shown = color(ri, i, c)
			}
			b.WriteString(shown)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)+2))
			}
		}
		t.printf("%s\n", strings.TrimRight(b.String(), " "))
	}
}

func (a *app) renderList(w io.Writer, tasks []task.View) error {
	t := &text{w: w, u: a.ui}
	if len(tasks) == 0 {
		a.ui.note("no tasks; `caisson open` makes one")
		return nil
	}
	rows := [][]string{{"ID", "NAME", "STATE", "AGE", "REPOSITORY", "WHAT"}}
	for _, v := range tasks {
		name := clean(v.Name)
		if name == "" {
			name = "-"
		}
		rows = append(rows, []string{string(v.ID), name, stateWord(v.State, v.Removing), age(time.Since(v.Created)), clean(filepath.Base(v.Source.Repo)), what(&v)})
	}
	t.table("", rows, func(r, c int, s string) string {
		switch {
		case r == 0:
			return a.ui.paint(bold, s)
		case c == 2:
			return a.ui.paint(stateColor(task.State(s)), s)
		}
		return s
	})
	return t.err
}

// what says in a few words what a task is about or what it waits for.
func what(v *task.View) string {
	switch {
	case v.Problem != "":
		first, _, more := strings.Cut(v.Problem, "\n") // git gives advice below; show has it
		if more {
			first += " …"
		}
		return clean(first)
	case v.State == task.Kept && v.Retention != nil:
		return "kept until " + v.Retention.Until.Local().Format("2006-01-02 15:04") + ": " + clean(v.Retention.Why)
	case v.Asked != nil && len(v.Command) == 0:
		return "to be kept until " + v.Asked.Until.Local().Format("2006-01-02 15:04") + ": " + clean(v.Asked.Why)
	case len(v.Command) > 0:
		s := quoteArgv(v.Command)
		if utf8.RuneCountInString(s) > 60 {
			s = string([]rune(s)[:57]) + "..."
		}
		if v.Exit != nil {
			s += fmt.Sprintf(" (exit %d)", *v.Exit)
		}
		return s
	}
	return ""
}

// stateWord is the state that people see: a closing task of which only files are
// left, which are being removed, needs nothing any more.
func stateWord(s task.State, removing bool) string {
	if s == task.Closing && removing {
		return string(task.Removing)
	}
	return string(s)
}

func stateColor(s task.State) string {
	switch s {
	case task.Ready:
		return green
	case task.Stuck, task.Blocked:
		return red
	case task.Closed:
		return dim
	}
	return yellow
}

// age is a duration in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + "h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + "d"
}

// quoteArgv renders a command so that a shell would read it back.
func quoteArgv(argv []string) string {
	out := make([]string, len(argv))
	for i, s := range argv {
		plain := s != ""
		for _, c := range s {
			if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+", c) {
				plain = false
				break
			}
		}
		if out[i] = clean(s); !plain {
			out[i] = "'" + strings.ReplaceAll(out[i], "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}

func bytesText(n int64) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if f := float64(n) / float64(int64(1)<<u.shift); f >= 1 {
			return strconv.FormatFloat(float64(int64(f*10))/10, 'f', -1, 64) + " " + u.name
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}

func level(n int) string {
	if n == task.LevelNA {
		return "n/a"
	}
	return strconv.Itoa(n)
}

// levels prints the three columns side by side; a plan has nothing proved yet.
func (t *text) levels(levels []task.Level, proved bool) {
	if len(levels) == 0 {
		return
	}
	t.head("levels")
	head := []string{"AXIS", "", "REQUIRED", "PROMISED"}
	if proved {
		head = append(head, "PROVED")
	}
	rows := [][]string{append(head, "HOW")}
	for _, l := range levels {
		how := l.How
		if proved && l.Seen != "" {
			how = l.Seen
		}
		r := []string{string(l.Axis), l.Axis.Title(), level(l.Required), level(l.Promised)}
		if proved {
			r = append(r, level(l.Proved))
		}
		rows = append(rows, append(r, clean(how)))
	}
	t.table("  ", rows, func(r, c int, s string) string {
		if r == 0 {
			return t.u.paint(bold, s)
		}
		l := levels[r-1]
		have := l.Promised
		if proved {
			have = l.Proved
		}
		if c == len(head)-1 && l.Required > 0 {
			if have == task.LevelNA || have >= l.Required {
				return t.u.paint(green, s)
			}
			return t.u.paint(red, s)
		}
		return s
	})
	// One line per reason, not per axis: most levels have the same.
	var reasons []string
	needs := map[string][]string{}
	for _, l := range levels {
		if l.Why == "" || l.Required <= 0 {
			continue
		}
		if needs[l.Why] == nil {
			reasons = append(reasons, l.Why)
		}
		needs[l.Why] = append(needs[l.Why], fmt.Sprintf("%s %d", l.Axis, l.Required))
	}
	for _, why := range reasons {
		t.printf("  %s\n", t.u.paint(dim, "required "+strings.Join(needs[why], ", ")+": "+clean(why)))
	}
}

func (t *text) findings(fs []task.Finding) {
	if len(fs) == 0 {
		return
	}
	t.head("findings")
	for _, f := range fs {
		capped := ""
		if f.Cap < task.MaxLevel(f.Axis) {
			capped = fmt.Sprintf(", at most %d", f.Cap)
		}
		t.printf("  %s (%s%s): %s\n", clean(f.ID), f.Axis, capped, clean(f.Text))
		if f.Location != "" {
			t.printf("    at   %s\n", clean(f.Location))
		}
		if f.Fix != "" {
			t.printf("    fix  %s\n", clean(f.Fix))
		}
	}
}

func (t *text) grants(gs []task.Grant) {
	if len(gs) == 0 {
		return
	}
	t.head("grants")
	var rows [][]string
	for _, g := range gs {
		rows = append(rows, []string{clean(g.Kind), clean(g.Value), "by " + clean(g.Source)})
	}
	t.table("  ", rows, nil)
}

func (t *text) limits(l task.Limits) {
	var parts []string
	if l.MemoryBytes > 0 {
		parts = append(parts, "memory "+bytesText(l.MemoryBytes))
	}
	if l.CPUs > 0 {
		parts = append(parts, "cpus "+strconv.FormatFloat(l.CPUs, 'f', -1, 64))
	}
	if l.Pids > 0 {
		parts = append(parts, "pids "+strconv.FormatInt(l.Pids, 10))
	}
	if l.DiskBytes > 0 {
		parts = append(parts, "disk "+bytesText(l.DiskBytes))
	}
	if l.NetBytes > 0 {
		parts = append(parts, "net bytes "+bytesText(l.NetBytes))
	}
	if l.NetConns > 0 {
		parts = append(parts, "net connections "+strconv.FormatInt(l.NetConns, 10))
	}
	if l.NetRate > 0 {
		parts = append(parts, "net rate "+strconv.FormatInt(l.NetRate, 10)+"/s")
	}
	if l.Timeout > 0 {
		parts = append(parts, "timeout "+l.Timeout.String())
	}
	if len(parts) > 0 {
		t.field("limits", strings.Join(parts, ", "))
	}
}

// field is one labelled line.
func (t *text) field(name, value string) {
	if value != "" {
		t.printf("%s %s\n", t.u.paint(dim, fmt.Sprintf("%-10s", name)), clean(value))
	}
}

func (t *text) source(s task.SourceRef) {
	t.field("repository", s.Repo)
	base := s.Base
	if len(base) > 12 {
		base = base[:12]
	}
	switch {
	case s.Strategy == task.StrategyCopy: // has none
	case s.Base == "" && s.Repo != "":
		base = "no commit yet"
	case s.BaseRev != "" && s.BaseRev != s.Base:
		base += " (" + s.BaseRev + ")"
	}
	t.field("base", base)
	switch {
	case s.Branch != "":
		t.field("branch", s.Branch)
	case s.Strategy == task.StrategyWorktree && s.Folder == "":
		// A plan, or over: its branch has the task's name.
	case s.Base != "":
		t.field("branch", "detached")
	}
	switch s.Strategy {
	case "":
	case task.StrategyClone:
		shared := "self-contained"
		if s.Shared {
			shared = "objects shared read-only"
		}
		t.field("source", fmt.Sprintf("%s, history %s, %s, at %s", s.Strategy, s.History, shared, s.Target))
	case task.StrategyWorktree:
		t.field("source", fmt.Sprintf("%s, git masked inside, at %s", s.Strategy, s.Target))
	case task.StrategyCheckout:
		t.field("source", fmt.Sprintf("%s, your own files, at %s", s.Strategy, s.Target))
	default:
		t.field("source", fmt.Sprintf("%s, at %s", s.Strategy, s.Target))
	}
	if s.Dirty != task.DirtyNone {
		start := s.Start
		if len(start) > 12 {
			start = start[:12]
		}
		t.field("began with", strings.TrimSuffix("your uncommitted files ("+string(s.Dirty)+") "+start, " "))
	}
	if s.Folder != "" {
		t.field("files", s.Folder)
	}
	for _, n := range s.Notes {
		t.field("", n)
	}
}

func (t *text) notIsolated(list []string) {
	if len(list) == 0 {
		return
	}
	t.head("not isolated")
	for _, s := range list {
		t.printf("  - %s\n", clean(s))
	}
}

// detailText renders what an error carries beside its message.
func detailText(u *ui, detail any) string {
	var b strings.Builder
	t := &text{w: &b, u: &ui{colorOut: u.colorErr, utf8: u.utf8}}
	switch d := detail.(type) {
	case nil:
	case *task.ApplyReport: // printed as the result
	case *task.PlanReport:
		if d != nil {
			t.missing(d.Missing)
		}
	case task.PlanReport:
		t.missing(d.Missing)
	case []task.Missing:
		t.missing(d)
	case *task.Work:
		t.work(d)
	case []task.Resource:
		t.resources(d)
	case []task.Level:
		t.levels(d, true)
	case string:
		return cleanText(d)
	case []string:
		for _, s := range d {
			t.printf("  %s\n", clean(s))
		}
	case fmt.Stringer:
		return cleanText(d.String())
	default:
		// Errors that came over a socket carry what JSON made of the detail.
		data, err := json.Marshal(d)
		if err != nil {
			return ""
		}
		var m []task.Missing
		var p task.PlanReport
		switch {
		case json.Unmarshal(data, &m) == nil && len(m) > 0 && m[0].Axis != "":
			t.missing(m)
		case json.Unmarshal(data, &p) == nil && len(p.Missing) > 0:
			t.missing(p.Missing)
		default:
			data, _ = json.MarshalIndent(d, "", "  ")
			return cleanText(string(data))
		}
	}
	return b.String()
}

// missing prints the missing-boundary report. What all of many gaps have in
// common is said once: a backend that is not usable has one reason, not ten.
func (t *text) missing(list []task.Missing) {
	line := func(label, s string) {
		if s != "" {
			t.printf("  %s %s\n", t.u.paint(dim, fmt.Sprintf("%-14s", label)), clean(s))
		}
	}
	lines := func(label string, list []string) {
		for _, s := range list {
			line(label, s)
			label = ""
		}
	}
	var same task.Missing
	if len(list) > 2 {
		first := list[0]
		all := func(has func(m task.Missing) bool) bool {
			return !slices.ContainsFunc(list, func(m task.Missing) bool { return !has(m) })
		}
		if all(func(m task.Missing) bool { return m.WhyRequired == first.WhyRequired }) {
			same.WhyRequired = first.WhyRequired
		}
		if all(func(m task.Missing) bool { return m.WhyLower == first.WhyLower }) {
			same.WhyLower = first.WhyLower
		}
		for _, o := range first.Options {
			if all(func(m task.Missing) bool { return slices.Contains(m.Options, o) }) {
				same.Options = append(same.Options, o)
			}
		}
	}
	if same.WhyRequired != "" || same.WhyLower != "" || len(same.Options) > 0 {
		t.printf("%s\n", t.u.paint(bold, "for every layer below"))
		line("needed because", same.WhyRequired)
		line("lower because", same.WhyLower)
		lines("ways out", same.Options)
	}
	for _, m := range list {
		t.printf("%s\n", t.u.paint(bold, fmt.Sprintf("missing: %s (%s) needs %s, has %s", m.Axis, m.Axis.Title(), level(m.Required), level(m.Effective))))
		if same.WhyRequired == "" {
			line("needed because", m.WhyRequired)
		}
		if same.WhyLower == "" {
			line("lower because", m.WhyLower)
		}
		lines("stays shared", m.Shared)
		lines("blast radius", m.Blast)
		lines("ways out", slices.DeleteFunc(slices.Clone(m.Options), func(o string) bool { return slices.Contains(same.Options, o) }))
		line("acceptable by", strings.Join(m.Acceptable, ", "))
	}
}
