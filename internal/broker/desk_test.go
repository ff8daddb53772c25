package broker

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// book is a recorder that keeps what it is told.
type book struct {
	mu    sync.Mutex
	lines []string
	full  error // of what would have to be durable
}

func (b *book) put(format string, args ...any) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, fmt.Sprintf(format, args...))
	return b.full
}

func (b *book) Reading(h *Handle, _ time.Time) error     { return b.put("reading %s", h.Name) }
func (b *book) Read(h *Handle, err error)                { b.put("read %s %v", h.Name, err) }
func (b *book) Used(h *Handle, c uint64, n int) error    { return b.put("used %s %d %d", h.Name, c, n) }
func (b *book) Refused(h *Handle, c uint64, err error)   { b.put("refused %s %d %v", h.Name, c, err) }
func (b *book) Astray(h *Handle, c uint64, where string) { b.put("astray %s %s", h.Name, where) }
func (b *book) Back(h *Handle, n int, why string)        { b.put("back %s %d %s", h.Name, n, why) }
func (b *book) text() string                             { b.mu.Lock(); defer b.mu.Unlock(); return strings.Join(b.lines, "\n") }
func (b *book) has(s string) bool                        { return strings.Contains(b.text(), s) }

const secretText = "the-real-secret-1234"

// desk makes one of handles whose secret is secretText.
func desk(b *book, more func(*Config), hs ...Handle) (*Desk, map[string]Placeholder) {
	c := Config{Recorder: b, Reader: Reader{Getenv: func(k string) string {
		if k == "NONE" {
			return ""
		}
		return secretText
	}}}
	places := map[string]Placeholder{}
	for _, h := range hs {
		if h.From.Env == "" {
			h.From.Env = "TOKEN"
		}
		if h.Header == "" {
			h.Header = "Authorization"
		}
		if h.Approve == "" {
			h.Approve = Never
		}
		p := NewPlaceholder(&h)
		places[h.Name] = p
		c.Lent = append(c.Lent, Lent{h, p})
	}
	if more != nil {
		more(&c)
	}
	return New(c), places
}

func request(h http.Header) *Request {
	return &Request{Crossing: 7, Host: "a.example", Port: 443, TLS: true, Method: "GET", Path: "/repos/me/x", Header: h, Length: 0}
}

var toA = []Dest{{Host: "a.example", Port: 443, Methods: []string{"GET", "PUT"}, Path: "/repos/me"}}

