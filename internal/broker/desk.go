package broker

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// Lent is one handle that a task is lent, and its placeholder inside.
type Lent struct {
	Handle      Handle
	Placeholder Placeholder
}

// Config is what a desk works with.
type Config struct {
	Lent     []Lent
	Reader   Reader
	Recorder Recorder
	// Ask has a person say whether a secret may be used so. An error says that it
	// may not. nil: nobody can be asked.
	Ask func(ctx context.Context, q Question) error
	// Used is how often each handle was used before, by its name: a task that is
	// resumed begins where it was.
	Used map[string]int
	Now  func() time.Time // nil: time.Now
}

// Recorder puts on record what becomes of a secret, never the secret.
type Recorder interface {
	// Reading is told before a secret is read. Its error is the end of the request,
	// and nothing is read.
	Reading(h *Handle, until time.Time) error
	// Read is told when it was, or why it was not.
	Read(h *Handle, err error)
	// Used is told before a request is given a secret that was read: its crossing,
	// and how many it is now. Its error is the end of the request.
	Used(h *Handle, crossing uint64, uses int) error
	// Refused says that a request was to be given something and is refused.
	Refused(h *Handle, crossing uint64, why error)
	// Astray says where a placeholder stands that means nothing there; once for
	// each place.
	Astray(h *Handle, crossing uint64, where string)
	// Back is told when a secret that was read is held no more.
	Back(h *Handle, uses int, why string)
}

// Question is one use that a person is asked about. The desk fills in the first
// three.
type Question struct {
	Handle   string
	Prod     bool
	Each     bool // about this use alone
	Crossing uint64
	Method   string // of HTTP; of another kind what it is, as "sign"
	URL      string // with the query; of another kind what it is for
	Sum      []byte // SHA-256 of the body; nil: it was not at hand
	Length   int64  // of the body; -1: not known
}

// Request is a request of HTTP that may leave. Header is what Lend changes.
type Request struct {
	Crossing uint64
	Host     string // a name in lower case, or an address
	Port     uint16
	TLS      bool // to a server whose certificate was verified for Host
	Method   string
	Path     string
	Query    string
	Header   http.Header
	Length   int64
	// Sum is the SHA-256 of the body. nil: it cannot be had before it is sent.
	Sum func() ([]byte, error)
}

// Desk lends the secrets of one task. The zero Desk lends none.
type Desk struct {
	cfg Config

	mu     sync.Mutex
	lent   []*entry
	closed bool
}

// entry is one handle of a desk.
type entry struct {
	place Placeholder
	d     *Desk

	reading sync.Mutex // held while a secret is read; before the others
	backing sync.Mutex // held until a secret that is taken back is on record; before mu

	mu     sync.Mutex
	h      *Handle
	secret *secret
	until  time.Time
	timer  *time.Timer
	uses   int
	agreed bool // to the first use
	astray map[string]bool
	back   string // why nothing is lent any more; empty: it is
}

// New makes the desk of a task. The caller closes it.
func New(c Config) *Desk {
	if c.Now == nil {
		c.Now = time.Now
	}
	d := &Desk{cfg: c}
	for _, l := range c.Lent {
		h := l.Handle
		d.lent = append(d.lent, &entry{d: d, h: &h, place: l.Placeholder, uses: c.Used[h.Name], astray: map[string]bool{}})
	}
	return d
}

// Reads says whether requests to a host and port may be given something, so that
// they must be read on the host.
func (d *Desk) Reads(host string, port uint16) bool {
	for _, e := range d.entries() {
		if h, back := e.handle(); back == "" && h.http() && h.at(host, port) {
			return true
		}
	}
	return false
}

func (d *Desk) entries() []*entry {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	return d.lent
}

func (e *entry) handle() (*Handle, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.h, e.back
}

