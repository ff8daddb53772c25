package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A pattern stands for a set of points: of what can be reached. Covers says that
// a point is in the set, and Touches that some of it may be: a point may be known
// in part only, such as a connection of which nobody can read the method. What
// is granted must cover a point, what is denied need only touch it.

// Host is a set of host names: one name, *.NAME (one label more), **.NAME (any
// number of labels more, at least one), ** (every name), or @origin (the host of
// the repository's remote, replaced before it is used).
type Host string

// HostAny is every name, HostOrigin the repository's remote.
const (
	HostAny    Host = "**"
	HostOrigin Host = "@origin"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Host) UnmarshalText(b []byte) error {
	s := strings.ToLower(string(b))
	if Host(s) == HostAny || Host(s) == HostOrigin {
		*h = Host(s)
		return nil
	}
	if s == "*" {
		return errors.New(`"*": write ** for every host, *.example.com for one label more`)
	}
	name := strings.TrimPrefix(strings.TrimPrefix(s, "**."), "*.")
	if strings.HasPrefix(s, "**.*.") {
		name = s
	}
	if err := hostName(name); err != nil {
		return err
	}
	*h = Host(strings.TrimSuffix(s, "."))
	return nil
}

// hostName checks a plain name in lower case. A last label that is a number is
// how addresses are written.
func hostName(s string) error {
	name := strings.TrimSuffix(s, ".")
	if name == "" || len(name) > 253 {
		return fmt.Errorf("%q is no host name", clip(s))
	}
	if _, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return fmt.Errorf("%q is an address: write cidr", clip(s))
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" || label[0] == '-' || label[len(label)-1] == '-' {
			if strings.Contains(s, "*") {
				return fmt.Errorf("%q: a * stands only at the front, as *.example.com or **.example.com", clip(s))
			}
			return fmt.Errorf("%q is no host name: letters, digits and - between dots (others in their xn-- form), without port or scheme", clip(s))
		}
		last = label
	}
	if last[0] >= '0' && last[0] <= '9' && (strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")) {
		return fmt.Errorf("%q is read as an address by some programs: write cidr", clip(s))
	}
	return nil
}

// Covers says whether the name is in the set.
func (h Host) Covers(name string) bool {
	switch {
	case name == "" || h == "" || h == HostOrigin:
		return false
	case h == HostAny:
		return true
	}
	if up, ok := strings.CutPrefix(string(h), "**."); ok {
		return strings.HasSuffix(name, "."+up) && len(name) > len(up)+1
	}
	if up, ok := strings.CutPrefix(string(h), "*."); ok {
		label, rest, _ := strings.Cut(name, ".")
		return label != "" && rest == up
	}
	return name == string(h)
}

// in says whether every name of h is in g.
func (h Host) in(g Host) bool {
	switch {
	case h == g || g == HostAny:
		return true
	case h == HostAny || h == HostOrigin || g == HostOrigin:
		return false
	}
	up, deep := strings.CutPrefix(string(h), "**.")
	if !deep {
		if up, one := strings.CutPrefix(string(h), "*."); one {
			gup, ok := strings.CutPrefix(string(g), "**.")
			return ok && (up == gup || strings.HasSuffix(up, "."+gup))
		}
		return g.Covers(string(h))
	}
	gup, ok := strings.CutPrefix(string(g), "**.")
	return ok && strings.HasSuffix(up, "."+gup)
}

