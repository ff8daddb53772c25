package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// The single values of a Document. Each reads itself from the text that stands
// in a file and refuses every other; its zero value is "not said".

// Delegatee is a source that the operator may let ask for something.
type Delegatee string

// Delegatees lists them, most trusted first.
var Delegatees = []Delegatee{"user", "agent", "project", "task", "model"}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Delegatee) UnmarshalText(b []byte) error { return oneOf(d, b, Delegatees...) }

// Mode says how a request inside a ceiling is honoured.
type Mode string

// The modes, loosest first.
const (
	ModeAuto    Mode = "auto"    // at once
	ModeTrusted Mode = "trusted" // at once in a repository that a person trusts, else asked
	ModeAsk     Mode = "ask"     // when a person agreed
)

var modes = []Mode{ModeAuto, ModeTrusted, ModeAsk}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Mode) UnmarshalText(b []byte) error { return oneOf(m, b, modes...) }

// Delegation says whether ceilings count at all.
type Delegation string

// The delegations, loosest first.
const (
	DelegationCeilings Delegation = "ceilings"
	DelegationNone     Delegation = "none" // no request of a lower source counts
)

var delegations = []Delegation{DelegationCeilings, DelegationNone}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Delegation) UnmarshalText(b []byte) error { return oneOf(d, b, delegations...) }

// NetMode is how much of the network a task may have at most.
type NetMode string

// The modes, loosest first.
const (
	NetOpen       NetMode = "open"
	NetRegistries NetMode = "registries" // package registries and what was allowed
	NetAllowlist  NetMode = "allowlist"  // what was allowed
	NetNone       NetMode = "none"
)

var netModes = []NetMode{NetOpen, NetRegistries, NetAllowlist, NetNone}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *NetMode) UnmarshalText(b []byte) error { return oneOf(m, b, netModes...) }

// Full says what happens to a task that no budget is left for.
type Full string

// What may happen, loosest first.
const (
	FullWait   Full = "wait"
	FullRefuse Full = "refuse"
)

var fulls = []Full{FullWait, FullRefuse}

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *Full) UnmarshalText(b []byte) error { return oneOf(f, b, fulls...) }

// Assurance is how sure it is that a person accepted something.
type Assurance string

// The assurances, weakest first.
const (
	AssuranceNone     Assurance = "none"
	AssuranceTTY      Assurance = "tty"
	AssuranceOSAuth   Assurance = "os-auth"
	AssuranceHardware Assurance = "hardware"
)

// Assurances lists them, weakest first.
var Assurances = []Assurance{AssuranceNone, AssuranceTTY, AssuranceOSAuth, AssuranceHardware}

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Assurance) UnmarshalText(b []byte) error { return oneOf(a, b, Assurances...) }

// AssuranceAxis is an axis, or "default" for those that are not named.
type AssuranceAxis string

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *AssuranceAxis) UnmarshalText(b []byte) error {
	all := []AssuranceAxis{"default"}
	for _, x := range task.Axes {
		all = append(all, AssuranceAxis(x))
	}
	return oneOf(a, b, all...)
}

// Ability is a thing that a boundary may lend.
type Ability string

// Abilities lists them.
var Abilities = []Ability{"ptrace", "userns"}

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Ability) UnmarshalText(b []byte) error { return oneOf(a, b, Abilities...) }

// oneOf sets to a word of a closed set.
func oneOf[T ~string](to *T, b []byte, all ...T) error {
	if !slices.Contains(all, T(b)) {
		words := make([]string, len(all))
		for i, w := range all {
			words[i] = string(w)
		}
		return &WordError{Word: string(b), Words: words}
	}
	*to = T(b)
	return nil
}

// WordError says that a text is none of a closed set of words.
type WordError struct {
	Word  string
	Words []string
}

// Error implements error.
func (e *WordError) Error() string {
	return fmt.Sprintf("%q is none of %s", clip(e.Word), strings.Join(e.Words, ", "))
}

// clip is a text of others, short enough for a line.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

// Values are one or several values of a characteristic. true and false are
// yes and no.
type Values []string

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Values) UnmarshalText(b []byte) error {
	switch s := string(b); s {
	case "":
		return errors.New("the value is missing")
	case "true":
		*v = Values{"yes"}
	case "false":
		*v = Values{"no"}
	default:
		*v = Values{s}
	}
	return nil
}

