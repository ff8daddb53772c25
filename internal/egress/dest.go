package egress

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/task"
)

// Host is a destination's host in its one form: a name in lower case without a
// final dot, or an address. Only the parsers of this file make one; what is
// decided about, resolved, compared and recorded is this value, never the text
// that it came from. The zero Host is none.
type Host struct {
	name string
	addr netip.Addr
}

// Name is the name, empty for an address.
func (h Host) Name() string { return h.name }

// Addr is the address, invalid for a name.
func (h Host) Addr() netip.Addr { return h.addr }

// IsZero says that there is none.
func (h Host) IsZero() bool { return h == Host{} }

// String renders it as it is recorded.
func (h Host) String() string {
	if h.addr.IsValid() {
		return h.addr.String()
	}
	return h.name
}

// Dest is a host and a port. The zero Dest is none.
type Dest struct {
	Host Host
	Port uint16
}

// String renders it as an authority.
func (d Dest) String() string {
	if d.Host.addr.Is6() {
		return "[" + d.Host.String() + "]:" + strconv.Itoa(int(d.Port))
	}
	return d.Host.String() + ":" + strconv.Itoa(int(d.Port))
}

// maxName is the most characters of a name, maxLabel of one part of it.
const (
	maxName  = 253
	maxLabel = 63
)

func badDest(format string, args ...any) error {
	return task.Errorf(task.CodeDenied, "egress.destination", format, args...)
}

// ParseName reads a host name: letters, digits, - and _ between dots, others in
// their xn-- form. Case and one final dot are not kept. Whatever some program
// somewhere reads as an address or as two names is refused.
func ParseName(s string) (Host, error) {
	if len(s) > maxName+1 {
		return Host{}, badDest("a host name of %d characters", len(s))
	}
	name := strings.TrimSuffix(s, ".")
	if name == "" || len(name) > maxName {
		return Host{}, badDest("%s is no host name", quoted(s))
	}
	lower := []byte(name)
	for i, c := range lower {
		switch {
		case 'A' <= c && c <= 'Z':
			lower[i] = c | 0x20
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return Host{}, badDest("%s is no host name: letters, digits and - between dots, others in their xn-- form", quoted(s))
		}
	}
	name = string(lower)
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			return Host{}, badDest("%s has an empty part", quoted(s))
		case len(label) > maxLabel:
			return Host{}, badDest("%s has a part of more than %d characters", quoted(s), maxLabel)
		case label[0] == '-' || label[len(label)-1] == '-':
			return Host{}, badDest("%s has a part that begins or ends with -", quoted(s))
		}
		if code, ok := strings.CutPrefix(label, "xn--"); ok {
			if why := badPunycode(code); why != "" {
				return Host{}, badDest("%s: its part %s %s", quoted(s), label, why)
			}
		}
		last = label
	}
	// "1.2.3", "0x7f.1" and "2130706433" are addresses to inet_aton and browsers.
	if strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == "" {
		return Host{}, badDest("%s is read as an address by some programs: write all four numbers, in decimal", quoted(s))
	}
	return Host{name: name}, nil
}

// ParseHost reads a name, an IPv4 address of four decimal numbers, or an IPv6
// address in brackets.
func ParseHost(s string) (Host, error) {
	if in, ok := strings.CutPrefix(s, "["); ok {
		in, ok = strings.CutSuffix(in, "]")
		if a, err := netip.ParseAddr(in); !ok || err != nil || !a.Is6() {
			return Host{}, badDest("%s: only an IPv6 address stands in brackets", quoted(s))
		}
		return parseAddr(in)
	}
	if strings.Contains(s, ":") {
		return Host{}, badDest("%s: an IPv6 address stands in brackets, and a port after the host alone", quoted(s))
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return FromAddr(a)
	}
	return ParseName(s)
}

func parseAddr(s string) (Host, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return Host{}, badDest("%s is no address", quoted(s))
	}
	return FromAddr(a)
}

// FromAddr takes an address that came as one. A zone names an interface of this
// machine, and an IPv6 address with an IPv4 address in it is reached as either.
func FromAddr(a netip.Addr) (Host, error) {
	switch {
	case !a.IsValid():
		return Host{}, badDest("no address")
	case a.Zone() != "":
		return Host{}, badDest("%s names an interface", quoted(a.String()))
	case ClassOf(a) == ClassEmbedded:
		return Host{}, badDest("%s is an IPv4 address in IPv6 clothes: write it as IPv4", a)
	}
	return Host{addr: a}, nil
}

// ParsePort reads a port in decimal, without sign or leading zero.
func ParsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '0' || s[0] == '+' {
		return 0, badDest("%s is no port", quoted(s))
	}
	return uint16(n), nil
}