// CIDR is a set of addresses: 10.0.0.0/8, or one address.
type CIDR struct{ netip.Prefix }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *CIDR) UnmarshalText(b []byte) error {
	s := string(b)
	p, err := netip.ParsePrefix(s)
	if a, aerr := netip.ParseAddr(s); aerr == nil && a.Zone() == "" {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	switch {
	case err != nil || !p.IsValid():
		return fmt.Errorf("%q is no range of addresses such as 10.0.0.0/8", clip(s))
	case p.Addr().Is4In6():
		return fmt.Errorf("%q is an IPv4 address in IPv6 clothes: write it as IPv4", clip(s))
	case p.Masked() != p:
		return fmt.Errorf("%q has bits below its length: write %s", clip(s), p.Masked())
	}
	c.Prefix = p
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (c CIDR) MarshalText() ([]byte, error) {
	if !c.IsValid() {
		return nil, nil
	}
	return []byte(c.String()), nil
}

// IsZero says that nothing is given.
func (c CIDR) IsZero() bool { return c == CIDR{} }

// Port is one port, or a range of them as 8000-8100.
type Port struct{ Low, High uint16 }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Port) UnmarshalText(b []byte) error {
	low, high, two := strings.Cut(string(b), "-")
	if !two {
		high = low
	}
	l, err := portNumber(low)
	h, err2 := portNumber(high)
	if err != nil || err2 != nil || l > h {
		return fmt.Errorf("%q is no port such as 443, and no range such as 8000-8100", clip(string(b)))
	}
	*p = Port{l, h}
	return nil
}

func portNumber(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strings.HasPrefix(s, "+") {
		return 0, errors.New("no port")
	}
	return uint16(n), nil
}

// MarshalJSON writes a number, or a range as a text.
func (p Port) MarshalJSON() ([]byte, error) {
	if p.Low == p.High {
		return json.Marshal(p.Low)
	}
	return json.Marshal(p.String())
}

// String renders it as it is written.
func (p Port) String() string {
	if p.Low == p.High {
		return strconv.Itoa(int(p.Low))
	}
	return fmt.Sprintf("%d-%d", p.Low, p.High)
}

// Path is an absolute path that stands for itself and everything below it. ~ is
// the home of the task's owner, replaced before it is used.
type Path string

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Path) UnmarshalText(b []byte) error {
	s := string(b)
	body := s
	if s == "~" {
		body = "/~"
	} else if rest, ok := strings.CutPrefix(s, "~/"); ok {
		body = "/" + rest
	}
	switch {
	case strings.HasPrefix(s, "~") && body == s:
		return fmt.Errorf("%q: ~ alone is the home of the task's owner, and of nobody else", clip(s))
	case !strings.HasPrefix(body, "/"):
		return fmt.Errorf("%q is no absolute path", clip(s))
	case strings.ContainsAny(body, "*?"):
		return fmt.Errorf("%q: a path stands for all that is below it; it takes no * and ?", clip(s))
	case strings.ContainsRune(body, 0), path.Clean(body) != body && path.Clean(body)+"/" != body, body == "/" && s != "/":
		return fmt.Errorf("%q is not in its plain form: write %s", clip(s), clip(path.Clean(s)))
	}
	if len(s) > 1 {
		s = strings.TrimSuffix(s, "/")
	}
	*p = Path(s)
	return nil
}

// expand puts a home in the place of ~. Without a home, or with one that is no
// place of its own, it stands for nothing.
func (p Path) expand(home string) Path {
	rest, ok := strings.CutPrefix(string(p), "~")
	if !ok {
		return p
	}
	if !path.IsAbs(home) || path.Clean(home) == "/" {
		return ""
	}
	return Path(path.Clean(home) + rest)
}

// holds says whether other is p or below it.
func (p Path) holds(other Path) bool {
	return below(string(other), string(p))
}

func below(name, dir string) bool {
	if dir == "" || name == "" || strings.HasPrefix(dir, "~") || strings.HasPrefix(name, "~") {
		return dir != "" && name != "" && (name == dir || strings.HasPrefix(name, dir+"/"))
	}
	return dir == "/" && strings.HasPrefix(name, "/") || name == dir || strings.HasPrefix(name, dir+"/")
}

// Name is a set of names: one of them, or a beginning and *.
type Name string

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Name) UnmarshalText(b []byte) error {
	s := string(b)
	body := strings.TrimSuffix(s, "*")
	switch {
	case s == "":
		return errors.New("the name is empty")
	case strings.Trim(body, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/@") != "" || len(s) > 256:
		return fmt.Errorf("%q is no name; a * stands only at its end", clip(s))
	}
	*n = Name(s)
	return nil
}

// Covers says whether the name is in the set.
func (n Name) Covers(name string) bool {
	if up, ok := strings.CutSuffix(string(n), "*"); ok {
		return name != "" && strings.HasPrefix(name, up)
	}
	return name != "" && name == string(n)
}

func (n Name) in(m Name) bool {
	up, ok := strings.CutSuffix(string(m), "*")
	return n == m || n != "" && ok && strings.HasPrefix(strings.TrimSuffix(string(n), "*"), up)
}

// Egress is a set of network endpoints. A part that is not given is any; a host
// or a cidr is always given.
type Egress struct {
	Host    Host     `json:"host,omitempty"`
	CIDR    CIDR     `json:"cidr,omitzero"`
	Ports   []Port   `json:"ports,omitempty"`
	Methods []Method `json:"methods,omitempty"`
	Path    URLPath  `json:"path,omitempty"`
}

// Check implements Checker.
func (e *Egress) Check() error {
	if e.Host == "" && e.CIDR.IsZero() {
		return errors.New(`it names neither host nor cidr; every host name is host: "**"`)
	}
	return nil
}

// URLPath is a path of a URL that stands for itself and everything below it.
type URLPath string

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *URLPath) UnmarshalText(b []byte) error {
	s := string(b)
	if !plainURLPath(s) {
		return fmt.Errorf("%q is no path of a URL in its plain form: absolute, without //, .., %%2f, query", clip(s))
	}
	if len(s) > 1 {
		s = strings.TrimSuffix(s, "/")
	}
	*p = URLPath(s)
	return nil
}

