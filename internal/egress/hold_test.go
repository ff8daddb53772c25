package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

func TestActs(t *testing.T) {
	g := &Gate{Config: Config{Registry: func(host string) bool { return host == "packages.test" }}}
	for req, want := range map[string]Act{
		"GET http://h.test/":                                                 "",
		"POST http://h.test/form":                                            "",
		"PUT http://h.test/v1/item":                                          "",
		"DELETE http://h.test/item":                                          ActDelete,
		"POST http://h.test/r.git/git-receive-pack":                          ActPush,
		"POST http://h.test/r.git/GIT-receive-pack":                          ActPush,
		"POST http://h.test/r.git/git-upload-pack":                           "",
		"PUT http://packages.test/left-pad":                                  ActPublish,
		"PUT http://packages.test/@a%2fb":                                    ActPublish,
		"GET http://packages.test/left-pad":                                  "",
		"POST http://packages.test/legacy/":                                  ActPublish,
		"PUT http://packages.test/api/v1/crates/new":                         ActPublish,
		"PUT http://own.test/api/v1/crates/new":                              ActPublish,
		"PUT http://reg.test/v2/x/y/manifests/1.0":                           ActPublish,
		"POST http://reg.test/v2/x/y/blobs/uploads/":                         "",
		"POST http://api.github.com/repos/a/b/pulls":                         ActChange,
		"PATCH http://git.test/api/v3/repos/a/b":                             ActChange,
		"POST http://api.github.com/graphql":                                 ActMutate,
		"GET http://api.github.com/repos/a/b":                                "",
		"POST http://h.test/item X-HTTP-Method-Override: delete":             ActDelete,
		"POST http://h.test/item?_method=delete":                             ActDelete,
		"PUT http://own.test/pkg User-Agent: npm/10.8.2 node/v20":            ActPublish,
		"PUT http://own.test/pkg Npm-Command: publish":                       ActPublish,
		"GET http://own.test/pkg User-Agent: npm/10.8.2 node/v20":            "",
		"POST http://own.test/up User-Agent: twine/5.0":                      "",
		"PUT http://own.test/-/user/org.couchdb.user:x User-Agent: npm/10 x": "",
		// The same in forms that some server reads so.
		"POST http://h.test/r.git/git-receive%2Dpack":               ActPush,
		"POST http://h.test/r.git/git-receive%252dpack":             ActPush,
		"POST http://h.test/r.git/git-receive-pack/":                ActPush,
		"POST http://h.test/r.git/git-receive-pack;x=1":             ActPush,
		"POST http://h.test/r.git/git-receive-pack%20":              ActPush,
		"POST http://h.test/r.git//git-receive-pack/.":              ActPush,
		"POST http://h.test/r.git/git-receive-pack%3fx":             ActPush,
		"POST http://h.test/r.git/x/..%2fgit-receive-pack":          ActPush,
		"POST http://h.test/r.git/x/..%5cgit-receive-pack":          ActPush,
		"POST http://h.test/r.git/git-upload-pack?git-receive-pack": "",
		"PUT http://h.test/r.git/refs/heads/main":                   ActPush,
		"MOVE http://h.test/r.git/refs/heads/main_tmp":              ActPush,
		"POST http://packages.test//legacy":                         ActPublish,
		"PUT http://reg.test/v2/x/%6danifests/1":                    ActPublish,
		"POST http://api.github.com/graphql/":                       ActMutate,
		"GET http://api.github.com/graphql?query=%6Dutation":        ActMutate,
		"GET http://h.test/item X-Http-Method-Override: DELETE":     ActDelete,
		"PUT http://h.test/item X_HTTP_Method_Override: delete":     ActDelete,
		"POST http://h.test/item?a=1&%5Fmethod=delete":              ActDelete,
		"POST http://h.test/item?a=_method%3Ddelete":                "",
	} {
		w := strings.SplitN(req, " ", 3)
		u, err := ParseURL(w[1])
		if err != nil {
			t.Fatal(err)
		}
		h := &head{method: w[0]}
		if len(w) == 3 {
			name, value, _ := strings.Cut(w[2], ": ")
			h.fields = []field{{name, value}}
		}
		if got, _ := g.actOf(h, u.Dest, u.Path); got != want {
			t.Errorf("%s: %q, want %q", req, got, want)
		}
	}
}

