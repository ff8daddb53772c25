package probe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// Decode reads a report strictly and refuses one that answers another spec.
func Decode(s *Spec, data []byte) (*Report, error) {
	var r Report
	if err := decodeStrict(data, ReportSchema, &r, &r.Schema); err != nil {
		return nil, err
	}
	if r.Nonce != s.Nonce {
		return nil, fmt.Errorf("answers another question")
	}
	if len(r.Checks) > maxChecks {
		return nil, fmt.Errorf("holds %d checks, more than %d", len(r.Checks), maxChecks)
	}
	return &r, nil
}

// axisTally is what the attempts on one axis came to.
type axisTally struct {
	attempted, proved int
	lowest            int // the lowest level that an attempt disproved; 0: none
	why               string
}

// Judge turns a report and the host's observation into proved levels, what each
// rests on, and findings. A level counts only if every attempt behind it was
// made and refused; an axis that nothing proves is 0. It never fails: a report
// that cannot be read proves nothing.
func Judge(s *Spec, report []byte, obs *Observation) (task.Vector, map[task.Axis]string, []task.Finding) {
	if obs == nil {
		obs = &Observation{}
	}
	var findings []task.Finding
	rep, err := Decode(s, report)
	if err != nil {
		findings = append(findings, task.Finding{ID: "probe-report", Axis: task.PRC, Text: "the report from inside cannot be used: " + clean(err.Error(), 200)})
		rep = &Report{}
	}
	tallies, more := tally(s, rep)
	findings = append(findings, more...)

	levels, seen := task.Vector{}, map[task.Axis]string{}
	set := func(a task.Axis, l int, text string) {
		if l != 0 {
			levels[a] = l
		}
		seen[a] = text
	}
	for _, a := range task.Axes {
		t := tallies[a]
		switch a {
		case task.PRC, task.KRN, task.NET:
			in, inText := t.level(insideTop(s, a))
			out, outText := hostLevel(s, obs, a)
			l := min(in, out)
			if a == task.NET {
				var gate string
				l, gate = throughGate(s, obs, l)
				outText += gate
			}
			set(a, l, inText+"; host: "+outText)
		case task.FS, task.CPL:
			in, inText := t.level(insideTop(s, a))
			out, outText := hostLevel(s, obs, a)
			set(a, min(in, out), inText+"; host: "+outText)
		default:
			l, text := obs.Levels[a], obs.Seen[a]
			if (a == task.CHN || a == task.CRD) && l != task.LevelNA {
				if in, inText := t.level(task.MaxLevel(a)); in < l {
					l, text = in, inText+"; host: "+text
				}
			}
			switch {
			case text != "":
			case l == 0:
				text = "unmeasured"
			case l == task.LevelNA:
				text = "does not apply"
			default:
				text = "vouched for on the host"
			}
			set(a, l, text)
		}
	}
	findings = append(findings, hostFindings(obs)...)
	return levels, seen, findings
}

// throughGate says what l means where something may leave: 2 and 3 are a mediated
// way out, which attempts show together with what the host's gate saw of them.
func throughGate(s *Spec, obs *Observation, l int) (int, string) {
	switch {
	case s.Gate == GateNone && (l == 2 || l == 3):
		return 1, ""
	case s.Gate == GateNone:
		return l, ""
	case obs.Gated == 0:
		return min(l, 1), "; none of the attempts was seen at the gate"
	}
	text := fmt.Sprintf("; the gate took %d attempts and let none out", obs.Gated)
	if s.Gate == GateOpen {
		text += "; from the first command on it lets out all that no rule denies"
	}
	if l = min(l, s.Gate.level()); l == 3 {
		l = 2
	}
	return l, text
}

// insideTop is the highest level that the attempts can show on a.
func insideTop(s *Spec, a task.Axis) int {
	switch a {
	case task.PRC:
		return 3
	case task.FS:
		if s.OwnRoot {
			return 3
		}
		return 2
	case task.NET:
		return 4
	case task.KRN:
		if s.HostKernel[0] != "" {
			return 2
		}
		return 1
	case task.CPL:
		return 2
	}
	return 0
}