// plainURLPath admits a path that every server reads the same way.
func plainURLPath(s string) bool {
	if !strings.HasPrefix(s, "/") || path.Clean(s) != s && path.Clean(s)+"/" != s {
		return false
	}
	for _, c := range s {
		if c <= ' ' || c >= 0x7f || strings.ContainsRune(`\%?#;*`, c) {
			return false
		}
	}
	return true
}

// EgressPoint is one connection or request. Addr is invalid where no address is
// known, Method and Path are empty where nobody can read them, Host where an
// address is asked for directly.
type EgressPoint struct {
	Host   string
	Addr   netip.Addr
	Port   uint16
	Method string
	Path   string
	Act    string // of a request that changes what others see: what it does; see OutwardRules
}

// Covers says whether all that p can be is in the set.
func (e *Egress) Covers(p EgressPoint) bool {
	return e.address(p) && e.port(p.Port) &&
		(len(e.Methods) == 0 || slices.Contains(e.Methods, Method(p.Method))) &&
		(e.Path == "" || plainURLPath(p.Path) && below(p.Path, string(e.Path)))
}

// Touches says whether some of what p can be is in the set. A name that was not
// resolved touches no range of addresses: hold it against them when it was.
func (e *Egress) Touches(p EgressPoint) bool {
	return e.address(p) && e.port(p.Port) &&
		(len(e.Methods) == 0 || p.Method == "" || slices.Contains(e.Methods, Method(p.Method))) &&
		(e.Path == "" || !plainURLPath(p.Path) || below(p.Path, string(e.Path)))
}

func (e *Egress) address(p EgressPoint) bool {
	return (e.Host != "" || !e.CIDR.IsZero()) && (e.Host == "" || e.Host.Covers(strings.TrimSuffix(strings.ToLower(p.Host), "."))) &&
		(e.CIDR.IsZero() || p.Addr.IsValid() && e.CIDR.Contains(p.Addr.Unmap().WithZone("")))
}

func (e *Egress) port(n uint16) bool {
	return n > 0 && (len(e.Ports) == 0 || slices.ContainsFunc(e.Ports, func(p Port) bool { return p.Low <= n && n <= p.High }))
}

// String renders it on one line.
func (e Egress) String() string {
	var parts []string
	if e.Host != "" {
		parts = append(parts, string(e.Host))
	}
	if !e.CIDR.IsZero() {
		parts = append(parts, e.CIDR.String())
	}
	s := strings.Join(parts, " at ")
	if len(e.Ports) > 0 {
		s += ":" + joined(e.Ports, ",")
	}
	if e.Path != "" {
		s += " " + string(e.Path)
	}
	if len(e.Methods) > 0 {
		s = joined(e.Methods, ",") + " " + s
	}
	return s
}

func joined[T any](l []T, sep string) string {
	out := make([]string, len(l))
	for i, v := range l {
		out[i] = fmt.Sprint(v)
	}
	return strings.Join(out, sep)
}

// Access is what a mount allows.
type Access string

// The accesses; the zero value is read-only where something is granted, and any
// access where something is denied.
const (
	AccessRO Access = "ro"
	AccessRW Access = "rw"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Access) UnmarshalText(b []byte) error { return oneOf(a, b, AccessRO, AccessRW) }

// Mount is a path of the host, with what is below it.
type Mount struct {
	Path Path   `json:"path"`
	Mode Access `json:"mode,omitempty"`
}

// UnmarshalText implements encoding.TextUnmarshaler: a path alone.
func (m *Mount) UnmarshalText(b []byte) error { return m.Path.UnmarshalText(b) }

// Check implements Checker.
func (m *Mount) Check() error {
	if m.Path == "" {
		return errors.New("the path is missing")
	}
	return nil
}

// MountPoint is one path that is to be seen inside. Path is absolute, with links
// resolved.
type MountPoint struct {
	Path  string
	Write bool
}

// Covers says whether the set allows p.
func (m *Mount) Covers(p MountPoint) bool {
	return plainPath(p.Path) && m.Path.holds(Path(p.Path)) && (!p.Write || m.Mode == AccessRW)
}

