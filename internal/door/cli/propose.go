package cli

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/door"
)

// proposal is what would have let out what a task asked for and did not get.
// Nothing of it is in force.
type proposal struct {
	Schema string     `json:"schema"` // "caisson.proposal/1"
	Task   string     `json:"task"`
	Rules  []proposed `json:"rules"`
	// Names were only asked for, by programs that know no proxy: at which port they
	// would have been reached nobody knows.
	Names []string `json:"names"`
	// Addresses were refused because of what they are, though a rule allows the name
	// that led there, or the range.
	Addresses []astray `json:"addresses"`

	begun map[string]string // where crossings lead that are not over
	noWay bool
}

// astray is one destination that was refused because of its address.
type astray struct {
	To    string `json:"to"`
	Why   string `json:"why"`
	Times int64  `json:"times"`
}

// proposed is one destination that was refused because no rule allows it.
type proposed struct {
	Host string `json:"host,omitempty"`
	CIDR string `json:"cidr,omitempty"` // instead, of an address
	Port int    `json:"port"`
	// Method and Path are those of a request inside TLS that is read: the rest of its
	// host is not what was asked for.
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	Times  int64  `json:"times"`
}

// lost notes a destination that was refused because of its address.
func (p *proposal) lost(to, why string, times int64) {
	i := slices.IndexFunc(p.Addresses, func(x astray) bool { return x.To == to && x.Why == why })
	if i < 0 {
		i = len(p.Addresses)
		p.Addresses = append(p.Addresses, astray{To: to, Why: why})
	}
	p.Addresses[i].Times += times
}

// learn adds what an event tells. What was refused for another reason than a
// missing rule is not proposed: an address that is special is only named, a form
// that cannot be read and a server name that is another are left out.
func (p *proposal) learn(e door.Event) {
	b := e.Body
	if e.Task != "" {
		p.Task = string(e.Task) // the record's own, whatever it was called by
	}
	id := number(b["crossing"])
	switch {
	case e.Type == "egress.ended":
		if to := p.begun[id]; text1(b, "reason") == "address" {
			p.lost(to, text1(b, "text"), 1)
		}
		delete(p.begun, id)
	case e.Type == "egress.decided" && text1(b, "verdict") == "allow" && id != "":
		if p.begun == nil {
			p.begun = map[string]string{}
		}
		p.begun[id] = text1(b, "to")
	case e.Type == "egress.decided" && text1(b, "reason") == "address":
		p.lost(text1(b, "to"), text1(b, "rule"), again(b))
	}
	if e.Type != "egress.decided" || text1(b, "verdict") != "deny" || text1(b, "reason") != "rule" || strings.HasPrefix(text1(b, "rule"), "denied") {
		return
	}
	to := text1(b, "to")
	times := again(b)
	if text1(b, "proto") == "dns" {
		if to != "" && !slices.Contains(p.Names, to) {
			p.Names = append(p.Names, to)
		}
		return
	}
	host, port, err := net.SplitHostPort(to)
	n, perr := strconv.Atoi(port)
	if err != nil || perr != nil || host == "" {
		return
	}
	r := proposed{Host: host, Port: n}
	if a, err := netip.ParseAddr(host); err == nil {
		r.Host, r.CIDR = "", netip.PrefixFrom(a, a.BitLen()).String()
	}
	if text1(b, "proto") == "https" {
		r.Method = text1(b, "method")
		if s := text1(b, "path"); strings.HasPrefix(s, "/") && strings.Trim(s, plainPath) == "" && strings.TrimSuffix(path.Clean(s), "/") == strings.TrimSuffix(s, "/") {
			r.Path = s // of any other nobody can make a rule
		}
	}
	i := slices.IndexFunc(p.Rules, func(x proposed) bool {
		return x.Host == r.Host && x.CIDR == r.CIDR && x.Port == r.Port && x.Method == r.Method && x.Path == r.Path
	})
	if i < 0 {
		i = len(p.Rules)
		p.Rules = append(p.Rules, r)
	}
	p.Rules[i].Times += times
}

// again is how often something happened that an event tells of: the first time is an
// event of its own.
func again(b map[string]any) int64 {
	if n, ok := asInt(b["again"]); ok && n > 0 {
		return n
	}
	return 1
}

// timesText is how often, in words.
func timesText(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// plainPath is what a path consists of that needs no quotes anywhere.
const plainPath = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._~-"

// allow is the value of --allow for it.
func (r proposed) allow() string {
	host := r.Host
	if host == "" {
		host = r.CIDR
		if p, err := netip.ParsePrefix(host); err == nil {
			host = p.Addr().String()
		}
	}
	at := net.JoinHostPort(host, strconv.Itoa(r.Port))
	if r.Method != "" {
		return r.Method + " https://" + at + r.Path
	}
	return at
}

// write renders it as a part of a policy file, to be read and cut down by a person.
func (p *proposal) write(w io.Writer) error {
	// Names that a rule for a port would cover are no news.
	names := slices.DeleteFunc(slices.Clone(p.Names), func(n string) bool {
		return slices.ContainsFunc(p.Rules, func(r proposed) bool { return r.Host == n })
	})
	var b strings.Builder
	fmt.Fprintf(&b, "# What task %s asked for and no rule allows. Nothing of this is in force: read it,\n# leave out what nobody needs, and put the rest into .caisson.yaml, your own policy,\n# or on the command line.\n", p.Task)
	if len(p.Rules) == 0 && len(names) == 0 {
		switch {
		case len(p.Addresses) > 0:
			b.WriteString("# No rule is missing but about addresses:\n")
		case p.noWay:
			b.WriteString("# There is nothing: this task has no way out, so nothing inside could ask. A task with\n# `--net allowlist` records what it is refused.\n")
		default:
			b.WriteString("# There is nothing.\n")
		}
	}
	if len(p.Rules) > 0 {
		b.WriteString("version: 1\nrequest:\n  egress:\n")
	}
	for _, r := range p.Rules {
		what := "host: " + r.Host
		if r.Host == "" {
			what = "cidr: \"" + r.CIDR + "\""
		}
		ports := fmt.Sprintf("ports: [%d]", r.Port)
		if r.Method != "" {
			ports += ", methods: [" + clean(r.Method) + "]"
			if r.Path != "" {
				ports += ", path: " + clean(r.Path)
			}
		}
		flag := clean(r.allow())
		if strings.Contains(flag, " ") {
			flag = "'" + flag + "'"
		}
		fmt.Fprintf(&b, "    - {%s, %s} # asked for %s; --allow %s\n", clean(what), ports, timesText(r.Times), flag)
	}
	for _, n := range names {
		fmt.Fprintf(&b, "# %s: its address was asked for by a program that knows no proxy; perhaps --allow %s:443\n", clean(n), clean(n))
	}
	for _, x := range p.Addresses {
		fmt.Fprintf(&b, "# %s was refused %s because of its address: %s\n", clean(x.To), timesText(x.Times), clean(x.Why))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