// level is the level the attempts leave, at most top, and why.
func (t *axisTally) level(top int) (int, string) {
	if t == nil || t.attempted == 0 {
		return 0, "nothing was attempted"
	}
	if t.proved == 0 {
		return 0, "no attempt was refused, the first: " + t.why
	}
	text := fmt.Sprintf("%d of %d attempts refused", t.proved, t.attempted)
	if t.lowest == 0 {
		return top, text
	}
	return min(top, t.lowest-1), text + ", not: " + t.why
}

// tally compares what was asked for with what was answered.
func tally(s *Spec, rep *Report) (map[task.Axis]*axisTally, []task.Finding) {
	got := map[string]*Result{}
	for i := range rep.Checks {
		r := &rep.Checks[i]
		// Said twice, the worse answer counts.
		if old := got[r.ID]; old == nil || old.Outcome.proves() {
			got[r.ID] = r
		}
	}
	out := map[task.Axis]*axisTally{}
	var findings []task.Finding
	bad := map[string]int{} // findings by check: one each, the rest counted
	for _, it := range items(s) {
		c := it.check
		t := out[c.Axis]
		if t == nil {
			t = &axisTally{}
			out[c.Axis] = t
		}
		if c.Level > 0 {
			t.attempted++
		}
		r := got[it.id]
		ok := r != nil && r.Outcome.proves()
		if c.ID == "fs.writable" {
			if r == nil || r.Outcome != Allowed {
				findings = append(findings, task.Finding{ID: "not-writable", Axis: c.Axis, Cap: task.MaxLevel(c.Axis), Text: "the task cannot write " + it.target + ": " + answer(r), Location: it.target})
			}
			continue
		}
		if ok {
			if c.Level > 0 {
				t.proved++
			}
			continue
		}
		what := c.Text
		if it.target != "" {
			what += " (" + it.target + ")"
		}
		what += ": " + answer(r)
		limit := task.MaxLevel(c.Axis)
		if c.Level > 0 {
			limit = c.Level - 1
			if t.lowest == 0 || c.Level < t.lowest {
				t.lowest, t.why = c.Level, what
			}
		}
		if bad[c.ID]++; bad[c.ID] == 1 {
			findings = append(findings, task.Finding{ID: "probe-" + c.ID, Axis: c.Axis, Cap: limit, Text: what, Location: it.target})
		}
	}
	for i := range findings {
		id := strings.TrimPrefix(findings[i].ID, "probe-")
		if n := bad[id]; n > 1 {
			findings[i].Text += fmt.Sprintf(" (and %d more)", n-1)
		}
	}
	return out, findings
}

// answer renders what came back for a person; it may hold hostile text.
func answer(r *Result) string {
	if r == nil {
		return "not attempted"
	}
	o := string(r.Outcome)
	switch r.Outcome {
	case Denied, Allowed, Same, Different, Failed:
	default:
		o = "unknown answer"
	}
	if d := clean(strings.TrimSpace(r.Errno+" "+r.Detail), 160); d != "" {
		o += " (" + d + ")"
	}
	return o
}