// The placeholder becomes the secret in one place: in its field, over TLS, at the
// destination that was granted. Everywhere else it goes on as it is.
func TestLendOnlyThere(t *testing.T) {
	for name, c := range map[string]struct {
		h      Handle
		header func(p string) http.Header
		change func(r *Request, p string)
		want   string // of the field Authorization or X-Key; empty: nothing is lent
		astray string
	}{
		"bearer":       {h: Handle{As: Bearer}, header: auth("Bearer "), want: "Bearer " + secretText},
		"token":        {h: Handle{As: Bearer}, header: auth("token "), want: "token " + secretText},
		"basic":        {h: Handle{As: Basic, User: "me"}, header: basicly("me"), want: "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+secretText))},
		"git":          {h: Handle{As: Git, User: "x-access-token"}, header: basicly("x-access-token"), want: "Basic " + base64.StdEncoding.EncodeToString([]byte("x-access-token:"+secretText))},
		"another user": {h: Handle{As: Basic, User: "me"}, header: basicly("root"), astray: "the field Authorization"},
		"own field":    {h: Handle{As: Header, Header: "X-Key"}, header: field("X-Key", ""), want: secretText},
		"always":       {h: Handle{As: Bearer, Always: true}, header: nothing, want: "Bearer " + secretText},
		"always, own":  {h: Handle{As: Bearer, Always: true}, header: func(string) http.Header { return http.Header{"Authorization": {"Bearer my-own"}} }},
		"a part": {h: Handle{As: Bearer}, header: func(p string) http.Header {
			return http.Header{"Authorization": {"Bearer " + p}, "Range": {"bytes=0-3"}, "If-Range": {"x"}}
		}, want: "Bearer " + secretText},
		"present, absent":   {h: Handle{As: Bearer}, header: nothing},
		"plain HTTP":        {h: Handle{As: Bearer}, header: auth("Bearer "), change: func(r *Request, _ string) { r.TLS = false }, astray: "the field Authorization"},
		"always, plain":     {h: Handle{As: Bearer, Always: true}, header: nothing, change: func(r *Request, _ string) { r.TLS = false }},
		"another host":      {h: Handle{As: Bearer}, header: auth("Bearer "), change: func(r *Request, _ string) { r.Host = "b.example" }, astray: "b.example: the field"},
		"no host":           {h: Handle{As: Bearer}, header: auth("Bearer "), change: func(r *Request, _ string) { r.Host = "" }, astray: "the field Authorization"},
		"host below":        {h: Handle{As: Bearer}, header: auth("Bearer "), change: func(r *Request, _ string) { r.Host = "x.a.example" }, astray: "the field"},
		"another port":      {h: Handle{As: Bearer}, header: auth("Bearer "), change: func(r *Request, _ string) { r.Port = 8443 }, astray: "the field"},
		"another method":    {h: Handle{As: Bearer}, header: auth("Bearer "), change: func(r *Request, _ string) { r.Method = "DELETE" }, astray: "the field"},
		"another path":      {h: Handle{As: Bearer}, header: auth("Bearer "), change: func(r *Request, _ string) { r.Path = "/repos/other" }, astray: "the field"},
		"a path that turns": {h: Handle{As: Bearer}, header: auth("Bearer "), change: func(r *Request, _ string) { r.Path = "/repos/me/%2e%2e/other" }, astray: "the field"},
		"another field":     {h: Handle{As: Bearer}, header: field("X-Api-Key", "Bearer "), astray: "the field X-Api-Key"},
		"with more":         {h: Handle{As: Bearer}, header: auth("Bearer x"), astray: "the field Authorization"},
		"another scheme":    {h: Handle{As: Bearer}, header: auth("Digest "), astray: "the field Authorization"},
		"twice": {h: Handle{As: Bearer}, header: func(p string) http.Header {
			return http.Header{"Authorization": {"Bearer " + p, "Bearer " + p}}
		}, astray: "the field Authorization"},
		"in the query":       {h: Handle{As: Bearer}, header: nothing, change: func(r *Request, p string) { r.Query = "t=" + p }, astray: "the query"},
		"in the path":        {h: Handle{As: Bearer}, header: nothing, change: func(r *Request, p string) { r.Path = "/repos/me/" + p }, astray: "the path"},
		"in a field's name":  {h: Handle{As: Bearer}, header: func(p string) http.Header { return http.Header{"X" + p: {"x"}} }, astray: "the name of a field"},
		"basic for bearer":   {h: Handle{As: Bearer}, header: basicly("x"), astray: "the field Authorization"},
		"no agent of SSH":    {h: Handle{As: SSH}, header: auth("Bearer "), astray: "the field"},
		"there and in query": {h: Handle{As: Bearer}, header: auth("Bearer "), change: func(r *Request, p string) { r.Query = p }, want: "Bearer " + secretText, astray: "the query"},
	} {
		t.Run(name, func(t *testing.T) {
			var b book
			c.h.Name, c.h.To = "h", toA
			d, places := desk(&b, nil, c.h)
			p := places["h"].Value
			r := request(c.header(p))
			if c.change != nil {
				c.change(r, p)
			}
			was := r.Header.Clone()
			for range 2 {
				loan, err := d.Lend(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				got := r.Header.Get("Authorization")
				if c.h.Header != "" {
					got = r.Header.Get(c.h.Header)
				}
				switch {
				case c.want != "" && (loan == nil || got != c.want):
					t.Errorf("%v", r.Header)
				case c.want == "" && (loan != nil || fmt.Sprint(r.Header) != fmt.Sprint(was)):
					t.Errorf("it was lent: %v", r.Header)
				case c.want != "":
					if r.Header.Get("Range")+r.Header.Get("If-Range") != "" {
						t.Errorf("a part is asked for: %v", r.Header)
					}
					if strings.Contains(fmt.Sprint(r.Header), p) {
						t.Errorf("the placeholder is there still: %v", r.Header)
					}
					if out, _ := io.ReadAll(loan.Body(strings.NewReader("you sent " + secretText))); strings.Contains(string(out), secretText) {
						t.Errorf("it came back: %s", out)
					}
					loan.Back()
				}
				r.Header = was.Clone()
			}
			if n := strings.Count(b.text(), "astray"); c.astray == "" && n > 0 || c.astray != "" && (n != 1 || !b.has(c.astray)) {
				t.Errorf("on record, want %q once:\n%s", c.astray, b.text())
			}
			if strings.Contains(b.text(), secretText) || strings.Contains(b.text(), p) {
				t.Errorf("on record:\n%s", b.text())
			}
			d.Close("the task is over")
			if c.want != "" != b.has("back h 2 the task is over") {
				t.Errorf("on record:\n%s", b.text())
			}
		})
	}
}

func nothing(string) http.Header { return http.Header{"Accept": {"*/*"}} }
func field(name, before string) func(string) http.Header {
	return func(p string) http.Header { return http.Header{name: {before + p}} }
}
func auth(before string) func(string) http.Header { return field("Authorization", before) }
func basicly(user string) func(string) http.Header {
	return func(p string) http.Header {
		return http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+p))}}
	}
}