// Lend gives a request what it may have: it changes r.Header. nil without an
// error: it has nothing coming. An error is the end of the request; nothing was
// lent then.
func (d *Desk) Lend(ctx context.Context, r *Request) (*Loan, error) {
	var given []*entry
	taken := map[string]bool{} // fields
	all := d.entries()
	for _, always := range []bool{false, true} { // where a placeholder stands comes before what is given anyway
		for _, e := range all {
			h, back := e.handle()
			field := http.CanonicalHeaderKey(h.Header)
			switch {
			case back != "" || !h.http() || !r.TLS || taken[field] || !h.covers(r.Host, r.Port, r.Method, r.Path):
				continue
			case always && (!h.Always || len(r.Header.Values(field)) > 0):
				continue
			case !always && !e.place.stands(h, r.Header):
				continue
			}
			taken[field] = true
			given = append(given, e)
		}
	}
	for _, e := range all {
		e.strays(r, slices.Contains(given, e))
	}
	if len(given) == 0 {
		return nil, nil
	}
	var secrets [][]byte
	defer func() {
		for _, s := range secrets {
			clear(s)
		}
	}()
	header := r.Header.Clone()
	for _, e := range given {
		more, err := e.lend(ctx, r, header)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, more...)
	}
	// A part of an answer could hold half a secret, and another part the rest.
	header.Del("Range")
	header.Del("If-Range")
	loan := newLoan(secrets...)
	clear(r.Header)
	for k, v := range header {
		r.Header[k] = v
	}
	return loan, nil
}

// strays notes, once for each place, where the placeholder means nothing.
func (e *entry) strays(r *Request, given bool) {
	h, _ := e.handle()
	where := e.place.elsewhere(h, r, given)
	if where == "" {
		return
	}
	key := r.Host + " " + where
	e.mu.Lock()
	told := e.astray[key] || len(e.astray) >= maxAstray
	e.astray[key] = true
	e.mu.Unlock()
	if !told {
		e.d.cfg.Recorder.Astray(h, r.Crossing, r.Host+": "+where)
	}
}

// maxAstray bounds what is on record about one placeholder.
const maxAstray = 100

// lend gives one handle's secret to a request whose header is h. It returns what
// must not come back.
func (e *entry) lend(ctx context.Context, r *Request, header http.Header) (secrets [][]byte, err error) {
	h, uses, err := e.reserve()
	defer func() {
		if err != nil {
			e.d.cfg.Recorder.Refused(h, r.Crossing, err)
		}
	}()
	if err != nil {
		return nil, err
	}
	if err = overridden(h, r); err == nil {
		err = e.ask(ctx, h, r)
	}
	if err != nil {
		e.unreserve()
		return nil, err
	}
	s, err := e.borrow(ctx, h)
	if err != nil {
		e.unreserve()
		return nil, err
	}
	defer s.wipe()
	if h.As == SigV4 {
		err = sign(ctx, h, r, header, s, e.d.cfg.Now())
	} else {
		e.place.set(h, header, s)
	}
	if err == nil {
		err = e.d.cfg.Recorder.Used(h, r.Crossing, uses)
	}
	if err != nil {
		e.unreserve()
		return nil, err
	}
	for _, v := range [][]byte{s.value, s.id, s.session} {
		if len(v) > 0 {
			secrets = append(secrets, slices.Clone(v))
		}
	}
	return secrets, nil
}

// reserve counts a use.
func (e *entry) reserve() (h *Handle, uses int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.back != "":
		return e.h, 0, task.Errorf(task.CodeDenied, "broker.lend", "the credential %s was taken back: %s", e.h.Name, e.back)
	case e.h.Uses > 0 && e.uses >= e.h.Uses:
		return e.h, 0, task.Errorf(task.CodeDenied, "broker.lend", "the credential %s was used %d times, which is all that this task may", e.h.Name, e.uses).
			WithHint("uses of the handle says how many")
	}
	e.uses++
	return e.h, e.uses, nil
}

func (e *entry) unreserve() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.uses--
}

