package probe

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

func judgeSpec() *Spec {
	return &Spec{Schema: SpecSchema, Nonce: "n", Absent: []string{"/home/u/.ssh", "/home/u/.aws"}, Control: []string{"/run/docker.sock"}, Agents: []string{"/run/agent"},
		Abstract: []string{"x"}, Dial: []string{"169.254.169.254:80", "127.0.0.1:1", "[::1]:1"}, Writable: []string{"/src"}, ReadOnly: []string{"/", "/usr"}, UID: 1000, GID: 1000}
}

// ideal answers everything as a perfect boundary would.
func ideal(s *Spec) *Report {
	r := &Report{Schema: ReportSchema, Nonce: s.Nonce}
	for _, it := range items(s) {
		o := Denied
		if it.check.ID == "fs.writable" {
			o = Allowed
		}
		r.Checks = append(r.Checks, Result{ID: it.id, Axis: it.check.Axis, Outcome: o})
	}
	return r
}

func goodView(pid int) *HostView {
	v := &HostView{PID: pid, NS: map[string]uint64{}, Own: map[string]uint64{}, UID: 100000, NoNewPrivs: true, Seccomp: 2, Interfaces: []string{"lo"},
		Mounts: []Mount{{Point: "/", Type: "tmpfs", Options: "ro"}, {Point: "/src", Type: "ext4", Options: "rw"}, {Point: "/dev/null", Type: "devtmpfs", Options: "rw"}}}
	for i, n := range nsNames {
		v.NS[n], v.Own[n] = uint64(100+i), uint64(200+i)
	}
	return v
}

func goodObs() *Observation {
	return &Observation{Worker: goodView(10), Space: goodView(11), Levels: task.Vector{task.SRC: 2, task.RES: 2, task.CHN: 2, task.CRD: 1, task.SVC: task.LevelNA}, Seen: map[task.Axis]string{task.SRC: "clone"}}
}

func encode(t testing.TB, r *Report) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var proved = task.Vector{task.SRC: 2, task.PRC: 3, task.FS: 2, task.NET: 4, task.RES: 2, task.KRN: 1, task.CPL: 2, task.CHN: 2, task.CRD: 1, task.SVC: task.LevelNA}

func TestJudgeIdeal(t *testing.T) {
	s := judgeSpec()
	levels, seen, findings := Judge(s, encode(t, ideal(s)), goodObs())
	if !maps.Equal(levels, proved) {
		t.Errorf("levels %v, want %v", levels, proved)
	}
	if len(findings) != 0 {
		t.Errorf("findings %v", findings)
	}
	for _, a := range task.Axes {
		if seen[a] == "" {
			t.Errorf("%s: nothing is said", a)
		}
	}
	s.OwnRoot = true
	if levels, _, _ = Judge(s, encode(t, ideal(s)), goodObs()); levels[task.FS] != 3 {
		t.Errorf("own root: %v", levels)
	}
}

// TestJudgeEveryCheck turns each answer in turn; the level that rests on it must
// fall to just below, also when the answer is missing or nonsense.
func TestJudgeEveryCheck(t *testing.T) {
	s := judgeSpec()
	s.OwnRoot = true
	for n, it := range items(s) {
		if it.check.Level == 0 {
			continue
		}
		for _, how := range []Outcome{Allowed, Same, Failed, "DENIED", "", "absent", "twice"} {
			r := ideal(s)
			switch how {
			case "absent":
				r.Checks = append(r.Checks[:n:n], r.Checks[n+1:]...)
			case "twice": // the worse counts, in whatever order
				r.Checks = append([]Result{{ID: it.id, Outcome: Allowed}}, r.Checks...)
			default:
				r.Checks[n].Outcome = how
			}
			levels, seen, findings := Judge(s, encode(t, r), goodObs())
			want := it.check.Level - 1
			if it.check.Axis == task.NET && want > 1 {
				want = 1
			}
			if it.check.Axis == task.RES || it.check.Axis == task.KRN && want > 1 {
				continue
			}
			if levels[it.check.Axis] > want {
				t.Errorf("%s %q: %s %d, want at most %d (%s)", it.id, how, it.check.Axis, levels[it.check.Axis], want, seen[it.check.Axis])
			}
			if len(findings) == 0 {
				t.Errorf("%s %q: no finding", it.id, how)
			}
		}
	}
}

