package policy

import (
	"slices"
	"strings"
)

// In says whether every point of a is a point of b. It answers exactly: no
// pattern is empty, and each part of one is bounded on its own.
func (a *Egress) In(b *Egress) bool {
	switch {
	case a.Host == "" && a.CIDR.IsZero() || b.Host == "" && b.CIDR.IsZero():
		return false
	case b.Host != "" && (a.Host == "" || !a.Host.in(b.Host)):
		return false
	case !b.CIDR.IsZero() && (a.CIDR.IsZero() || a.CIDR.Bits() < b.CIDR.Bits() || !b.CIDR.Contains(a.CIDR.Addr())):
		return false
	case !portsIn(a.Ports, b.Ports):
		return false
	case len(b.Methods) > 0 && (len(a.Methods) == 0 || slices.ContainsFunc(a.Methods, func(m Method) bool { return !slices.Contains(b.Methods, m) })):
		return false
	}
	return b.Path == "" || below(string(a.Path), string(b.Path))
}

// portsIn is exact also where one range lies in two that touch.
func portsIn(a, b []Port) bool {
	if len(b) == 0 {
		return true
	}
	if len(a) == 0 {
		a = []Port{{1, 65535}}
	}
	b = slices.Clone(b)
	slices.SortFunc(b, func(x, y Port) int { return int(x.Low) - int(y.Low) })
	var whole []Port
	for _, p := range b {
		if n := len(whole); n > 0 && int(p.Low) <= int(whole[n-1].High)+1 {
			whole[n-1].High = max(whole[n-1].High, p.High)
			continue
		}
		whole = append(whole, p)
	}
	for _, p := range a {
		if !slices.ContainsFunc(whole, func(w Port) bool { return w.Low <= p.Low && p.High <= w.High }) {
			return false
		}
	}
	return true
}

// In says whether everything that a allows b allows too.
func (a *Mount) In(b *Mount) bool {
	return a.Path != "" && b.Path.holds(a.Path) && (a.Mode != AccessRW || b.Mode == AccessRW)
}

// In says whether every command of a is one of b.
func (a *Command) In(b *Command) bool {
	if len(a.Argv) == 0 || len(b.Argv) == 0 || len(a.Argv) < len(b.Argv) || !slices.Equal(a.Argv[1:len(b.Argv)], b.Argv[1:]) {
		return false
	}
	// A name is the one on the PATH, which no absolute path is known to be.
	return a.Argv[0] == b.Argv[0]
}

// In says whether every single pattern of a lies in a single one of b. What it
// does not find contained may still be, in several together: then it is to be
// written as several.
func (a *Authority) In(b *Authority) bool { return len(a.Outside(b)) == 0 }

// Outside returns those items of a that do not lie in one of b.
func (a *Authority) Outside(b *Authority) []Item {
	var out []Item
	for _, it := range a.Items() {
		if !slices.ContainsFunc(b.Items(), it.In) {
			out = append(out, it)
		}
	}
	return out
}

// Item is one pattern of an Authority; exactly one part of it is set.
type Item struct {
	Egress     *Egress  `json:"egress,omitempty"`
	Mount      *Mount   `json:"mount,omitempty"`
	Env        Name     `json:"env,omitempty"`
	Credential Name     `json:"credential,omitempty"`
	Grant      Ability  `json:"grant,omitempty"`
	Command    *Command `json:"command,omitempty"`
}

// Items lists the patterns of an Authority; none for nil.
func (a *Authority) Items() []Item {
	if a == nil {
		return nil
	}
	var out []Item
	for i := range a.Egress {
		out = append(out, Item{Egress: &a.Egress[i]})
	}
	for i := range a.Mounts {
		out = append(out, Item{Mount: &a.Mounts[i]})
	}
	for _, n := range a.Env {
		out = append(out, Item{Env: n})
	}
	for _, n := range a.Credentials {
		out = append(out, Item{Credential: n})
	}
	for _, g := range a.Grants {
		out = append(out, Item{Grant: g})
	}
	for i := range a.Commands {
		out = append(out, Item{Command: &a.Commands[i]})
	}
	return out
}

// In says whether all of it is in other.
func (it Item) In(other Item) bool {
	switch {
	case it.Egress != nil:
		return other.Egress != nil && it.Egress.In(other.Egress)
	case it.Mount != nil:
		return other.Mount != nil && it.Mount.In(other.Mount)
	case it.Env != "":
		return other.Env != "" && it.Env.in(other.Env)
	case it.Credential != "":
		return other.Credential != "" && it.Credential.in(other.Credential)
	case it.Grant != "":
		return it.Grant == other.Grant
	case it.Command != nil:
		return other.Command != nil && it.Command.In(other.Command)
	}
	return false
}

// Kind is the key of the item's list in a file.
func (it Item) Kind() string {
	switch {
	case it.Egress != nil:
		return "egress"
	case it.Mount != nil:
		return "mounts"
	case it.Env != "":
		return "env"
	case it.Credential != "":
		return "credentials"
	case it.Grant != "":
		return "grants"
	}
	return "commands"
}

// String renders it on one line, without its kind.
func (it Item) String() string {
	switch {
	case it.Egress != nil:
		return it.Egress.String()
	case it.Mount != nil:
		return it.Mount.String()
	case it.Env != "":
		return string(it.Env)
	case it.Credential != "":
		return string(it.Credential)
	case it.Grant != "":
		return string(it.Grant)
	case it.Command != nil:
		return it.Command.String()
	}
	return "nothing"
}

// key is equal for equal items, and for no others.
func (it Item) key() string { return it.Kind() + " " + it.String() }

// Add puts an item into the Authority.
func (a *Authority) Add(it Item) {
	switch {
	case it.Egress != nil:
		a.Egress = append(a.Egress, *it.Egress)
	case it.Mount != nil:
		a.Mounts = append(a.Mounts, *it.Mount)
	case it.Env != "":
		a.Env = append(a.Env, it.Env)
	case it.Credential != "":
		a.Credentials = append(a.Credentials, it.Credential)
	case it.Grant != "":
		a.Grants = append(a.Grants, it.Grant)
	case it.Command != nil:
		a.Commands = append(a.Commands, *it.Command)
	}
}

// expand replaces what a file may write for the owner's home and the hosts of
// the repository's remotes. What stands for nothing is left out.
func (it Item) expand(home string, origins []string) []Item {
	switch {
	case it.Mount != nil:
		m := *it.Mount
		if m.Path = m.Path.expand(home); m.Path == "" {
			return nil
		}
		return []Item{{Mount: &m}}
	case it.Egress != nil && it.Egress.Host == HostOrigin:
		var out []Item
		for _, o := range origins {
			e := *it.Egress
			if o = strings.ToLower(o); hostName(o) != nil {
				continue
			}
			e.Host = Host(o)
			out = append(out, Item{Egress: &e})
		}
		return out
	}
	return []Item{it}
}