// Duration is a time above zero, as 90s, 30m, 8h or 7d.
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	s := string(b)
	if days, ok := strings.CutSuffix(s, "d"); ok && plain(days) {
		if f, err := strconv.ParseFloat(days, 64); err == nil && f > 0 && f <= 36500 {
			*d = Duration(f * 24 * float64(time.Hour))
			return nil
		}
	}
	if plain(s) {
		return fmt.Errorf("%q has no unit: write 90s, 30m, 8h or 7d", clip(s))
	}
	t, err := time.ParseDuration(s)
	if err != nil || t <= 0 {
		return fmt.Errorf("%q is no time above zero: write 90s, 30m, 8h or 7d", clip(s))
	}
	*d = Duration(t)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String renders it as it is written.
func (d Duration) String() string {
	if d > 0 && time.Duration(d)%(24*time.Hour) == 0 {
		return strconv.FormatInt(int64(time.Duration(d)/(24*time.Hour)), 10) + "d"
	}
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Size is a number of bytes above zero, as 512m or 2g; units count in 1024.
type Size int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (z *Size) UnmarshalText(b []byte) error {
	low := strings.ToLower(string(b))
	num := strings.TrimRight(low, "abcdefghijklmnopqrstuvwxyz")
	shift, ok := map[string]int{"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30, "t": 40, "tb": 40, "tib": 40}[low[len(num):]]
	f, err := strconv.ParseFloat(num, 64)
	f *= float64(int64(1) << shift)
	if !ok || !plain(num) || err != nil || f < 1 || f >= math.MaxInt64 {
		return fmt.Errorf("%q is no size above zero: write 512m, 2g or 1.5g", clip(string(b)))
	}
	*z = Size(f)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (z Size) MarshalText() ([]byte, error) { return []byte(z.String()), nil }

// String renders it as it is written.
func (z Size) String() string {
	for _, u := range []struct {
		shift int
		name  string
	}{{40, "t"}, {30, "g"}, {20, "m"}, {10, "k"}} {
		if z > 0 && int64(z)%(1<<u.shift) == 0 {
			return strconv.FormatInt(int64(z)>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(z), 10)
}

// plain admits digits with one decimal point.
func plain(s string) bool {
	digits := strings.Replace(s, ".", "", 1)
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}

// Number is a number above zero.
type Number float64

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Number) UnmarshalText(b []byte) error {
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || !plain(string(b)) || f <= 0 || f > 65536 {
		return fmt.Errorf("%q is no number above 0 and up to 65536", clip(string(b)))
	}
	*n = Number(f)
	return nil
}

// MarshalJSON writes a number.
func (n Number) MarshalJSON() ([]byte, error) { return json.Marshal(float64(n)) }

// Count is a whole number above zero.
type Count int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Count) UnmarshalText(b []byte) error {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || n < 1 || n > 1<<22 || strings.HasPrefix(string(b), "+") {
		return fmt.Errorf("%q is no whole number from 1 to %d", clip(string(b)), 1<<22)
	}
	*c = Count(n)
	return nil
}

// MarshalJSON writes a number.
func (c Count) MarshalJSON() ([]byte, error) { return json.Marshal(int64(c)) }

// Date is a day, as 2027-03-01, or a moment, as 2027-03-01T12:00:00Z. A day ends
// with its last moment in UTC.
type Date struct{ time.Time }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Date) UnmarshalText(b []byte) error {
	s := string(b)
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		d.Time = t.Add(24*time.Hour - time.Nanosecond)
		return nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return fmt.Errorf("%q is no day: write 2027-03-01, or 2027-03-01T12:00:00Z", clip(s))
	}
	d.Time = t.UTC()
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Date) MarshalText() ([]byte, error) {
	if end := d.Add(time.Nanosecond); end.Truncate(24 * time.Hour).Equal(end) {
		return []byte(d.Format(time.DateOnly)), nil
	}
	return []byte(d.Format(time.RFC3339Nano)), nil
}

// Argv is the beginning of a command, as a list of words.
type Argv []string

// Check implements Checker.
func (a Argv) Check() error {
	switch {
	case len(a) == 0:
		return errors.New("the list of words is empty")
	case a[0] == "":
		return errors.New("the program's name is empty")
	case strings.Contains(a[0], "/") && (!strings.HasPrefix(a[0], "/") || path.Clean(a[0]) != a[0]):
		return fmt.Errorf("the program %q: write its name alone, or its absolute path", clip(a[0]))
	}
	for _, w := range a {
		if strings.ContainsRune(w, 0) {
			return errors.New("a word holds a NUL")
		}
	}
	return nil
}

// Method is an HTTP method in capitals.
type Method string

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Method) UnmarshalText(b []byte) error {
	s := string(b)
	if s == "" || len(s) > 20 || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
		return fmt.Errorf("%q is no HTTP method in capitals, such as GET", clip(s))
	}
	*m = Method(s)
	return nil
}