// Uses, times, questions, changes of the policy and the end.
func TestLendBounds(t *testing.T) {
	h := Handle{Name: "h", As: Bearer, To: toA}
	use := func(d *Desk, p Placeholder, change ...func(*Request)) error {
		r := request(auth("Bearer ")(p.Value))
		for _, f := range change {
			f(r)
		}
		loan, err := d.Lend(context.Background(), r)
		if err == nil && loan == nil {
			return errors.New("nothing was lent")
		}
		if err != nil && !strings.Contains(r.Header.Get("Authorization"), p.Value) {
			return errors.New("refused, and changed")
		}
		return err
	}
	t.Run("uses", func(t *testing.T) {
		var b book
		h := h
		h.Uses = 2
		d, p := desk(&b, nil, h)
		if err := errors.Join(use(d, p["h"]), use(d, p["h"])); err != nil {
			t.Fatal(err)
		}
		if err := use(d, p["h"]); err == nil || !strings.Contains(err.Error(), "used 2 times") || !b.has("refused h 7") {
			t.Errorf("%v\n%s", err, b.text())
		}
	})
	t.Run("read when it is used, and again after its time", func(t *testing.T) {
		var b book
		now := time.Now()
		h := h
		h.Lifetime = time.Hour
		d, p := desk(&b, func(c *Config) { c.Now = func() time.Time { return now } }, h)
		if b.text() != "" {
			t.Errorf("before the first use:\n%s", b.text())
		}
		if err := errors.Join(use(d, p["h"]), use(d, p["h"])); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
		if err := use(d, p["h"]); err != nil {
			t.Fatal(err)
		}
		want := "reading h\nread h <nil>\nused h 7 1\nused h 7 2\nback h 2 its time was over|reading h\nread h <nil>\nused h 7 3"
		if got := strings.Replace(b.text(), "its time was over\n", "its time was over|", 1); strings.ReplaceAll(got, "back h 3", "back h 2") != want {
			t.Errorf("on record:\n%s", b.text())
		}
	})
	t.Run("a time that ends by itself", func(t *testing.T) {
		var b book
		h := h
		h.Lifetime = 20 * time.Millisecond
		d, p := desk(&b, nil, h)
		if err := use(d, p["h"]); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(30 * time.Second); !b.has("back h 1 its time was over"); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it is held still:\n%s", b.text())
			}
		}
	})
	t.Run("asked", func(t *testing.T) {
		for _, c := range []struct {
			prod  bool
			how   Approve
			times int
		}{{true, Never, 3}, {false, Each, 3}, {false, Once, 1}, {false, Never, 0}} {
			var b book
			var asked []Question
			h := h
			h.Prod, h.Approve = c.prod, c.how
			d, p := desk(&b, func(c *Config) {
				c.Ask = func(_ context.Context, q Question) error { asked = append(asked, q); return nil }
			}, h)
			for range 3 {
				if err := use(d, p["h"], func(r *Request) { r.Query = "a=b" }); err != nil {
					t.Fatal(err)
				}
			}
			if len(asked) != c.times {
				t.Errorf("%+v: asked %d times", c, len(asked))
			}
			for _, q := range asked {
				if q.URL != "https://a.example/repos/me/x?a=b" || q.Method != "GET" || q.Handle != "h" || q.Crossing != 7 || q.Each != (c.how != Once) {
					t.Errorf("%+v", q)
				}
			}
			if c.times == 0 {
				continue
			}
			refuses, p := desk(&b, func(c *Config) { c.Ask = func(context.Context, Question) error { return errors.New("no") } }, h)
			if err := use(refuses, p["h"]); err == nil || err.Error() != "no" || len(refuses.lent[0].secretValue()) > 0 {
				t.Errorf("refused by a person: %v", err)
			}
			alone, p := desk(&b, nil, h)
			if err := use(alone, p["h"]); err == nil || !strings.Contains(err.Error(), "nobody can be asked") {
				t.Errorf("nobody there: %v", err)
			}
		}
	})
	t.Run("not read", func(t *testing.T) {
		var b book
		h := h
		h.From.Env = "NONE"
		d, p := desk(&b, nil, h)
		if err := use(d, p["h"]); err == nil || !b.has("refused h 7") || b.has("\nused") {
			t.Errorf("%v\n%s", err, b.text())
		}
	})
	t.Run("no record, no loan", func(t *testing.T) {
		b := book{full: errors.New("the disk is full")}
		d, p := desk(&b, nil, h)
		if err := use(d, p["h"]); err == nil || b.has("read h") || b.has("\nused") {
			t.Errorf("%v\n%s", err, b.text())
		}
	})
	t.Run("another method by a field", func(t *testing.T) {
		for _, name := range overrides {
			var b book
			d, p := desk(&b, nil, h)
			if err := use(d, p["h"], func(r *Request) { r.Header[name] = []string{"DELETE"} }); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("another policy", func(t *testing.T) {
		var b book
		other := Handle{Name: "other", As: Header, Header: "X-Other", To: toA, Approve: Never}
		d, p := desk(&b, nil, h, other)
		if err := use(d, p["h"]); err != nil {
			t.Fatal(err)
		}
		held := d.lent[0].secretValue()
		narrow := d.lent[0].h
		one := *narrow
		one.To = []Dest{{Host: "a.example", Port: 443, Path: "/elsewhere"}}
		d.Still([]Handle{one, *d.lent[1].h}, "the policy is another")
		if err := use(d, p["h"]); err == nil || err.Error() != "nothing was lent" {
			t.Errorf("to where it was: %v", err)
		}
		if err := use(d, p["h"], func(r *Request) { r.Path = "/elsewhere" }); err != nil {
			t.Errorf("to where it is now: %v", err)
		}
		d.Still([]Handle{*d.lent[1].h}, "the policy is another")
		if err := use(d, p["h"]); err == nil || !b.has("back h 2 the policy is another") || strings.Trim(string(held), "\x00") != "" {
			t.Errorf("%v, %q is held\n%s", err, held, b.text())
		}
		d.Still([]Handle{one, *d.lent[1].h}, "")
		if err := use(d, p["h"]); err == nil {
			t.Error("what was taken back was lent again")
		}
		if d.Reads("a.example", 443) != true || d.Reads("b.example", 443) {
			t.Error("what is read is not what is lent")
		}
		d.Close("over")
		if d.Reads("a.example", 443) {
			t.Error("it reads after its end")
		}
	})
	t.Run("no request of HTTP", func(t *testing.T) {
		var b book
		h, agent := h, Handle{Name: "agent", As: SSH, From: Source{Agent: true}, Approve: Never}
		h.Uses = 3
		d, _ := desk(&b, func(c *Config) { c.Used = map[string]int{"h": 2}; c.Lent[1].Handle.From.Env = "" }, h, agent)
		var got []byte
		err := d.Use(t.Context(), "h", Question{}, func(s []byte) error {
			if string(s) != secretText {
				t.Errorf("%q", s)
			}
			got = s
			return nil
		})
		if err != nil || strings.Trim(string(got), "\x00") != "" || !b.has("used h 0 3") {
			t.Errorf("%v, %q is left\n%s", err, got, b.text())
		}
		if err := d.Use(t.Context(), "agent", Question{}, func(s []byte) error { return fmt.Errorf("%d bytes", len(s)) }); err == nil || err.Error() != "0 bytes" {
			t.Errorf("an agent: %v", err)
		}
		for name, want := range map[string]string{"h": "used 3 times", "other": "is not lent"} {
			if err := d.Use(t.Context(), name, Question{}, func([]byte) error { t.Error("used"); return nil }); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if l := d.Lent(); len(l) != 2 || l[0].Placeholder.Value == "" {
			t.Errorf("%+v", l)
		}
	})
	t.Run("the end", func(t *testing.T) {
		var b book
		d, p := desk(&b, nil, h)
		if err := use(d, p["h"]); err != nil {
			t.Fatal(err)
		}
		held := d.lent[0].secretValue()
		d.Close("over")
		d.Close("over")
		if strings.Trim(string(held), "\x00") != "" || strings.Count(b.text(), "back h") != 1 {
			t.Errorf("%q is held\n%s", held, b.text())
		}
		if err := use(d, p["h"]); err == nil {
			t.Error("lent after the end")
		}
		var none *Desk
		if none.Close(""); none.Reads("a.example", 443) || use(&Desk{}, p["h"]) == nil {
			t.Error("no desk lends something")
		}
	})
}

func (e *entry) secretValue() []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.secret == nil {
		return nil
	}
	return e.secret.value
}

// Many requests at once, and the end among them.
func TestLendAtOnce(t *testing.T) {
	var b book
	h := Handle{Name: "h", As: Bearer, To: toA, Lifetime: time.Millisecond}
	d, p := desk(&b, nil, h)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range 20 {
				r := request(auth("Bearer ")(p["h"].Value))
				loan, err := d.Lend(context.Background(), r)
				if err == nil && loan != nil {
					if v := r.Header.Get("Authorization"); v != "Bearer "+secretText {
						t.Errorf("%q", v)
					}
					loan.Back()
				}
			}
		})
	}
	time.Sleep(5 * time.Millisecond)
	d.Close("over")
	all.Wait()
	if d.lent[0].secretValue() != nil || strings.Count(b.text(), "read h") != strings.Count(b.text(), "back h") {
		t.Errorf("read %d times, taken back %d times", strings.Count(b.text(), "read h"), strings.Count(b.text(), "back h"))
	}
}

