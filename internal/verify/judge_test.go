package verify

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/verify/attack"
)

// whole is a boundary in which every property holds, and a machine on which every
// attempt works: two attempts at each.
func whole() *sides {
	s := &sides{inside: map[string]attack.Outcome{}, control: map[string]attack.Outcome{}, root: true, touched: map[string][]string{}}
	for _, p := range attack.Properties {
		for _, n := range []string{"one", "other"} {
			s.inside[p.ID+" "+n] = attack.Outcome{Prop: p.ID, Name: n, Errno: "EPERM"}
			s.control[p.ID+" "+n] = attack.Outcome{Prop: p.ID, Name: n}
		}
	}
	return s
}

func judgeAll(s *sides) map[string]task.VerifyResult {
	out := map[string]task.VerifyResult{}
	for _, p := range attack.Properties {
		out[p.ID] = s.judge(p).Result
	}
	return out
}

// TestBrokenTwins breaks one property after the other, in each way in which one can
// be: it must be named, and nothing else.
func TestBrokenTwins(t *testing.T) {
	ways := map[string]struct {
		change func(s *sides, id string)
		want   task.VerifyResult
	}{
		"an attempt works": {func(s *sides, id string) {
			s.inside[id+" other"] = attack.Outcome{Prop: id, Name: "other"}
		}, task.VerifyBroken},
		"an attempt works that has no control": {func(s *sides, id string) {
			s.inside[id+" third"] = attack.Outcome{Prop: id, Name: "third"}
		}, task.VerifyBroken},
		"the inside denies it, and the host saw it": {func(s *sides, id string) { s.touched[id] = []string{"tcp 127.0.0.1:1"} }, task.VerifyBroken},
		"an answer that is no refusal": {func(s *sides, id string) {
			s.inside[id+" other"] = attack.Outcome{Prop: id, Name: "other", Errno: "EINVAL"}
		}, task.VerifyNotShown},
		"no control works": {func(s *sides, id string) {
			for _, n := range []string{" one", " other"} {
				s.control[id+n] = attack.Outcome{Prop: id, Errno: "EINVAL"}
			}
		}, task.VerifyNotShown},
		"no control was made":     {func(s *sides, id string) { delete(s.control, id+" one"); delete(s.control, id+" other") }, task.VerifyNotShown},
		"the inside says nothing": {func(s *sides, id string) { delete(s.inside, id+" one"); delete(s.inside, id+" other") }, task.VerifyNotTried},
		"the inside left it out": {func(s *sides, id string) {
			for _, n := range []string{" one", " other"} {
				s.inside[id+n] = attack.Outcome{Prop: id, Left: "not here"}
			}
		}, task.VerifyNotTried},
	}
	for r := range maps.Values(judgeAll(whole())) {
		if r != task.VerifyHeld {
			t.Fatalf("the whole boundary: %s", r)
		}
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			for _, broken := range attack.Properties {
				s := whole()
				way.change(s, broken.ID)
				got := judgeAll(s)
				for id, r := range got {
					want := task.VerifyHeld
					if id == broken.ID {
						want = way.want
					}
					if r != want {
						t.Errorf("with %s changed, %s is %s, want %s", broken.ID, id, r, want)
					}
				}
			}
		})
	}
}

// TestOpen holds a boundary to what it promises.
func TestOpen(t *testing.T) {
	for _, p := range attack.Properties {
		for promised := 0; promised <= 4; promised++ {
			s := whole()
			s.promised = task.Vector{p.Axis: promised}
			s.inside[p.ID+" other"] = attack.Outcome{Prop: p.ID, Name: "other"}
			want := task.VerifyBroken
			if promised < p.Level {
				want = task.VerifyOpen
			}
			if v := s.judge(p); v.Result != want || want == task.VerifyOpen && (v.Why == "" || len(v.Open) != 1) {
				t.Errorf("%s with %s %d: %+v", p.ID, p.Axis, promised, v)
			}
			s.touched[p.ID] = []string{"seen"}
			delete(s.inside, p.ID+" other")
			if v := s.judge(p); v.Result != task.VerifyBroken {
				t.Errorf("%s with %s %d, seen by the host: %s", p.ID, p.Axis, promised, v.Result)
			}
		}
		if p.Level < 1 || p.Level > task.MaxLevel(p.Axis) {
			t.Errorf("%s: level %d of %s", p.ID, p.Level, p.Axis)
		}
	}
}