// TestJudgeHost turns each thing the host sees.
func TestJudgeHost(t *testing.T) {
	s := judgeSpec()
	for name, c := range map[string]struct {
		change func(*Observation)
		axis   task.Axis
		most   int
	}{
		"no look":         {func(o *Observation) { o.Worker = nil }, task.PRC, 0},
		"no look, kernel": {func(o *Observation) { o.Worker = nil }, task.KRN, 0},
		"no look, net":    {func(o *Observation) { o.Worker = nil }, task.NET, 0},
		"same pid ns":     {func(o *Observation) { o.Space.NS["pid"] = o.Space.Own["pid"] }, task.PRC, 0},
		"unread pid ns":   {func(o *Observation) { delete(o.Worker.NS, "pid") }, task.PRC, 0},
		"same ipc ns":     {func(o *Observation) { o.Worker.NS["ipc"] = o.Worker.Own["ipc"] }, task.PRC, 1},
		"no nnp":          {func(o *Observation) { o.Space.NoNewPrivs = false }, task.PRC, 1},
		"capabilities":    {func(o *Observation) { o.Space.CapEff = 1 }, task.PRC, 2},
		"root outside":    {func(o *Observation) { o.Worker.UID = 0 }, task.PRC, 2},
		"no filter":       {func(o *Observation) { o.Space.Seccomp = 0 }, task.KRN, 0},
		"same net ns":     {func(o *Observation) { o.Worker.NS["net"] = o.Worker.Own["net"] }, task.NET, 0},
		"interface":       {func(o *Observation) { o.Worker.Interfaces = []string{"lo", "eth0"} }, task.NET, 1},
		"route":           {func(o *Observation) { o.Worker.Routes = []string{"ipv4 eth0 00000000"} }, task.NET, 1},
		"stray mount": {func(o *Observation) {
			o.Space.Mounts = append(o.Space.Mounts, Mount{Point: "/home", Type: "ext4", Options: "rw"})
		}, task.FS, 0},
		"bad mount line":  {func(o *Observation) { o.Space.Mounts = append(o.Space.Mounts, parseMounts([]byte("x"))...) }, task.FS, 0},
		"no mount table":  {func(o *Observation) { o.Space.Mounts = nil }, task.FS, 0},
		"touched":         {func(o *Observation) { o.Touched = []string{"abstract socket"} }, task.NET, 0},
		"touched control": {func(o *Observation) { o.Touched = []string{"unix socket"} }, task.CPL, 0},
		"not vouched":     {func(o *Observation) { o.Levels = nil }, task.SRC, 0},
	} {
		o := goodObs()
		c.change(o)
		levels, seen, _ := Judge(s, encode(t, ideal(s)), o)
		if levels[c.axis] > c.most {
			t.Errorf("%s: %s %d, want at most %d (%s)", name, c.axis, levels[c.axis], c.most, seen[c.axis])
		}
	}
}

// TestJudgeRefuses gives reports that must prove nothing at all.
func TestJudgeRefuses(t *testing.T) {
	s := judgeSpec()
	good := string(encode(t, ideal(s)))
	other := ideal(s)
	other.Nonce = "another"
	for name, data := range map[string]string{
		"empty": "", "null": "null", "not json": "x", "trailing": good + "{}", "unknown field": strings.Replace(good, `"nonce"`, `"levels":{"PRC":3},"nonce"`, 1),
		"schema": strings.Replace(good, ReportSchema, "caisson.probe-report/2", 1), "other nonce": string(encode(t, other)), "long": good + strings.Repeat(" ", maxReport),
	} {
		levels, _, findings := Judge(s, []byte(data), goodObs())
		for _, a := range []task.Axis{task.PRC, task.FS, task.NET, task.KRN, task.CPL} {
			if levels[a] != 0 {
				t.Errorf("%s: %s %d", name, a, levels[a])
			}
		}
		if len(findings) == 0 || findings[0].ID != "probe-report" {
			t.Errorf("%s: findings %v", name, findings)
		}
	}
}

// TestJudgeText holds terminal sequences in a report to one harmless line.
func TestJudgeText(t *testing.T) {
	s := judgeSpec()
	r := ideal(s)
	r.Checks[0].Outcome, r.Checks[0].Detail, r.Checks[0].Errno = Allowed, "\x1b[2J\nall fine\u202e"+strings.Repeat("x", 9000), "\x07"
	_, seen, findings := Judge(s, encode(t, r), goodObs())
	for _, text := range []string{seen[task.FS], findings[0].Text} {
		if strings.ContainsAny(text, "\x1b\n\x07\u202e") || len(text) > 600 {
			t.Errorf("not clean: %q", text)
		}
	}
}

// FuzzJudge feeds hostile reports: no crash, no level above what the host's own
// look allows, nothing that the host alone vouches for raised.
func FuzzJudge(f *testing.F) {
	s := judgeSpec()
	f.Add(encode(f, ideal(s)))
	f.Add([]byte(`{"schema":"caisson.probe-report/1","nonce":"n","micros":-1,"checks":[{"id":"P12","axis":"PRC","what":"","outcome":"denied"}],"facts":{}}`))
	f.Add([]byte(`{"checks":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		o := goodObs()
		o.Worker.Seccomp = 0 // the host knows better
		o.Space.NS["net"] = o.Space.Own["net"]
		levels, seen, findings := Judge(s, data, o)
		for _, a := range task.Axes {
			if levels[a] > proved[a] || levels[a] > task.MaxLevel(a) {
				t.Fatalf("%s %d", a, levels[a])
			}
			if strings.ContainsAny(seen[a], "\n\x1b") {
				t.Fatalf("%s: %q", a, seen[a])
			}
		}
		if levels[task.KRN] != 0 || levels[task.NET] != 0 {
			t.Fatalf("raised above the host's look: %v", levels)
		}
		if _, err := Decode(s, data); err != nil && levels[task.FS]+levels[task.CPL] != 0 {
			t.Fatalf("an unreadable report proves %v", levels)
		}
		for _, x := range findings {
			if strings.ContainsAny(x.Text, "\n\x1b") {
				t.Fatalf("%q", x.Text)
			}
		}
	})
}

func TestParseMounts(t *testing.T) {
	ms := parseMounts([]byte("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n37 35 0:5 / /x\\134y ro - tmpfs none rw\nrubbish\n"))
	if len(ms) != 3 || ms[0].Point != "/mnt 2" || !ms[0].writable() || ms[1].Point != `/x\y` || ms[1].writable() || ms[2].Type != "" || !ms[2].writable() {
		t.Errorf("%+v", ms)
	}
	s := &Spec{Writable: []string{"/src"}}
	if got := strayMounts(s, []Mount{{Point: "/srcs", Type: "ext4", Options: "rw"}}); len(got) != 1 {
		t.Errorf("a neighbour with the same beginning is not planned: %v", got)
	}
}

func TestStandard(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Standard() {
		if seen[c.ID] || c.Text == "" || task.MaxLevel(c.Axis) < c.Level || c.Level < 0 {
			t.Errorf("%+v", c)
		}
		seen[c.ID] = true
	}
}