func pkt(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

const (
	shaA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	shaB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	sha0 = "0000000000000000000000000000000000000000"
)

func TestRefUpdates(t *testing.T) {
	for in, want := range map[string]string{
		"0000": "[] <nil>",
		pkt(shaA+" "+shaB+" refs/heads/main\x00 report-status") + pkt(sha0+" "+shaB+" refs/tags/v1\n") + "0000PACK": "[moves refs/heads/main from aaaaaaaaaaaa to bbbbbbbbbbbb makes refs/tags/v1 at bbbbbbbbbbbb] <nil>",
		pkt(shaA+" "+sha0+" refs/heads/x") + "0000":                                                                 "[deletes refs/heads/x, which is aaaaaaaaaaaa] <nil>",
		pkt("shallow "+shaA) + "0000":                                                                               "[] <nil>",
		pkt("push-cert\x00x") + "0000":                                                                              "[line push-cert] <nil>",
		"":                                                                                                          "[] it breaks off",
		"zzzz":                                                                                                      `[] "zzzz" is no length of a line`,
		"0003":                                                                                                      "[] a line breaks off",
		"ffff" + shaA:                                                                                               "[] a line breaks off",
		"+001":                                                                                                      `[] "+001" is no length of a line`,
	} {
		got, err := refUpdates([]byte(in))
		if s := fmt.Sprint(got, " ", err); s != want {
			t.Errorf("%q: %s, want %s", in, s, want)
		}
	}
}

func FuzzRefUpdates(f *testing.F) {
	f.Add([]byte(pkt(shaA+" "+shaB+" refs/heads/main\x00 report-status") + "0000PACK"))
	f.Add([]byte("0004"))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := refUpdates(b)
		if len(out) > maxCommands+1 {
			t.Errorf("%d updates", len(out))
		}
		if err == nil && !bytes.Contains(b, []byte("0000")) {
			t.Error("an end that is not there")
		}
	})
}

func TestMutates(t *testing.T) {
	for body, want := range map[string]bool{
		`{"query":"query { viewer { login } }"}`:           false,
		`{"query":"mutation { x }"}`:                       true,
		`{"query":"\u006dutation { x }"}`:                  true,
		`[{"query":"{a}"},{"query":"mutation M {x}"}]`:     true,
		`{"query":"{a}"}`:                                  false,
		`{"extensions":{"persistedQuery":{}}}`:             true,
		`not json`:                                         true,
		`[]`:                                               true,
		``:                                                 true,
		`{"query":"{a}","query":"mutation {x}"}`:           true,
		`{"query":"mutation {x}","query":"{a}"}`:           true,
		`{"Query":"mutation {x}","query":"{a}"}`:           true,
		`{"query":"fragment F on T {a} mutation M { x }"}`: true,
	} {
		if got, _ := mutates(&head{}, []byte(body)); got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
}

// person notes questions and answers them.
type person struct {
	mu  sync.Mutex
	got []Held
	say func(Held) (bool, error)
}

func (a *person) ask(ctx context.Context, p Point, rule string) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.Held == nil {
		return false, errors.New("asked about no request")
	}
	a.got = append(a.got, *p.Held)
	return a.say(*p.Held)
}

// outward asks about every act at a.test, and leaves the rest to only.
func outward(p Point) Answer {
	a := only("a.test")(p)
	if a.Verdict == task.VerdictAllow && p.Act != "" {
		a.Verdict, a.Rule = task.VerdictAsk, "acts are asked about"
	}
	return a
}