// Touches says whether a denial of the set stops p: also when p is above it, for
// then it would come along. A denial of rw stops writing only.
func (m *Mount) Touches(p MountPoint) bool {
	if m.Path == "" || m.Mode == AccessRW && !p.Write {
		return false
	}
	return !plainPath(p.Path) || m.Path.holds(Path(p.Path)) || Path(p.Path).holds(m.Path)
}

func plainPath(p string) bool { return strings.HasPrefix(p, "/") && path.Clean(p) == p }

// String renders it on one line.
func (m Mount) String() string {
	if m.Mode == "" {
		return string(m.Path)
	}
	return string(m.Path) + " " + string(m.Mode)
}

// Command is a set of commands that begin with the same words. A program without
// a slash is the one of that name on the person's PATH.
type Command struct {
	Argv Argv `json:"argv"`
}

// Check implements Checker.
func (c *Command) Check() error { return c.Argv.Check() }

// CommandPoint is one command. Program is the absolute path that it was resolved
// to, empty when it was not; Own says that it was found on the person's PATH and
// outside the task's files. Opaque says that it runs what its words do not show,
// Partial that more words follow, which can be anything. Plain is Argv without
// the options, and their values, that stand before the first other word; it may
// be nil.
type CommandPoint struct {
	Argv    []string
	Plain   []string
	Program string
	Own     bool
	Opaque  bool
	Partial bool
	Why     string // it is opaque, for a person
}

// Covers says whether p is in the set. An opaque command never is.
func (c *Command) Covers(p CommandPoint) bool {
	if p.Opaque || len(p.Argv) == 0 || p.Program == "" || !wordsBegin(p.Argv, c.Argv) {
		return false
	}
	if strings.HasPrefix(c.Argv[0], "/") {
		return p.Program == c.Argv[0]
	}
	return p.Own && path.Base(p.Program) == c.Argv[0]
}

// Touches says whether p may be in the set.
func (c *Command) Touches(p CommandPoint) bool {
	if len(c.Argv) == 0 {
		return false
	}
	if p.Opaque || len(p.Argv) == 0 {
		return true // nobody can tell
	}
	if !wordsBegin(p.Argv, c.Argv) {
		return false
	}
	if want := c.Argv[0]; strings.HasPrefix(want, "/") {
		// Not resolved: it may be that one.
		return p.Program == want || p.Program == "" && path.Base(p.Argv[0]) == path.Base(want)
	}
	return path.Base(p.Program) == c.Argv[0] || path.Base(p.Argv[0]) == c.Argv[0]
}

// wordsBegin compares all words but the program's name.
func wordsBegin(argv []string, want Argv) bool {
	return len(want) > 0 && len(argv) >= len(want) && slices.Equal(argv[1:len(want)], want[1:])
}

// String renders it on one line.
func (c Command) String() string { return strings.Join(c.Argv, " ") }

// ParseEgress reads a question about the network: HOST:PORT, or METHOD URL, where
// the method may be left out. An address takes the place of a name.
func ParseEgress(s string) (EgressPoint, error) {
	no := func(why string) (EgressPoint, error) {
		return EgressPoint{}, fmt.Errorf("%q is no HOST:PORT and no METHOD URL: %s", clip(s), why)
	}
	var p EgressPoint
	rest := s
	if method, u, ok := strings.Cut(s, " "); ok {
		var m Method
		if m.UnmarshalText([]byte(method)) != nil {
			return no("the method is in capitals")
		}
		p.Method, rest = string(m), u
	}
	if u, err := url.Parse(rest); strings.Contains(rest, "://") {
		if err != nil || u.User != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return no("the URL begins with http:// or https:// and names a host")
		}
		if p.Path = u.EscapedPath(); p.Path == "" {
			p.Path = "/"
		}
		rest = u.Host
		if u.Port() == "" {
			rest += map[string]string{"https": ":443", "http": ":80"}[u.Scheme]
		}
	} else if p.Method != "" {
		return no("a method comes with a URL")
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		return no("the port is missing")
	}
	if p.Port, err = portNumber(port); err != nil {
		return no("the port is a number from 1 to 65535")
	}
	if a, err := netip.ParseAddr(host); err == nil {
		p.Addr = a.Unmap().WithZone("")
		return p, nil
	}
	p.Host = strings.TrimSuffix(strings.ToLower(host), ".")
	if err := hostName(p.Host); err != nil {
		return EgressPoint{}, err
	}
	return p, nil
}