func TestVerdict(t *testing.T) {
	h, b, s, n := task.VerifyHeld, task.VerifyBroken, task.VerifyNotShown, task.VerifyNotTried
	for _, c := range []struct {
		in   []task.VerifyResult
		want task.VerifyResult
	}{
		{nil, n}, {[]task.VerifyResult{n, n}, n}, {[]task.VerifyResult{s, n}, s}, {[]task.VerifyResult{s, h, n}, h}, {[]task.VerifyResult{h, s}, h}, {[]task.VerifyResult{h, b, s}, b}, {[]task.VerifyResult{""}, n},
	} {
		var ps []task.VerifyProbe
		for _, r := range c.in {
			ps = append(ps, task.VerifyProbe{Result: r})
		}
		if got := verdict(ps); got != c.want {
			t.Errorf("%v: %s, want %s", c.in, got, c.want)
		}
	}
}

func TestControl(t *testing.T) {
	works := &attack.Outcome{Prop: "P01"}
	for _, c := range []struct {
		name           string
		out            *attack.Outcome
		root, filtered bool
		want           Shown
	}{
		{"works", works, false, false, Works},
		{"none", nil, true, false, None},
		{"left out", &attack.Outcome{Left: "harm"}, true, false, None},
		{"only root", &attack.Outcome{Errno: "EPERM", Root: true}, false, false, None},
		{"not even root", &attack.Outcome{Errno: "EPERM", Root: true}, true, false, Dead},
		{"kernel without it", &attack.Outcome{Errno: "ENOSYS", Kernel: true}, true, false, Lacks},
		{"odd answer of a kernel", &attack.Outcome{Errno: "EINVAL", Kernel: true}, true, false, Dead},
		{"a filter of our own", &attack.Outcome{Errno: "EPERM"}, false, true, None},
	} {
		if got, why := Control(c.out, c.root, c.filtered); got != c.want || (got == Works) != (why == "") {
			t.Errorf("%s: %d %q, want %d", c.name, got, why, c.want)
		}
	}
}

// TestOutcomes reads what the inside wrote, which may be anything.
func TestOutcomes(t *testing.T) {
	got, err := Outcomes([]byte("{\"Prop\":\"P01\",\"Name\":\"a\",\"Errno\":\"EPERM\"}\n\n{\"Prop\":\"P01\",\"Name\":\"a\"}\n"))
	if err != nil || got["P01 a"].Errno != "EPERM" {
		t.Errorf("the first line of an attempt does not count: %v %v", got, err)
	}
	for _, bad := range []string{"x", "{}", "{\"Prop\":", "null", "[1]", "{\"Prop\":\"P01\",\"Name\":\"a\",\"Errno\":1}"} {
		if got, err := Outcomes([]byte(bad + "\n")); err == nil || len(got) > 0 {
			t.Errorf("%q: %v %v", bad, got, err)
		}
	}
	if _, err := Outcomes([]byte("\x1b[2Jboo\n")); err == nil || strings.ContainsRune(err.Error(), 0x1b) {
		t.Errorf("hostile text comes out as it is: %v", err)
	}
}

func FuzzOutcomes(f *testing.F) {
	f.Add([]byte("{\"Prop\":\"P01\",\"Name\":\"a\",\"Errno\":\"EPERM\"}\n"))
	f.Add([]byte("{\"Prop\":\"P01\"}\n\x00\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, _ := Outcomes(text)
		s := &sides{inside: got, control: map[string]attack.Outcome{}, touched: map[string][]string{}}
		for _, p := range attack.Properties {
			v := s.judge(p)
			if v.Result == task.VerifyHeld {
				t.Errorf("%s held without any control", p.ID)
			}
			for _, l := range slices.Concat(v.Broken, v.Unclear, []string{v.Why}) {
				for _, r := range l {
					if r < 0x20 || r > 0x7e {
						t.Errorf("%q comes out as it is", l)
					}
				}
			}
		}
	})
}

// TestPropertiesAreWhole holds the table together: every property has an axis, and
// every axis one, or it is said here why not.
func TestPropertiesAreWhole(t *testing.T) {
	without := map[task.Axis]string{
		task.SVC: "a task of this run has no services", task.APR: "nobody is asked anything in it", task.VER: "nothing leaves it",
	}
	seen, ids := map[task.Axis]bool{}, map[string]bool{}
	for _, p := range attack.Properties {
		if p.ID == "" || p.Text == "" || p.Control == "" || !slices.Contains(task.Axes, p.Axis) || ids[p.ID] {
			t.Errorf("%+v", p)
		}
		ids[p.ID], seen[p.Axis] = true, true
	}
	for _, a := range task.Axes {
		if seen[a] == (without[a] != "") {
			t.Errorf("axis %s: tried %v, and the reason why not is %q", a, seen[a], without[a])
		}
	}
}
