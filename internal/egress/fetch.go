package egress

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Fetched is what came back for a request that the host makes for a task, as
// one of its programs would.
type Fetched struct {
	URL       string // that answered, after redirections
	Status    int
	Header    http.Header
	Body      []byte
	Truncated bool // there is more of it
}

// maxRedirects is how many are followed.
const maxRedirects = 5

// Fetch makes one GET or HEAD request by the rules of this way out, and follows
// redirections, each of which is decided about by itself. TLS is verified. At
// most most bytes of the body are read. The error of what may not leave, or did
// not come back, is a *Refusal.
func (g *Gate) Fetch(ctx context.Context, method, at string, most int) (*Fetched, error) {
	for n := 0; ; n++ {
		f, err := g.fetchOne(ctx, method, at, most)
		if err != nil {
			return nil, err
		}
		to := f.Header.Get("Location")
		switch f.Status {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		default:
			return f, nil
		}
		if to == "" {
			return f, nil
		}
		if n == maxRedirects {
			return nil, refuse(ReasonProtocol, "%s was redirected more than %d times", quoted(at), maxRedirects)
		}
		base, err := url.Parse(at)
		if err != nil {
			return nil, badDest("%s is no address", quoted(at))
		}
		next, err := base.Parse(to)
		if err != nil {
			return nil, badDest("it was redirected to %s, which is no address", quoted(to))
		}
		at = next.String()
	}
}

// fetchOne makes one request.
func (g *Gate) fetchOne(ctx context.Context, method, at string, most int) (*Fetched, error) {
	at, _, _ = strings.Cut(at, "#")
	u, tls, err := ParseWeb(at)
	if err == nil {
		u.Dest, err = g.meant(u.Dest)
	}
	if err != nil {
		return nil, g.unreadable(ProtoHTTP, "fetch "+at, err)
	}
	h := &head{method: method, target: u.Path, minor: 1, last: true, fields: []field{
		{"User-Agent", "caisson-fetch/1"}, {"Accept", "text/plain, text/html, application/json, */*;q=0.5"}, {"Accept-Encoding", "identity"},
	}}
	ctx, cancel := g.bound(ctx)
	defer cancel()
	f := &fetching{most: most}
	x := &sending{g: g, h: h, to: u.Dest, target: u.Path, tls: tls}
	x.do(ctx, f)
	switch {
	case f.err != nil:
		return nil, f.err
	case f.got == nil:
		return nil, refuse(ReasonBroken, "%s broke off", u.Dest)
	}
	f.got.URL = at
	return f.got, nil
}

// ParseWeb reads an address of http or https in the one form of this room; what is
// behind a # belongs to no address.
func ParseWeb(s string) (u URL, tls bool, err error) {
	s, _, _ = strings.Cut(s, "#")
	const scheme = "https://"
	if len(s) < len(scheme) || !strings.EqualFold(s[:len(scheme)], scheme) {
		u, err = ParseURL(s)
		return u, false, err
	}
	authority, path := s[len(scheme):], "/"
	if i := strings.IndexAny(authority, `/?\`); i >= 0 {
		authority, path = authority[:i], authority[i:]
	}
	if strings.HasPrefix(path, "?") {
		path = "/" + path
	}
	d, err := ParseAuthority(authority, 443)
	if err == nil {
		err = checkPath(path)
	}
	return URL{d, path}, true, err
}

// fetching is the front of a request that the host makes.
type fetching struct {
	most int
	got  *Fetched
	err  error
}

// interim implements front.
func (f *fetching) interim(*sending, *http.Response) error { return nil }

// reply implements front.
func (f *fetching) reply(x *sending, resp *http.Response, _ <-chan struct{}) (bool, error) {
	got := &Fetched{Status: resp.StatusCode, Header: resp.Header}
	if x.h.method != http.MethodHead && resp.Body != nil {
		b, err := io.ReadAll(io.LimitReader(resp.Body, int64(f.most)+1))
		if err != nil {
			f.err = refuse(ReasonBroken, "%s broke off", x.to)
			return false, err
		}
		if got.Truncated = len(b) > f.most; got.Truncated {
			b = b[:f.most]
		}
		got.Body = b
	}
	f.got = got
	return false, nil
}

// upgraded implements front.
func (f *fetching) upgraded(x *sending, _ *http.Response, _ *bufio.Reader) error {
	f.err = refuse(ReasonProtocol, "%s changes to a protocol that was not asked for", x.to)
	return f.err
}

// answer implements front.
func (f *fetching) answer(err error) {
	if f.err == nil {
		f.err = err
	}
}

// quit implements front.
func (f *fetching) quit() {}

// proceed implements front.
func (f *fetching) proceed() error { return nil }

// watch implements front: who waits for the answer ends it by its context.
func (f *fetching) watch(ctx context.Context) (context.Context, func()) { return ctx, func() {} }

// ForTask is what the task is told of an error of this room: not where a name
// leads.
func ForTask(err error) string { return forTask(err) }

// FetchTime bounds a fetch beside the time in which a person may be asked.
const FetchTime = 2 * time.Minute
