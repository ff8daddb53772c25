package broker

import (
	"strings"
	"time"
)

// Handle is one secret, and what it may be used for. The zero Handle is lent to
// nothing: it has no destination.
type Handle struct {
	Name string
	Prod bool // of class prod: whatever Approve says, each use is asked about
	From Source
	As   Manner
	To   []Dest

	Env  []string // variables that hold the placeholder inside
	Set  map[string]string
	Form string // how the placeholder begins

	Keys     []string // of ssh: those that are lent, by fingerprint or comment; none: the one that was read
	HostKeys []string // of ssh: public keys of its destinations; none: those that are known to the person
	Sign     []string // of ssh: namespaces of documents that may be signed

	Header          string // the field that it is given in
	User            string // of basic, git and ssh; empty: as the program says
	Region, Service string // of sigv4
	Always          bool   // given also where the field is not there

	Lifetime time.Duration // how long a secret is held that was read
	Uses     int           // the most of one task; 0: without a bound
	Approve  Approve
}

// Manner is how a secret is given.
type Manner string

// The manners of HTTP, and the two that others carry out.
const (
	Bearer Manner = "bearer" // Authorization: Bearer SECRET, or token SECRET
	Basic  Manner = "basic"  // Authorization: Basic, the secret as password
	Header Manner = "header" // the whole value of a field of its own
	SigV4  Manner = "sigv4"  // the request is signed
	Git    Manner = "git"    // as Basic, with the placeholder answered to git
	SSH    Manner = "ssh"    // an agent that signs; nothing is injected
)

// Approve says whether a person is asked.
type Approve string

// The approvals. The zero value asks each time.
const (
	Each  Approve = "each"
	Once  Approve = "once" // about the first use in a task
	Never Approve = "never"
)

// Dest is where a secret may be used: exactly this host and port, these methods
// (none: every) and what is at or below Path (empty: everything).
type Dest struct {
	Host    string // a name in lower case, or an address in plain form
	Port    uint16
	Methods []string
	Path    string
}

// http says whether requests of HTTP are given something.
func (h *Handle) http() bool { return h.As != SSH && h.As != "" }

// asks says whether a person is to agree to a use.
func (h *Handle) asks() Approve {
	if h.Prod || h.Approve != Once && h.Approve != Never {
		return Each
	}
	return h.Approve
}

// at says whether the handle has something for a host and a port at all.
func (h *Handle) at(host string, port uint16) bool {
	for _, d := range h.To {
		if host != "" && d.Host == host && d.Port == port {
			return true
		}
	}
	return false
}

// covers says whether a request goes where the handle may be used. A path that
// servers read in several ways is nowhere but at a destination without a path.
func (h *Handle) covers(host string, port uint16, method, path string) bool {
	for _, d := range h.To {
		if d.covers(host, port, method, path) {
			return true
		}
	}
	return false
}

func (d *Dest) covers(host string, port uint16, method, path string) bool {
	if d.Host == "" || host != d.Host || port != d.Port {
		return false
	}
	if len(d.Methods) > 0 {
		some := false
		for _, m := range d.Methods {
			some = some || m == method
		}
		if !some {
			return false
		}
	}
	if d.Path == "" || d.Path == "/" {
		return true
	}
	rest, below := strings.CutPrefix(path, strings.TrimSuffix(d.Path, "/"))
	return below && (rest == "" || rest[0] == '/') && plain(path)
}

// plain says whether every server reads a path the same way. A path that ends
// with a name of one dot or two means what lies above it.
func plain(path string) bool {
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "\\;") {
		return false
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		if part == "." || part == ".." || strings.HasSuffix(part, " ") {
			return false
		}
	}
	if strings.Contains(path, "//") {
		return false
	}
	low := strings.ToLower(path)
	for _, coded := range []string{"%2e", "%2f", "%5c", "%25", "%00", "%3b", "%0a", "%0d"} {
		if strings.Contains(low, coded) {
			return false
		}
	}
	return true
}
