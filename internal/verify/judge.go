package verify

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/verify/attack"
)

// refusals are the answers that mean: refused. CONFINED: something is there, and it
// is not the host's.
var refusals = []string{"EPERM", "EACCES", "ENOENT", "ENOSYS", "EROFS", "EAFNOSUPPORT", "ENETUNREACH", "ECONNREFUSED", "CONFINED"}

// alsoRefusals holds further answers that mean the same for some properties.
var alsoRefusals = map[string][]string{
	"P16": {"EISCONN"}, "P17": {"EISCONN"}, // half a pair stays with the other half (gVisor)
	"P27": {"ESRCH"}, "P28": {"ESRCH"}, "P25": {"ESRCH"},
	"P30":  {"ENXIO"},            // there is no terminal
	"P01":  {"EXDEV"},            // nothing can be moved out of what is another file system
	"P63":  {"EXDEV", "ETXTBSY"}, // nothing can be moved over what is another file system; a program that runs
	"P32":  {"ENXIO", "ENODEV"},  // the name leads to no device
	"KEY":  {"ENOKEY"},           // another keyring
	"P41":  {"ETIMEDOUT", "EHOSTUNREACH"},
	"P40":  {"ETIMEDOUT", "EHOSTUNREACH"},
	"META": {"ETIMEDOUT", "EHOSTUNREACH"},
	"P33":  {"ETIMEDOUT", "EHOSTUNREACH"}, // a datagram that nobody answers
}

// lacking are the answers of a kernel or machine that lacks a part.
var lacking = []string{"ENOSYS", "ENOENT", "ENODEV", "ENXIO", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EOPNOTSUPP", "EXDEV", "EFAULT", "ENOTDIR", "EBUSY", "EIO", "CONFINED", "ENOTSUP", "ETXTBSY",
	"EPERM", "EACCES", "ENETUNREACH", "EHOSTUNREACH", "ETIMEDOUT", "ECONNREFUSED"}

// Refused reports whether errno is an answer that means that an attempt at the
// property was refused.
func Refused(prop, errno string) bool {
	return errno != "" && (slices.Contains(refusals, errno) || slices.Contains(alsoRefusals[prop], errno))
}

// Shown is what a control says of an attempt.
type Shown int

// The answers. Only Works shows anything: a refusal inside without it counts as
// nothing.
const (
	Dead  Shown = iota // it does not work outside either, and should
	None               // it was not done outside, or cannot work here
	Lacks              // this kernel or machine has not what it needs
	Works
)

// Control says what out, the same attempt outside, is worth. There may be none. root
// says that it was made as root; filtered, that it was made under a system call filter.
func Control(out *attack.Outcome, root, filtered bool) (Shown, string) {
	switch {
	case out == nil:
		return None, "the target exists inside only"
	case out.Left != "":
		return None, "not done outside: " + out.Left
	case out.Errno == "":
		return Works, ""
	case out.Root && !root:
		return None, "outside only root can do it, this is an unprivileged user"
	case out.Kernel && slices.Contains(lacking, out.Errno):
		return Lacks, "this kernel or machine has none, or refuses it to everybody: " + out.Errno
	case filtered:
		return None, "verify itself runs under a system call filter, which answers " + out.Errno
	}
	return Dead, "it fails outside too: " + strings.TrimSpace(out.Errno+" "+clean(out.Detail))
}

// Outcomes reads what the hostile program printed. Of two lines about one attempt
// the first counts.
func Outcomes(text []byte) (map[string]attack.Outcome, error) {
	all := map[string]attack.Outcome{}
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var o attack.Outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil || o.Prop == "" {
			return all, fmt.Errorf("the hostile program printed %q", clean(line))
		}
		if _, have := all[o.Prop+" "+o.Name]; !have {
			all[o.Prop+" "+o.Name] = o
		}
	}
	return all, nil
}

// sides are the attempts of one run.
type sides struct {
	inside, control map[string]attack.Outcome
	root, filtered  bool
	// promised are the levels that the boundary promises; nil: it is held to all.
	promised task.Vector
	// touched names, by property, the sentinels that were reached from inside, as the
	// host saw.
	touched map[string][]string
}

// judge says what came of one property.
func (s *sides) judge(p attack.Property) task.VerifyProbe {
	v := task.VerifyProbe{ID: p.ID, Axis: p.Axis, Text: p.Text, Control: p.Control}
	var keys []string
	for k, o := range s.inside {
		if o.Prop == p.ID {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	openAt := 0
	whyNot, odd, left := map[string]int{}, []string{}, map[string]int{}
	for _, k := range keys {
		in := s.inside[k]
		if in.Left != "" {
			left[in.Left]++
			continue
		}
		v.Attempts++
		shown, why := Control(find(s.control, k), s.root, s.filtered)
		switch {
		case in.Errno == "":
			level := p.Level
			if in.Level > 0 {
				level = in.Level
			}
			if s.promised != nil && s.promised[p.Axis] < level {
				v.Open, openAt = append(v.Open, clean(in.Name)), max(openAt, level)
			} else {
				v.Broken = append(v.Broken, clean(in.Name))
			}
		case Refused(p.ID, in.Errno):
			v.Refused++
			if shown == Works {
				v.Shown++
			} else {
				whyNot[why]++
			}
		case shown == Works:
			odd = append(odd, fmt.Sprintf("%s: ended with %s inside, which is no refusal", clean(in.Name), clean(in.Errno)))
		default:
			whyNot[why]++ // it ended in the same way, or nothing is known of it
		}
	}
	for _, t := range s.touched[p.ID] {
		v.Seen = append(v.Seen, clean(t))
	}
	v.Unshown = v.Refused - v.Shown
	v.NotTried = reasons(left)
	switch {
	case len(v.Broken) > 0:
		v.Result = task.VerifyBroken
		v.Why = fmt.Sprintf("%d of %d attempts worked", len(v.Broken), v.Attempts)
	case len(v.Seen) > 0 && len(v.Open) == 0:
		v.Result, v.Why = task.VerifyBroken, "the host saw a sentinel reached, whatever the inside said"
	case len(v.Open) > 0:
		v.Result = task.VerifyOpen
		v.Why = fmt.Sprintf("%d of %d attempts worked; %s %d would rule them out, and %d is promised", len(v.Open), v.Attempts, p.Axis, openAt, max(s.promised[p.Axis], 0))
	case v.Attempts == 0:
		v.Result, v.Why = task.VerifyNotTried, "nothing of it was tried"
		if len(v.NotTried) > 0 {
			v.Why = v.NotTried[0]
		}
	case len(odd) > 0:
		v.Result, v.Why = task.VerifyNotShown, odd[0]
	case v.Shown == 0:
		v.Result, v.Why = task.VerifyNotShown, "no attempt works outside either"
		if r := reasons(whyNot); len(r) > 0 {
			v.Why = r[0]
		}
	default:
		v.Result = task.VerifyHeld
	}
	v.Unclear = odd
	v.NoControl = reasons(whyNot)
	return v
}

func find(m map[string]attack.Outcome, key string) *attack.Outcome {
	if o, ok := m[key]; ok {
		return &o
	}
	return nil
}

// reasons lists what was counted, the most frequent first.
func reasons(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if m[a] != m[b] {
			return m[b] - m[a]
		}
		return strings.Compare(a, b)
	})
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%d: %s", m[k], k)
	}
	return keys
}

// clean makes text from inside fit to be printed: one line, printable, short.
func clean(s string) string {
	const limit = 200
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