// clean makes text from inside fit to be printed: one line, printable ASCII, short.
func clean(s string, limit int) string {
	var b strings.Builder
	for _, c := range s {
		if b.Len() >= limit {
			b.WriteString("...")
			break
		}
		if c < 0x20 || c > 0x7e {
			c = '?'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// views returns the host's looks that exist.
func (o *Observation) views() []*HostView {
	var out []*HostView
	for _, v := range []*HostView{o.Worker, o.Space} {
		if v != nil {
			out = append(out, v)
		}
	}
	return out
}

// hostLevel is the highest level that the host's own look allows on a.
func hostLevel(s *Spec, obs *Observation, a task.Axis) (int, string) {
	vs := obs.views()
	top := task.MaxLevel(a)
	var notes []string
	lower := func(l int, format string, args ...any) {
		top = min(top, l)
		notes = append(notes, fmt.Sprintf(format, args...))
	}
	if obs.Worker == nil {
		if a == task.FS || a == task.CPL {
			notes = append(notes, "mount table not looked at")
		} else {
			return 0, "no process was looked at"
		}
	}
	for _, v := range vs {
		told := func(n string) bool { return v.NS[n] == 0 && slices.Contains(v.Told, n) }
		apart := func(n string) bool { return told(n) || v.NS[n] != 0 && v.Own[n] != 0 && v.NS[n] != v.Own[n] }
		who := fmt.Sprintf("process %d", v.PID)
		switch a {
		case task.PRC:
			for _, n := range []string{"pid", "ipc", "uts"} {
				if !apart(n) {
					lower(map[bool]int{true: 0, false: 1}[n == "pid"], "%s: %s namespace is not seen to differ", who, n)
				}
			}
			if !v.NoNewPrivs {
				lower(1, "%s: no_new_privs is off", who)
			}
			if v.CapEff|v.CapPrm != 0 {
				lower(2, "%s: holds capabilities %x", who, v.CapEff|v.CapPrm)
			}
			if !apart("user") {
				lower(2, "%s: user namespace is not seen to differ", who)
			}
			if v.UID <= 0 {
				lower(2, "%s: is user 0 outside", who)
			}
		case task.KRN:
			if v.Seccomp != 2 {
				lower(0, "%s: no system call filter", who)
			}
		case task.NET:
			if !apart("net") {
				lower(0, "%s: network namespace is not seen to differ", who)
			}
			if len(v.Interfaces) != 1 || v.Interfaces[0] != "lo" {
				lower(1, "%s: interfaces %s", who, strings.Join(v.Interfaces, " "))
			}
			if len(v.Routes) > 0 {
				lower(1, "%s: routes leave loopback", who)
			}
		case task.FS:
			if !apart("mnt") {
				lower(0, "%s: mount namespace is not seen to differ", who)
			}
			if len(v.Mounts) == 0 && !told("mnt") {
				lower(0, "%s: mount table not read", who)
			}
			if stray := strayMounts(s, v.Mounts); len(stray) > 0 {
				lower(0, "%s: unplanned writable mounts %s", who, strings.Join(stray, ", "))
			}
		}
	}
	if a == task.KRN && obs.Kernel != "" {
		notes = append(notes, obs.Kernel)
		top = min(top, 2)
	} else if a == task.KRN {
		top = min(top, 1)
	}
	if len(obs.Touched) > 0 {
		switch a {
		case task.NET, task.CPL, task.FS:
			lower(0, "a sentinel was reached: %s", strings.Join(obs.Touched, ", "))
		}
	}
	for _, v := range vs {
		if n := toldFor[a]; n != "" && v.NS[n] == 0 && slices.Contains(v.Told, n) {
			notes = append(notes, fmt.Sprintf("process %d: the engine says that its %s namespace is its own, which this user cannot see", v.PID, n))
		}
	}
	if len(notes) == 0 {
		return top, hostText[a]
	}
	return top, strings.Join(notes, "; ")
}

// toldFor names a namespace by which it shows that an axis rests on somebody's word.
var toldFor = map[task.Axis]string{task.PRC: "pid", task.NET: "net", task.FS: "mnt"}

var hostText = map[task.Axis]string{
	task.PRC: "namespaces differ, no_new_privs, no capabilities, not user 0",
	task.KRN: "system call filter is on",
	task.NET: "network namespace differs, only loopback, no route, sentinels untouched",
	task.FS:  "mount table shows no unplanned writable place, sentinels untouched",
	task.CPL: "sentinels untouched",
}

// hostFindings names what the host could not read, so that a level of 0 is
// explained.
func hostFindings(obs *Observation) []task.Finding {
	var out []task.Finding
	for _, v := range obs.views() {
		if len(v.Unread) > 0 {
			out = append(out, task.Finding{ID: "host-unread", Axis: task.PRC, Cap: task.MaxLevel(task.PRC), Text: fmt.Sprintf("the host could not read of process %d: %s", v.PID, strings.Join(v.Unread, ", "))})
		}
	}
	for _, t := range obs.Touched {
		out = append(out, task.Finding{ID: "sentinel", Axis: task.NET, Text: "a planted sentinel was reached from inside: " + t})
	}
	return out
}