// RepoPattern names repositories: HOST/PATH of their remote called origin, or
// the absolute path of a checkout. A last part /* is one more segment, /** any
// number of them.
type RepoPattern string

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *RepoPattern) UnmarshalText(b []byte) error {
	s := string(b)
	body := strings.TrimSuffix(strings.TrimSuffix(s, "/**"), "/*")
	switch {
	case strings.Contains(s, "://") || strings.Contains(s, "@"):
		return fmt.Errorf("%q: write the host and the path, as %s", clip(s), clip(RepoName(s)))
	case strings.ContainsAny(body, "*?\x00") || body == "" || path.Clean(body) != body || body == "." || strings.HasPrefix(body, ".."):
		return fmt.Errorf("%q is no repository: write github.com/acme/shop, github.com/acme/* or an absolute path", clip(s))
	}
	*p = RepoPattern(s)
	return nil
}

// Matches says whether one of a repository's names is meant.
func (p RepoPattern) Matches(names ...string) bool {
	for _, n := range names {
		if n == "" {
			continue
		}
		if up, ok := strings.CutSuffix(string(p), "/**"); ok {
			if strings.HasPrefix(n, up+"/") {
				return true
			}
			continue
		}
		if up, ok := strings.CutSuffix(string(p), "/*"); ok {
			if rest, ok := strings.CutPrefix(n, up+"/"); ok && rest != "" && !strings.Contains(rest, "/") {
				return true
			}
			continue
		}
		if n == string(p) {
			return true
		}
	}
	return false
}

// RepoName is the name of a remote as a RepoPattern writes it: host in lower
// case and path, without user, port, scheme and a last .git. It is empty for a
// remote that is a path.
func RepoName(remote string) string {
	s := strings.TrimSpace(remote)
	if _, rest, ok := strings.Cut(s, "://"); ok {
		if strings.HasPrefix(s, "file:") {
			return ""
		}
		s = rest
	} else if host, p, ok := strings.Cut(s, ":"); ok && !strings.Contains(host, "/") {
		s = host + "/" + strings.TrimPrefix(p, "/") // host:path, as scp writes it
	} else if !ok {
		return ""
	}
	host, p, ok := strings.Cut(s, "/")
	if i := strings.LastIndex(host, "@"); i >= 0 {
		host = host[i+1:]
	}
	host, _, _ = strings.Cut(host, ":")
	p = strings.TrimSuffix(strings.Trim(path.Clean("/"+p), "/"), ".git")
	if !ok || host == "" || p == "" {
		return ""
	}
	return strings.ToLower(host) + "/" + p
}

// Glob names files of a repository: ** is any number of folders, * any
// characters but /, ? one of them.
type Glob string

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *Glob) UnmarshalText(b []byte) error {
	s := string(b)
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\x00\\[]{}") || strings.Contains(part, "**") && part != "**" {
			return fmt.Errorf("%q names no files: write paths from the top of the repository, with **, * and ?", clip(s))
		}
	}
	*g = Glob(s)
	return nil
}

// Matches says whether the file at name, relative to the top, is meant.
func (g Glob) Matches(name string) bool {
	return globParts(strings.Split(string(g), "/"), strings.Split(name, "/"))
}

func globParts(ps, ns []string) bool {
	// As Match does with characters: the last ** is where a mismatch goes on.
	p, star, at := 0, -1, 0
	for i := 0; i < len(ns); {
		switch {
		case p < len(ps) && ps[p] == "**":
			star, at = p, i
			p++
		case p < len(ps) && Match(ps[p], ns[i]):
			p++
			i++
		case star >= 0:
			at++
			p, i = star+1, at
		default:
			return false
		}
	}
	for p < len(ps) && ps[p] == "**" {
		p++
	}
	return p == len(ps)
}
