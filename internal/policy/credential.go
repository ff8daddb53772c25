package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"
)

// Credential is one handle: a secret that stays on the host, and what it may be
// used for. Who may be lent it stands elsewhere: base, delegate, deny, --lend.
type Credential struct {
	Read     Origination       `json:"from"`
	As       string            `json:"as"`              // one of Manners
	Class    string            `json:"class,omitempty"` // one of Classes; empty: prod
	To       []Endpoint        `json:"to,omitempty"`    // empty: where As says
	Env      []string          `json:"env,omitempty"`   // variables that hold the placeholder inside
	Set      map[string]string `json:"set,omitempty"`   // variables that are set beside, of no secret
	Form     string            `json:"form,omitempty"`  // how the placeholder begins
	Inject   string            `json:"inject,omitempty"`
	User     string            `json:"user,omitempty"`
	Header   string            `json:"header,omitempty"`
	Region   string            `json:"region,omitempty"`
	Service  string            `json:"service,omitempty"`
	Keys     []string          `json:"keys,omitempty"`      // of ssh: fingerprints or comments
	HostKeys []string          `json:"host_keys,omitempty"` // of ssh: "KIND TEXT"; empty: what known_hosts has
	Sign     []string          `json:"sign,omitempty"`      // of ssh: namespaces of documents; empty: none is signed
	Lifetime Duration          `json:"lifetime,omitempty"`
	Uses     Count             `json:"uses,omitempty"`
	Approve  string            `json:"approve,omitempty"` // one of Approvals; empty: each for prod, never for dev
}

// Origination says where a secret is read, on the host. One part is given.
type Origination struct {
	Env     string            `json:"env,omitempty"`     // a variable of whoever starts the task
	File    Path              `json:"file,omitempty"`    // readable by its owner alone
	Command Argv              `json:"command,omitempty"` // which prints it
	Keyring map[string]string `json:"keyring,omitempty"` // attributes of an entry of the Secret Service
	Agent   *bool             `json:"agent,omitempty"`   // the SSH agent of whoever starts the task
}

// Endpoint is where a credential may be used.
type Endpoint struct {
	Host    HostPort `json:"host"`
	Methods []Method `json:"methods,omitempty"` // empty: every
	Path    URLPath  `json:"path,omitempty"`    // and what is below it; empty: every
}

// HostPort is HOST or HOST:PORT, a name in lower case or an address.
type HostPort string

// The words of a credential, strictest first.
var (
	Classes   = []string{"prod", "dev"}
	Approvals = []string{"each", "once", "never"}
	Injects   = []string{"present", "always"}
)

// Manners are the ways in which a credential is given.
var Manners = []string{"bearer", "basic", "header", "sigv4", "anthropic", "openai", "google", "git", "ssh"}

// manner is what a way of giving implies where the handle does not say otherwise.
type manner struct {
	header, form string
	env          []string
	to           HostPort
	port         uint16
}

var manners = map[string]manner{
	"bearer":    {header: "Authorization"},
	"basic":     {header: "Authorization"},
	"header":    {},
	"sigv4":     {header: "Authorization", form: "AKIA", env: []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}},
	"anthropic": {header: "X-Api-Key", form: "sk-ant-api03-", env: []string{"ANTHROPIC_API_KEY"}, to: "api.anthropic.com"},
	"openai":    {header: "Authorization", form: "sk-", env: []string{"OPENAI_API_KEY"}, to: "api.openai.com"},
	"google":    {header: "X-Goog-Api-Key", form: "AIza", env: []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"}, to: "generativelanguage.googleapis.com"},
	"git":       {header: "Authorization"},
	"ssh":       {port: 22},
}