// TestHeld: what a person is asked about is all of the request, and what is sent
// after a yes is exactly that, once; after a no nothing is.
func TestHeld(t *testing.T) {
	var mu sync.Mutex
	var got []string
	port := web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		got = append(got, fmt.Sprintf("%s %s %d %s", r.Method, r.URL, len(b), r.Header.Get("Expect")))
		mu.Unlock()
		fmt.Fprintf(w, "%.20s", b)
	}))
	a := &person{}
	w := open(t, Config{Judge: outward, Ask: a.ask, Spool: func() (*os.File, error) {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err == nil {
			err = os.Remove(f.Name())
		}
		return f, err
	}})
	long := strings.Repeat("x", 3*maxMemory)
	at := fmt.Sprintf("http://a.test:%d", port)
	req := func(method, target, more, body string) string {
		return fmt.Sprintf("%s %s%s HTTP/1.1\r\nHost: a.test:%d\r\n%s\r\n%s", method, at, target, port, more, body)
	}
	push := pkt(shaA+" "+shaB+" refs/heads/main\x00caps") + "0000"
	for _, c := range []struct {
		name, text string
		yes        bool
		sent       string // what the server got; empty: nothing
		says       string // what the client is told
		question   string // what is in it; empty: none
	}{
		{"delete, yes", req("DELETE", "/x?q=1", "", ""), true, "DELETE /x?q=1 0 ", "200", "DELETE"},
		{"delete, no", req("DELETE", "/x?q=1", "", ""), false, "", "403", "DELETE"},
		{"no act", req("POST", "/x", "Content-Length: 2\r\n", "hi"), false, "POST /x 2 ", "200", ""},
		{"push in chunks, yes", req("POST", "/r/git-receive-pack", "Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(push), push)), true, fmt.Sprintf("POST /r/git-receive-pack %d ", len(push)), "200", "moves refs/heads/main from aaaaaaaaaaaa to bbbbbbbbbbbb"},
		{"push of nothing", req("POST", "/r/git-receive-pack", "Content-Length: 4\r\n", "0000"), false, "POST /r/git-receive-pack 4 ", "200", ""},
		{"long, yes", req("DELETE", "/long", fmt.Sprintf("Content-Length: %d\r\n", len(long)), long), true, fmt.Sprintf("DELETE /long %d ", len(long)), "200", "DELETE"},
		{"two in one go", req("DELETE", "/one", "", "") + req("DELETE", "/two", "", ""), true, "DELETE /one 0 |DELETE /two 0 ", "200", "/two"},
		{"a query reads", req("POST", "/graphql", "Content-Length: 15\r\n", `{"query":"{a}"}`), false, "POST /graphql 15 ", "200", ""},
		{"an upgrade", req("DELETE", "/x", "Connection: upgrade\r\nUpgrade: websocket\r\n", ""), true, "DELETE /x 0 ", "200", "DELETE"},
	} {
		got, a.got = nil, nil
		a.say = func(Held) (bool, error) { return c.yes, nil }
		conn := w.dialled(t)
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		io.WriteString(conn, c.text)
		br := bufio.NewReader(conn)
		for range strings.Count(c.text, " HTTP/1.1\r\n") {
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			b, _ := io.ReadAll(resp.Body)
			if !strings.Contains(resp.Status, c.says) {
				t.Errorf("%s: %s %s", c.name, resp.Status, b)
			}
		}
		conn.Close()
		mu.Lock()
		if s := strings.Join(got, "|"); s != c.sent {
			t.Errorf("%s: the server got %q, want %q", c.name, s, c.sent)
		}
		mu.Unlock()
		if text := fmt.Sprintf("%+v", a.got); (len(a.got) > 0) != (c.question != "") || !strings.Contains(text, c.question) {
			t.Errorf("%s: asked %s", c.name, text)
		}
	}
	w.Gate.Close() // the client may have its answer before the last of them is given back
	for end := time.Now().Add(30 * time.Second); w.held.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are still held", w.held.Load())
		}
	}
}

// TestHeldDigest: each part of a request is in what an answer is bound to.
func TestHeldDigest(t *testing.T) {
	d, _ := ParseAuthority("a.test:80", 0)
	e, _ := ParseAuthority("a.test:81", 0)
	g, err := New(Config{Judge: only(), Recorder: &notes{}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	seen := map[string]string{}
	for name, x := range map[string]*holding{
		"as it is": g.hold(&head{method: "PUT", length: 1, fields: []field{{"A", "b"}}}, d, "/p", false, strings.NewReader("1")),
		"method":   g.hold(&head{method: "POST", length: 1, fields: []field{{"A", "b"}}}, d, "/p", false, strings.NewReader("1")),
		"port":     g.hold(&head{method: "PUT", length: 1, fields: []field{{"A", "b"}}}, e, "/p", false, strings.NewReader("1")),
		"query":    g.hold(&head{method: "PUT", length: 1, fields: []field{{"A", "b"}}}, d, "/p?", false, strings.NewReader("1")),
		"tls":      g.hold(&head{method: "PUT", length: 1, fields: []field{{"A", "b"}}}, d, "/p", true, strings.NewReader("1")),
		"body":     g.hold(&head{method: "PUT", length: 1, fields: []field{{"A", "b"}}}, d, "/p", false, strings.NewReader("2")),
		"field":    g.hold(&head{method: "PUT", length: 1, fields: []field{{"A", "c"}}}, d, "/p", false, strings.NewReader("1")),
		"no body":  g.hold(&head{method: "PUT", fields: []field{{"A", "b"}}}, d, "/p", false, nil),
	} {
		h, err := x.all(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if o := seen[h.Digest]; o != "" {
			t.Errorf("%q and %q are one to a person's answer", o, name)
		}
		seen[h.Digest] = name
		x.release()
	}
}

// TestHeldBounds: what is too long for a question is refused before anybody is
// asked, and so is a request whose client goes away.
func TestHeldBounds(t *testing.T) {
	reached := make(chan string, 10)
	port := web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { reached <- r.Method }))
	a := &person{say: func(Held) (bool, error) { return true, nil }}
	w := open(t, Config{Judge: outward, Ask: a.ask}) // no place but memory
	head := func(n int64, more string) string {
		return fmt.Sprintf("DELETE http://a.test:%d/x HTTP/1.1\r\nHost: a.test:%d\r\nContent-Length: %d\r\n%s\r\n", port, port, n, more)
	}
	if got := w.say(t, head(maxHeld+1, "")); !strings.Contains(got, "403") || !strings.Contains(got, "the most that waits here") {
		t.Errorf("too long: %s", got)
	}
	if got := w.say(t, head(2*maxMemory, "")+strings.Repeat("x", 2*maxMemory)); !strings.Contains(got, "403") || !strings.Contains(got, "no place for one of more than") {
		t.Errorf("no place: %s", got)
	}
	// Who waits for a word before it sends its body gets it, once.
	c := w.dialled(t)
	io.WriteString(c, head(2, "Expect: 100-continue\r\n"))
	if l := line(t, c); l != "HTTP/1.1 100 Continue" {
		t.Fatal(l)
	}
	io.WriteString(c, "hi")
	if l := line(t, c); l != "HTTP/1.1 200 OK" {
		t.Error(l)
	}
	if m := <-reached; m != "DELETE" {
		t.Error(m)
	}
	c.Close()
	// The client is gone before the answer, which then comes too late.
	asking, gone := make(chan bool), make(chan bool)
	b := open(t, Config{Judge: outward, Ask: func(ctx context.Context, p Point, _ string) (bool, error) {
		close(asking)
		<-ctx.Done()
		close(gone)
		return true, nil
	}})
	c = b.dialled(t)
	io.WriteString(c, head(0, ""))
	<-asking
	c.Close()
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		t.Fatal("the question outlives its client")
	}
	b.notes.finished(t)
	select {
	case m := <-reached:
		t.Errorf("%s was sent for nobody", m)
	default:
	}
}