// A request that was signed with the placeholder is signed with the key: the
// signature is the one that AWS's own signer makes of what leaves.
func TestSign(t *testing.T) {
	pair := `{"AccessKeyId":"AKIAREALREALREAL","SecretAccessKey":"real/secret+key","SessionToken":"a-session-token"}`
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		service string
		change  func(r *Request)
		always  bool
		fail    string
		payload string
	}{
		"s3":         {service: "s3", change: func(r *Request) { r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD") }, payload: "UNSIGNED-PAYLOAD"},
		"no body":    {service: "sts", payload: emptySum},
		"not signed": {service: "sts", always: true, change: func(r *Request) { r.Header.Del("Authorization") }, payload: emptySum},
		"a body":     {service: "sts", change: func(r *Request) { r.Length, r.Sum = 3, func() ([]byte, error) { return make([]byte, 32), nil } }, payload: strings.Repeat("0", 64)},
		"no digest":  {service: "sts", change: func(r *Request) { r.Length = 3 }, fail: "digest of its body is not known"},
		"chunks":     {service: "s3", change: func(r *Request) { r.Header.Set("X-Amz-Content-Sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD") }, fail: "in chunks"},
		"other service": {service: "sqs", change: func(r *Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "sqs", "iam", 1))
		}, fail: "signed for iam"},
	} {
		t.Run(name, func(t *testing.T) {
			var b book
			h := Handle{Name: "aws", As: SigV4, Region: "eu-central-1", Service: c.service, Always: c.always, To: []Dest{{Host: "a.example", Port: 443}}, Approve: Never, Header: "Authorization", Env: []string{"ID", "KEY"}, From: Source{Command: []string{"/x"}}}
			p := NewPlaceholder(&h)
			d := New(Config{Lent: []Lent{{h, p}}, Recorder: &b, Now: func() time.Time { return now }, Reader: Reader{Run: func(context.Context, []string) ([]byte, error) { return []byte(pair), nil }}})
			env := p.Env(&h)
			if !strings.HasPrefix(env["ID"], "AKIA") || len(env["ID"]) != 20 || len(env["KEY"]) != 40 {
				t.Errorf("%v", env)
			}
			r := request(http.Header{"X-Amz-Meta-Name": {"value"}, "User-Agent": {"test"}, "Accept-Encoding": {"gzip"}, "X-Amz-Date": {"20200101T000000Z"}})
			r.Path, r.Query = "/bucket/a%20file", "x=1"
			r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+env["ID"]+"/20260501/eu-central-1/"+c.service+"/aws4_request, SignedHeaders=host, Signature=00")
			if c.change != nil {
				c.change(r)
			}
			loan, err := d.Lend(t.Context(), r)
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Fatalf("%v, want %q", err, c.fail)
				}
				return
			}
			if err != nil || loan == nil {
				t.Fatal(loan, err)
			}
			sent, _ := http.NewRequest(r.Method, "https://a.example"+r.Path+"?"+r.Query, nil)
			sent.Header = r.Header.Clone()
			for _, n := range []string{"Authorization", "User-Agent", "Accept-Encoding"} {
				sent.Header.Del(n)
			}
			sent.ContentLength = r.Length
			signer := v4.NewSigner(func(o *v4.SignerOptions) {
				o.DisableURIPathEscaping = c.service == "s3"
				o.DisableHeaderHoisting = true
			})
			if err := signer.SignHTTP(t.Context(), aws.Credentials{AccessKeyID: "AKIAREALREALREAL", SecretAccessKey: "real/secret+key", SessionToken: "a-session-token"}, sent, c.payload, c.service, "eu-central-1", now); err != nil {
				t.Fatal(err)
			}
			if got, want := r.Header.Get("Authorization"), sent.Header.Get("Authorization"); got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
			if r.Header.Get("X-Amz-Date") != "20260501T120000Z" || r.Header.Get("X-Amz-Security-Token") != "a-session-token" || strings.Contains(fmt.Sprint(r.Header), env["ID"]) {
				t.Errorf("%v", r.Header)
			}
			if out, _ := io.ReadAll(loan.Body(strings.NewReader("<AWSAccessKeyId>AKIAREALREALREAL</AWSAccessKeyId> real/secret+key a-session-token"))); slices.ContainsFunc([]string{"REAL", "secret", "session"}, func(s string) bool { return strings.Contains(string(out), s) }) {
				t.Errorf("it came back: %s", out)
			}
		})
	}
}

const emptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestPlaceholder(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		p := NewPlaceholder(&Handle{As: Bearer, Form: "ghp_"})
		if seen[p.Value] || !strings.HasPrefix(p.Value, "ghp_") || len(p.Value) != 40 {
			t.Fatalf("%q", p.Value)
		}
		seen[p.Value] = true
	}
	if (Placeholder{}).stands(&Handle{As: Header, Header: "X"}, http.Header{"X": {""}}) {
		t.Error("an empty placeholder stands somewhere")
	}
}