// Whole is c with everything that it leaves out.
func (c Credential) Whole() Credential {
	m := manners[c.As]
	if c.Class == "" {
		c.Class = "prod"
	}
	if c.Header == "" {
		c.Header = m.header
	}
	if c.Form == "" {
		c.Form = m.form
	}
	if len(c.Env) == 0 {
		c.Env = m.env
	}
	if len(c.To) == 0 && m.to != "" {
		c.To = []Endpoint{{Host: m.to}}
	}
	if c.User == "" && c.As == "git" {
		c.User = "x-access-token"
	}
	if c.Inject == "" {
		c.Inject = "present"
	}
	if c.Lifetime == 0 {
		c.Lifetime = Duration(time.Hour)
	}
	switch {
	case c.Class == "prod":
		c.Approve = "each"
	case c.Approve == "":
		c.Approve = "never"
	}
	return c
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *HostPort) UnmarshalText(b []byte) error {
	s := strings.ToLower(string(b))
	host, port, err := splitHostPort(s)
	if err == nil && port != "" {
		_, err = portNumber(port)
	}
	if err == nil {
		if a, aerr := netip.ParseAddr(host); aerr == nil {
			if a.Zone() != "" || a.Is4In6() {
				err = errors.New("an address in plain form")
			}
		} else {
			err = hostName(host)
		}
	}
	if err != nil {
		return fmt.Errorf("%q is no HOST or HOST:PORT: one name, without * and scheme, or one address", clip(string(b)))
	}
	*h = HostPort(s)
	return nil
}