// TestHeldJudgedAgain: a rule that changes while a person thinks counts, and what
// the person said is told.
func TestHeldJudgedAgain(t *testing.T) {
	port := web(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was sent") }))
	denied := false
	judge := func(p Point) Answer {
		if denied {
			return Answer{Verdict: task.VerdictDeny, Rule: "now denied"}
		}
		return outward(p)
	}
	a := &person{say: func(Held) (bool, error) { denied = true; return true, nil }}
	w := open(t, Config{Judge: judge, Ask: a.ask})
	text := fmt.Sprintf("DELETE http://a.test:%d/x HTTP/1.1\r\nHost: a.test:%d\r\n\r\n", port, port)
	if got := w.say2(t, text); !strings.Contains(got, "now denied") {
		t.Error(got)
	}
	denied = false
	a.say = func(Held) (bool, error) { return false, errors.New("a person denied it: not today") }
	if got := w.say2(t, text); !strings.Contains(got, "403") || !strings.Contains(got, "not today") {
		t.Error(got)
	}
	ds, _ := w.notes.all()
	if d := ds[len(ds)-1]; d.Act != ActDelete || d.Digest == "" || !strings.Contains(d.Rule, "not today") || d.Reason != ReasonAsk {
		t.Errorf("on record: %+v", d)
	}
}

// say2 is say by a client that waits for its answer.
func (w *way) say2(t testing.TB, text string) string {
	t.Helper()
	var c net.Conn = w.dialled(t)
	io.WriteString(c, text)
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestHeldTrailer: what a person is asked about has no trailer, which they would
// not see. One that nobody is asked about has it.
func TestHeldTrailer(t *testing.T) {
	for _, held := range []bool{false, true} {
		late := make(chan string, 1)
		port, roots := secureWeb(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			late <- r.Trailer.Get("X-Http-Method-Override")
		}))
		a := &person{say: func(Held) (bool, error) { return true, nil }}
		judge := func(p Point) Answer {
			v := task.VerdictAllow
			if held && p.Method != "" {
				v = task.VerdictAsk
			}
			return Answer{v, "test", loopback}
		}
		w := reading(t, Config{Roots: roots, Judge: judge, Ask: a.ask}, port)
		req, err := http.NewRequest("POST", w.url("/x"), io.MultiReader(strings.NewReader("body")))
		if err != nil {
			t.Fatal(err)
		}
		req.Trailer = http.Header{"X-Http-Method-Override": {"DELETE"}}
		resp, err := w.client(t, true).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		if got, want := <-late, map[bool]string{false: "DELETE"}[held]; got != want {
			t.Errorf("held %v: the trailer says %q", held, got)
		}
		w.notes.finished(t)
	}
}