// overrides are fields by which some servers take another method or path than
// the request's own.
var overrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Original-Url", "X-Rewrite-Url", "X-Original-Uri"}

// overridden refuses a request that some servers read as another one.
func overridden(h *Handle, r *Request) error {
	for _, name := range overrides {
		if len(r.Header.Values(name)) > 0 {
			return task.Errorf(task.CodeDenied, "broker.lend", "the field %s may make another request of the one that the credential %s is lent for", name, h.Name)
		}
	}
	return nil
}

// ask has a person agree to a request, where the handle says so.
func (e *entry) ask(ctx context.Context, h *Handle, r *Request) error {
	if h.asks() == Never {
		return nil
	}
	url := "https://" + hostField(r) + r.Path
	if r.Query != "" {
		url += "?" + r.Query
	}
	q := Question{Crossing: r.Crossing, Method: r.Method, URL: url, Length: r.Length}
	if r.Sum != nil && r.Length != 0 {
		sum, err := r.Sum()
		if err != nil {
			return err
		}
		q.Sum = sum
	}
	return e.agree(ctx, h, q)
}

// agree has a person agree to a use, where the handle says so.
func (e *entry) agree(ctx context.Context, h *Handle, q Question) error {
	how := h.asks()
	if how == Never {
		return nil
	}
	e.mu.Lock()
	agreed := e.agreed
	e.mu.Unlock()
	if how == Once && agreed {
		return nil
	}
	if e.d.cfg.Ask == nil {
		return task.Errorf(task.CodeDenied, "broker.lend", "a person is to agree to the use of the credential %s, and nobody can be asked", h.Name)
	}
	q.Handle, q.Prod, q.Each = h.Name, h.Prod, how == Each
	if err := e.d.cfg.Ask(ctx, q); err != nil {
		return err
	}
	e.mu.Lock()
	e.agreed = true
	e.mu.Unlock()
	return nil
}

// borrow returns a copy of the secret, which is read where it is not held. The
// caller wipes it.
func (e *entry) borrow(ctx context.Context, h *Handle) (*secret, error) {
	e.reading.Lock()
	defer e.reading.Unlock()
	if s, err := e.held(); s != nil || err != nil {
		return s, err
	}
	life := h.Lifetime
	if life <= 0 {
		life = time.Hour
	}
	until := e.d.cfg.Now().Add(life)
	if err := e.d.cfg.Recorder.Reading(h, until); err != nil {
		return nil, err
	}
	s, err := e.d.cfg.Reader.read(ctx, h)
	e.d.cfg.Recorder.Read(h, err)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.secret, e.until = s, until
	e.timer = time.AfterFunc(life, func() { e.takeBack(s, "its time was over", false) })
	why := e.back
	e.mu.Unlock()
	if why != "" { // meanwhile
		e.takeBack(s, why, false)
	}
	own, err := e.held()
	if own == nil && err == nil {
		err = task.Errorf(task.CodeDenied, "broker.lend", "the time of the credential %s (%s) was over before it could be used", h.Name, life).
			WithHint("lifetime of the handle says how long it is held; nothing was sent")
	}
	return own, err
}

// held returns a copy of the secret that is held; nil: none is.
func (e *entry) held() (*secret, error) {
	e.mu.Lock()
	if e.back != "" {
		defer e.mu.Unlock()
		return nil, task.Errorf(task.CodeDenied, "broker.lend", "the credential %s was taken back: %s", e.h.Name, e.back)
	}
	s := e.secret
	if s != nil && e.d.cfg.Now().Before(e.until) {
		defer e.mu.Unlock()
		return &secret{slices.Clone(s.value), slices.Clone(s.id), slices.Clone(s.session)}, nil
	}
	e.mu.Unlock()
	if s != nil {
		e.takeBack(s, "its time was over", false)
	}
	return nil, nil
}