// ParseAuthority reads HOST:PORT, as in CONNECT and in a Host field. otherwise is
// the port where none is written; when it is 0, one must be.
// What is before an @ never counts as a host: it is refused.
func ParseAuthority(s string, otherwise uint16) (Dest, error) {
	if len(s) > maxName+len(".:65535") {
		return Dest{}, badDest("a destination of %d characters", len(s))
	}
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && i > strings.LastIndexByte(s, ']') {
		host, port = s[:i], s[i+1:]
		if port == "" {
			return Dest{}, badDest("%s ends without a port", quoted(s))
		}
	}
	h, err := ParseHost(host)
	if err != nil {
		return Dest{}, err
	}
	if port == "" {
		if otherwise == 0 {
			return Dest{}, badDest("%s names no port", quoted(s))
		}
		return Dest{h, otherwise}, nil
	}
	n, err := ParsePort(port)
	if err != nil {
		return Dest{}, err
	}
	return Dest{h, n}, nil
}

// URL is the parsed target of a request to a proxy.
type URL struct {
	Dest Dest
	Path string // as it goes to the server: path and query
}

// ParseURL reads the absolute form of a request to a proxy. https is none: what
// it protects nobody may read on the way, so it takes CONNECT.
func ParseURL(s string) (URL, error) {
	const scheme = "http://"
	if len(s) < len(scheme) || !strings.EqualFold(s[:len(scheme)], scheme) {
		return URL{}, badDest("%s is no http:// address; others take CONNECT", quoted(s))
	}
	authority, path := s[len(scheme):], "/"
	if i := strings.IndexAny(authority, `/?#\`); i >= 0 {
		authority, path = authority[:i], authority[i:]
	}
	if strings.HasPrefix(path, "?") {
		path = "/" + path
	}
	d, err := ParseAuthority(authority, 80)
	if err != nil {
		return URL{}, err
	}
	if err := checkPath(path); err != nil {
		return URL{}, err
	}
	return URL{d, path}, nil
}

// checkPath admits the path and query of a request target.
func checkPath(p string) error {
	if !strings.HasPrefix(p, "/") {
		return badDest("%s is no path", quoted(p))
	}
	for i := range len(p) {
		if c := p[i]; c <= ' ' || c >= 0x7f || c == '#' || c == '\\' {
			return badDest("the path has the character %q", c)
		}
	}
	return nil
}

// ParseSNI reads the name in a TLS greeting: never an address, and without the
// final dot.
func ParseSNI(s string) (Host, error) {
	if strings.HasSuffix(s, ".") {
		return Host{}, badDest("%s: a server name ends without a dot", quoted(s))
	}
	return ParseName(s)
}

// quoted makes any text fit for one line of a record. What is behind a ? or
// before an @ is left out: that is where secrets stand.
func quoted(s string) string {
	if i := strings.IndexByte(s, '?'); i >= 0 {
		s = s[:i] + "?..."
	}
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		s = "...@" + s[i+1:]
	}
	if len(s) > 120 {
		cut := 117
		for cut > 100 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "..."
	}
	return strconv.QuoteToASCII(s)
}

// badPunycode says what is wrong with the part of a label after xn--. A label
// that decodes to ASCII, to capital letters or to lookalikes of them is another
// name to programs that decode it and encode it again.
func badPunycode(s string) string {
	out, ok := punycode(s)
	if !ok {
		return "is no punycode"
	}
	foreign := false
	for _, r := range out {
		switch {
		case r < utf8.RuneSelf:
			continue
		case unicode.IsUpper(r), r >= 0xff00 && r <= 0xffef:
			return "is not in its plain form"
		case !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) && r != '\u00b7' && r != '\u30fb' && r != '\u200c' && r != '\u200d':
			return fmt.Sprintf("has the character %U", r)
		}
		foreign = true
	}
	if !foreign {
		return "stands for plain letters"
	}
	return ""
}

// punycode decodes as RFC 3492, section 6.2, says; s is in lower case and short.
func punycode(s string) ([]rune, bool) {
	const base, tmin, tmax, skew, damp = 36, 1, 26, 38, 700
	var out []rune
	if i := strings.LastIndexByte(s, '-'); i >= 0 {
		out, s = []rune(s[:i]), s[i+1:]
	}
	if s == "" {
		return nil, false
	}
	n, bias, at := 128, 72, 0
	for first := true; s != ""; first = false {
		old, w := at, 1
		for k := base; ; k += base {
			if s == "" {
				return nil, false
			}
			digit := int(s[0] - 'a')
			if s[0] >= '0' && s[0] <= '9' {
				digit = int(s[0]-'0') + 26
			}
			s = s[1:]
			if digit < 0 || digit >= base || digit > (1<<30-at)/w {
				return nil, false
			}
			at += digit * w
			t := min(max(k-bias, tmin), tmax)
			if digit < t {
				break
			}
			if w > (1<<30)/(base-t) {
				return nil, false
			}
			w *= base - t
		}
		size := len(out) + 1
		delta := at - old
		if first {
			delta /= damp
		} else {
			delta /= 2
		}
		delta += delta / size
		k := 0
		for ; delta > (base-tmin)*tmax/2; k += base {
			delta /= base - tmin
		}
		bias = k + (base-tmin+1)*delta/(delta+skew)
		n += at / size
		at %= size
		if n > unicode.MaxRune || n >= 0xd800 && n <= 0xdfff {
			return nil, false
		}
		out = append(out[:at], append([]rune{rune(n)}, out[at:]...)...)
		at++
	}
	return out, true
}