func splitHostPort(s string) (host, port string, err error) {
	if in, ok := strings.CutPrefix(s, "["); ok {
		host, port, ok = strings.Cut(in, "]")
		if !ok || port != "" && !strings.HasPrefix(port, ":") {
			return "", "", errors.New("the bracket is not closed")
		}
		if port == ":" {
			return "", "", errors.New("no port")
		}
		return host, strings.TrimPrefix(port, ":"), nil
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Is6() {
		return s, "", nil
	}
	host, port, some := strings.Cut(s, ":")
	if some && port == "" {
		return "", "", errors.New("no port")
	}
	return strings.TrimSuffix(host, "."), port, nil
}

// Split returns the host and the port, which is other where none is written.
func (h HostPort) Split(other uint16) (string, uint16) {
	host, port, err := splitHostPort(string(h))
	if err != nil {
		return "", 0
	}
	if n, err := portNumber(port); err == nil {
		return host, n
	}
	return host, other
}

// Port is the port of a handle's destinations where they name none.
func (c *Credential) Port() uint16 {
	if p := manners[c.As].port; p != 0 {
		return p
	}
	return 443
}

// Check implements Checker.
func (o *Origination) Check() error {
	n := 0
	for _, given := range []bool{o.Env != "", o.File != "", len(o.Command) > 0, len(o.Keyring) > 0, o.Agent != nil} {
		if given {
			n++
		}
	}
	switch {
	case n != 1:
		return errors.New("it has one of env, file, command, keyring, agent")
	case o.Env != "" && !variable(o.Env):
		return fmt.Errorf("env: %q is no name of a variable", clip(o.Env))
	case len(o.Command) > 0 && !path.IsAbs(o.Command[0]):
		return fmt.Errorf("command: the program %q is not an absolute path", clip(o.Command[0]))
	case o.Agent != nil && !*o.Agent:
		return errors.New("agent: it is true, or left out")
	}
	for k, v := range o.Keyring {
		if k == "" || v == "" || strings.HasPrefix(k, "-") || strings.ContainsAny(k+v, "\x00\n") {
			return fmt.Errorf("keyring: %q is no attribute", clip(k))
		}
	}
	return nil
}

// Check implements Checker.
func (e *Endpoint) Check() error {
	if e.Host == "" {
		return errors.New("it names no host")
	}
	return nil
}

// Check implements Checker.
func (c *Credential) Check() error {
	word := func(key, value string, words []string) error {
		if value != "" && !slices.Contains(words, value) {
			return fmt.Errorf("%s: %w", key, &WordError{value, words})
		}
		return nil
	}
	if c.As == "" {
		return fmt.Errorf("as: it says not how it is given: %s", strings.Join(Manners, ", "))
	}
	for _, err := range []error{word("as", c.As, Manners), word("class", c.Class, Classes), word("inject", c.Inject, Injects), word("approve", c.Approve, Approvals), c.Read.Check()} {
		if err != nil {
			return err
		}
	}
	w := c.Whole()
	switch {
	case len(w.To) == 0:
		return errors.New("to: it names no destination, and a credential without one is given to nobody")
	case w.Class == "prod" && (c.Approve == "once" || c.Approve == "never"):
		return fmt.Errorf("approve: a credential of class prod is asked about each time, not %s; write class: dev where it is one", c.Approve)
	case (c.As == "header") != (c.Header != ""):
		return errors.New("header: as: header names a header field, and nothing else does")
	case c.Header != "" && !headerName(c.Header):
		return fmt.Errorf("header: %q is no header field that a credential may stand in", clip(c.Header))
	case (c.As == "sigv4") != (c.Region != "" && c.Service != "") || c.As != "sigv4" && c.Region+c.Service != "":
		return errors.New("region, service: as: sigv4 names both, and nothing else does")
	case c.As == "basic" && c.User == "":
		return errors.New("user: as: basic names it")
	case c.User != "" && (c.As != "basic" && c.As != "git" && c.As != "ssh" || strings.ContainsAny(c.User, ":\x00\r\n") || len(c.User) > 200):
		return errors.New("user: a name without a colon, of as: basic, git or ssh")
	case c.Read.Agent != nil && c.As != "ssh":
		return errors.New("from: an agent holds keys of SSH, for as: ssh")
	case c.As != "ssh" && len(c.Keys)+len(c.HostKeys)+len(c.Sign) > 0:
		return errors.New("keys, host_keys, sign: of as: ssh, and of nothing else")
	case c.Read.Agent != nil && len(c.Keys) == 0:
		return errors.New("keys: an agent holds several, and only those that are named are lent: ssh-add -l shows their fingerprints")
	case c.As == "ssh" && (len(c.Env) > 0 || len(c.Set) > 0 || c.Form != ""):
		return errors.New("env, set, form: a key of SSH has no placeholder")
	case c.As == "sigv4" && len(w.Env) != 2:
		return errors.New("env: as: sigv4 has two variables, for the key's id and for its secret")
	case len(w.Env) == 0 && w.Inject == "present" && c.As != "git" && c.As != "ssh":
		return errors.New("env: it names no variable for the placeholder, so nothing inside could use it; or write inject: always")
	case w.Inject == "always" && (c.As == "git" || c.As == "ssh"):
		return fmt.Errorf("inject: as: %s is asked for by the program", c.As)
	case time.Duration(c.Lifetime) > 24*time.Hour:
		return errors.New("lifetime: 24h at most; it is read again after that")
	case strings.Trim(c.Form, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" || len(c.Form) > 40:
		return fmt.Errorf("form: %q is no beginning of a token: only letters, digits, dots, dashes and underscores", clip(c.Form))
	}
	for _, k := range slices.Concat(c.Keys, c.Sign) {
		if k == "" || len(k) > 200 || strings.ContainsFunc(k, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("keys, sign: %q is no name", clip(k))
		}
	}
	for _, k := range c.HostKeys {
		if kind, text, _ := strings.Cut(k, " "); kind == "" || strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=") != "" || text == "" {
			return fmt.Errorf("host_keys: %q is not of the form KIND TEXT, as in known_hosts", clip(k))
		}
	}
	if c.As == "ssh" {
		for _, e := range c.To {
			if len(e.Methods) > 0 || e.Path != "" {
				return errors.New("to: a key of SSH is lent for a host, without methods and path")
			}
		}
	}
	names := slices.Clone(w.Env)
	for n, v := range c.Set {
		if names = append(names, n); strings.ContainsAny(v, "\x00\n") {
			return fmt.Errorf("set: the value of %s holds a NUL or a line's end", clip(n))
		}
	}
	for i, n := range names {
		switch {
		case !variable(n) || strings.HasPrefix(n, "LD_") || slices.Contains([]string{"HOME", "PATH", "SHELL", "TMPDIR", "CAISSON_TASK"}, n):
			return fmt.Errorf("env, set: %q is no variable that a credential may have", clip(n))
		case slices.Contains(names[:i], n):
			return fmt.Errorf("env, set: %s is there twice", n)
		}
	}
	return nil
}

// headerName says whether a credential may stand in a header field: in none that
// says where a request goes or how it ends.
func headerName(s string) bool {
	if len(s) > 60 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
		return false
	}
	l := strings.ToLower(s)
	return !slices.Contains([]string{"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "expect", "keep-alive", "range", "if-range", "accept-encoding", "cookie"}, l) &&
		!strings.HasPrefix(l, "proxy-") && !strings.HasPrefix(l, "sec-")
}

func variable(s string) bool {
	return s != "" && len(s) <= 200 && (s[0] < '0' || s[0] > '9') && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// Handles are the credentials of one file, by handle.
type Handles map[string]*Credential

// Check implements Checker.
func (h *Handles) Check() error {
	for n := range *h {
		if n == "" || len(n) > 60 || strings.Trim(n, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || strings.HasPrefix(n, "-") || strings.HasPrefix(n, ".") {
			return fmt.Errorf("%q is no handle: small letters, digits, dots, dashes and underscores only", clip(n))
		}
	}
	return nil
}

// CredentialFrom is one handle of the merged rules.
type CredentialFrom struct {
	Name string `json:"name"`
	Credential
	From Origin `json:"origin"`
}

// String renders it on one line: all that it says, but for how a program is
// called that prints it.
func (c Credential) String() string {
	w := c.Whole()
	var to []string
	for _, e := range w.To {
		s := string(e.Host)
		if len(e.Methods) > 0 {
			s = joined(e.Methods, ",") + " " + s
		}
		to = append(to, s+string(e.Path))
	}
	as := w.As
	for _, more := range []string{w.User, w.Region, w.Service} {
		if more != "" {
			as += " " + more
		}
	}
	if w.As == "header" {
		as += " " + w.Header
	}
	out := []string{w.Class, as + " to " + strings.Join(to, "; "), "from " + w.Read.String()}
	put := func(name string, list []string) {
		if len(list) > 0 {
			out = append(out, name+" "+strings.Join(list, " "))
		}
	}
	put("env", w.Env)
	for _, n := range slices.Sorted(maps.Keys(w.Set)) {
		out = append(out, "set "+n+"="+w.Set[n])
	}
	if w.Form != "" {
		out = append(out, "form "+w.Form)
	}
	if w.Inject == "always" {
		out = append(out, "always")
	}
	put("keys", w.Keys)
	put("host_keys", w.HostKeys)
	put("sign", w.Sign)
	out = append(out, "for "+w.Lifetime.String())
	if w.Uses > 0 {
		out = append(out, fmt.Sprintf("%d uses", int64(w.Uses)))
	}
	if w.Approve != "never" {
		out = append(out, "asked "+w.Approve)
	}
	return strings.Join(out, ", ")
}

// String says of which kind it is and, where that tells no more than a place, which.
func (o Origination) String() string {
	switch {
	case o.Env != "":
		return "the variable " + o.Env
	case o.File != "":
		return "the file " + string(o.File)
	case len(o.Command) > 0:
		return "the command " + o.Command[0]
	case len(o.Keyring) > 0:
		return "the keyring " + strings.Join(slices.Sorted(maps.Keys(o.Keyring)), " ")
	case o.Agent != nil:
		return "the SSH agent"
	}
	return "nowhere"
}

// Handle returns the credential of a handle, and whether there is one.
func (r *Rules) Handle(name string) (CredentialFrom, bool) {
	if r != nil {
		for _, c := range r.Credentials {
			if c.Name == name {
				return c, true
			}
		}
	}
	return CredentialFrom{}, false
}

// Lent lists the handles that what is granted lends to the task, by whom, without
// those that are denied.
func (r *Rules) Lent() (out []Set[CredentialFrom]) {
	if r == nil {
		return nil
	}
	for _, c := range r.Credentials {
		i := slices.IndexFunc(r.Granted, func(g Granted) bool { return g.Credential.Covers(c.Name) })
		if i >= 0 && !r.Denies(Item{Credential: Name(c.Name)}) {
			out = append(out, Set[CredentialFrom]{c, r.Granted[i].From})
		}
	}
	return out
}
