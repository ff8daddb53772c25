package task

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Axis is one dimension along which a boundary isolates.
type Axis string

// The axes, in the order they are printed.
const (
	SRC Axis = "SRC" // source
	PRC Axis = "PRC" // process
	FS  Axis = "FS"  // filesystem
	NET Axis = "NET" // network
	RES Axis = "RES" // resources
	KRN Axis = "KRN" // kernel, machine
	CPL Axis = "CPL" // control plane
	CHN Axis = "CHN" // mediation channel
	SVC Axis = "SVC" // services
	CRD Axis = "CRD" // credentials
	APR Axis = "APR" // approvals
	VER Axis = "VER" // verification
	EVD Axis = "EVD" // evidence
	CLN Axis = "CLN" // cleanup
)

// Axes lists every axis in printing order.
var Axes = []Axis{SRC, PRC, FS, NET, RES, KRN, CPL, CHN, SVC, CRD, APR, VER, EVD, CLN}

// LevelNA says that an axis does not apply (for example no services are used).
// It satisfies every requirement and is printed "n/a". It never comes from a
// boundary: only the host may set it.
const LevelNA = -1

// maxLevel is the top of each axis's chain.
var maxLevel = map[Axis]int{SRC: 3, PRC: 3, FS: 4, NET: 4, RES: 3, KRN: 4, CPL: 2, CHN: 2, SVC: 3, CRD: 4, APR: 3, VER: 3, EVD: 3, CLN: 3}

// MaxLevel returns the top of a's chain, -1 for an unknown axis.
func MaxLevel(a Axis) int {
	if m, ok := maxLevel[a]; ok {
		return m
	}
	return -1
}

// Vector holds a level per axis. A missing axis is level 0: nothing is
// isolated there (or, in a requirement, nothing is needed).
type Vector map[Axis]int

// At returns the level of a.
func (v Vector) At(a Axis) int { return v[a] }

// Join returns the component-wise maximum; not-applicable loses to any level.
func (v Vector) Join(w Vector) Vector {
	out := Vector{}
	for _, a := range Axes {
		if l := max(v[a], w[a]); l != 0 {
			out[a] = l
		}
	}
	return out
}

// Short returns the axes on which have is below need, in printing order.
func Short(need, have Vector) []Axis {
	var out []Axis
	for _, a := range Axes {
		if need[a] > 0 && have[a] != LevelNA && have[a] < need[a] {
			out = append(out, a)
		}
	}
	return out
}

// String renders "SRC 2 PRC 3 …", leaving out levels of 0.
func (v Vector) String() string {
	var b strings.Builder
	for _, a := range Axes {
		switch l := v[a]; {
		case l == LevelNA:
			fmt.Fprintf(&b, " %s n/a", a)
		case l != 0:
			fmt.Fprintf(&b, " %s %d", a, l)
		}
	}
	return strings.TrimPrefix(b.String(), " ")
}

// MarshalJSON writes every axis, in printing order, "n/a" where it does not apply.
func (v Vector) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i, a := range Axes {
		if i > 0 {
			b.WriteByte(',')
		}
		if v[a] == LevelNA {
			fmt.Fprintf(&b, `%q:"n/a"`, string(a))
		} else {
			fmt.Fprintf(&b, `%q:%d`, string(a), v[a])
		}
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

// UnmarshalJSON reads what MarshalJSON wrote; unknown axes and levels out of
// range are errors.
func (v *Vector) UnmarshalJSON(data []byte) error {
	var raw map[Axis]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return fmt.Errorf("vector: %w", err)
	}
	out := Vector{}
	for a, r := range raw {
		top, ok := maxLevel[a]
		if !ok {
			return fmt.Errorf("vector: unknown axis %q", a)
		}
		if string(r) == `"n/a"` {
			out[a] = LevelNA
			continue
		}
		var l int
		if err := json.Unmarshal(r, &l); err != nil || l < 0 || l > top {
			return fmt.Errorf("vector: axis %s: level %s is not between 0 and %d", a, r, top)
		}
		if l != 0 {
			out[a] = l
		}
	}
	*v = out
	return nil
}

// ParseNeed reads "AXIS=LEVEL", as typed after --need.
func ParseNeed(s string) (Axis, int, error) {
	name, num, ok := strings.Cut(s, "=")
	a := Axis(strings.ToUpper(strings.TrimSpace(name)))
	top := MaxLevel(a)
	var l int
	if ok && top >= 0 {
		if _, err := fmt.Sscanf(num, "%d", &l); err == nil && fmt.Sprint(l) == num && l >= 0 && l <= top {
			return a, l, nil
		}
	}
	if top < 0 {
		return "", 0, Errorf(CodeUsage, "need", "no axis named %q in %q", name, s).WithHint("axes are %s", axisNames())
	}
	return "", 0, Errorf(CodeUsage, "need", "%q: the level of %s is a number from 0 to %d", s, a, top).WithHint("for example --need %s=%d", a, top)
}

func axisNames() string {
	names := make([]string, len(Axes))
	for i, a := range Axes {
		names[i] = string(a)
	}
	return strings.Join(names, " ")
}

// Title returns the axis's long name.
func (a Axis) Title() string { return axisTitle[a] }

var axisTitle = map[Axis]string{SRC: "source", PRC: "process", FS: "filesystem", NET: "network", RES: "resources", KRN: "kernel", CPL: "control plane", CHN: "channel", SVC: "services", CRD: "credentials", APR: "approvals", VER: "verification", EVD: "evidence", CLN: "cleanup"}