// takeBack overwrites the secret s, of nil any, where it is held still. With
// ever nothing is lent by this entry any more.
func (e *entry) takeBack(s *secret, why string, ever bool) {
	e.backing.Lock()
	defer e.backing.Unlock()
	e.mu.Lock()
	if ever && e.back == "" {
		e.back = why
	}
	gone := e.secret
	if gone == nil || s != nil && gone != s {
		e.mu.Unlock()
		return
	}
	e.timer.Stop()
	gone.wipe()
	e.secret = nil
	h, uses := e.h, e.uses
	e.mu.Unlock()
	e.d.cfg.Recorder.Back(h, uses, why)
}

// Lent lists what is lent now, with the placeholders inside.
func (d *Desk) Lent() (out []Lent) {
	for _, e := range d.entries() {
		if h, back := e.handle(); back == "" {
			out = append(out, Lent{*h, e.place})
		}
	}
	return out
}

// Use lends a secret to something that is no request of HTTP: it counts the use,
// has a person asked where the handle says so, puts it on record and calls use
// with the secret, which is overwritten when use returns. Of a handle that reads
// nothing, since its keys stay in an agent, the secret is nil. After an error use
// was not called, or returned it.
func (d *Desk) Use(ctx context.Context, name string, q Question, use func(secret []byte) error) (err error) {
	all := d.entries()
	i := slices.IndexFunc(all, func(e *entry) bool { h, _ := e.handle(); return h.Name == name })
	if i < 0 {
		return task.Errorf(task.CodeDenied, "broker.lend", "the credential %s is not lent", name)
	}
	e := all[i]
	h, uses, err := e.reserve()
	defer func() {
		if err != nil {
			d.cfg.Recorder.Refused(h, q.Crossing, err)
		}
	}()
	if err != nil {
		return err
	}
	if err = e.agree(ctx, h, q); err != nil {
		e.unreserve()
		return err
	}
	s := &secret{}
	if !h.From.Agent {
		if s, err = e.borrow(ctx, h); err != nil {
			e.unreserve()
			return err
		}
	}
	defer s.wipe()
	if err = d.cfg.Recorder.Used(h, q.Crossing, uses); err != nil {
		e.unreserve()
		return err
	}
	return use(s.value)
}

// Still has only those of the handles lent that are among hs, as they are there:
// the policy is another one now. What is not there any more is taken back, and
// stays so.
func (d *Desk) Still(hs []Handle, why string) {
	for _, e := range d.entries() {
		own, back := e.handle()
		i := slices.IndexFunc(hs, func(h Handle) bool { return h.Name == own.Name })
		switch {
		case back != "":
			continue
		case i < 0 || hs[i].As != own.As || !slices.Equal(hs[i].Env, own.Env):
			e.takeBack(nil, why, true)
			continue
		case !same(hs[i].From, own.From):
			e.takeBack(nil, "it is read elsewhere now", false)
		}
		h := hs[i]
		e.mu.Lock()
		e.h = &h
		e.mu.Unlock()
	}
}

// Drop overwrites what is held. It is read again when it is lent again.
func (d *Desk) Drop(why string) {
	for _, e := range d.entries() {
		e.takeBack(nil, why, false)
	}
}

func same(a, b Source) bool {
	if a.Env != b.Env || a.File != b.File || a.Agent != b.Agent || !slices.Equal(a.Command, b.Command) || len(a.Keyring) != len(b.Keyring) {
		return false
	}
	for k, v := range a.Keyring {
		if b.Keyring[k] != v {
			return false
		}
	}
	return true
}

// Close takes everything back. What is being read just now is taken back when it
// was read.
func (d *Desk) Close(why string) {
	if d == nil {
		return
	}
	d.mu.Lock()
	d.closed = true
	all := d.lent
	d.mu.Unlock()
	for _, e := range all {
		e.takeBack(nil, why, true)
	}
}

// hostField is the host as a server sees it, the usual port of TLS left out.
func hostField(r *Request) string {
	host := r.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if r.Port == 443 {
		return host
	}
	return host + ":" + strconv.Itoa(int(r.Port))
}
