//go:build linux

package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/test/harness"
)

// seen is what reached the servers of the world: "http 93.184.215.14:80 a.test /"
// and the like.
var seen struct {
	sync.Mutex
	list []string
}

func note(format string, args ...any) {
	seen.Lock()
	defer seen.Unlock()
	seen.list = append(seen.list, fmt.Sprintf(format, args...))
}

// taken returns what was seen since the last call.
func taken() []string {
	seen.Lock()
	defer seen.Unlock()
	l := seen.list
	seen.list = nil
	return l
}

// hung is how many downloads without an end are under way.
var hung sync.WaitGroup

// startWorld starts the servers. Low ports are bound before capabilities go.
func startWorld(cert tls.Certificate) error {
	dns, err := net.ListenPacket("udp4", "127.0.0.1:53")
	if err != nil {
		return err
	}
	go answerNames(dns)
	mux := http.NewServeMux()
	mux.HandleFunc("/to-metadata", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+metadata+"/stolen", http.StatusFound)
	})
	mux.HandleFunc("/git/", serveGit)
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		hung.Add(1)
		defer hung.Done()
		note("endless begins")
		b := bytes.Repeat([]byte("x"), 64<<10)
		for {
			if _, err := w.Write(b); err != nil {
				note("endless ends")
				return
			}
		}
	})
	realServers(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		at := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		kind := "http"
		if r.TLS != nil {
			kind = "https " + r.TLS.ServerName
		}
		note("%s %s %s %s", kind, at, r.Host, r.URL.Path)
		if registryAnswers(w, r) {
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "here is %s, %s %s, %d bytes\n", at, r.Method, r.URL.Path, n)
	})
	for _, at := range []string{":80", "127.0.0.1:18080", "[::1]:18080"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			return err
		}
		go http.Serve(l, mux)
	}
	l, err := net.Listen("tcp", ":443")
	if err != nil {
		return err
	}
	go (&http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, ErrorLog: log.New(io.Discard, "", 0)}).ServeTLS(l, "", "")
	for _, at := range []string{":9998", "127.0.0.1:5432", "10.9.0.1:5432"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			return err
		}
		go echo(l)
	}
	u, err := net.ListenPacket("udp", ":9999")
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 100)
		for {
			n, _, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			note("udp %s", strings.TrimSpace(string(b[:n])))
		}
	}()
	if os.Getuid() != 0 {
		return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	}
	return nil
}

func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			line, err := bufio.NewReader(c).ReadString('\n')
			note("tcp %s %s", c.LocalAddr(), strings.TrimSpace(line))
			if err == nil {
				fmt.Fprintf(c, "echo %s", line)
			}
		}()
	}
}

// zone is what the name server knows; the flipping name answers in turn.
var zone = map[string][]string{
	"meta.test": {metadata}, "lan.test": {lan}, "local.test": {"127.0.0.1"},
	"mixed.test": {public, "127.0.0.1"}, "mapped.test": {"::ffff:" + metadata}, "nat64.test": {"64:ff9b::a9fe:a9fe"},
}

var flips struct {
	sync.Mutex
	n int
}

func init() {
	for name, addr := range named {
		zone[name] = []string{addr}
	}
}

// answerNames is the authority for everything, and notes each question.
func answerNames(pc net.PacketConn) {
	b := make([]byte, 1500)
	for {
		n, from, err := pc.ReadFrom(b)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		name := strings.TrimSuffix(q.Name.String(), ".")
		note("dns %s", name)
		out := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true}, Questions: m.Questions}
		addrs := zone[name]
		if name == "flip.test" {
			flips.Lock()
			if addrs = []string{public}; q.Type == dnsmessage.TypeA {
				if flips.n++; flips.n%2 == 0 {
					addrs = []string{"127.0.0.1"}
				}
			}
			flips.Unlock()
		}
		if addrs == nil {
			out.RCode = dnsmessage.RCodeNameError
		}
		for _, s := range addrs {
			a := netip.MustParseAddr(s)
			h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: dnsmessage.ClassINET}
			switch {
			case q.Type == dnsmessage.TypeA && a.Is4():
				out.Answers = append(out.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
			case q.Type == dnsmessage.TypeAAAA && a.Is6():
				out.Answers = append(out.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
			}
		}
		if p, err := out.Pack(); err == nil {
			_, _ = pc.WriteTo(p, from)
		}
	}
}

// place is a repository of somebody in this world.
type place struct {
	*harness.Identity
	t    *testing.T
	repo string
}

// each runs f as every identity, in a world; one after the other, for there is
// one list of what was seen.
func each(t *testing.T, f func(p *place)) {
	t.Helper()
	if noWorld != "" {
		t.Skip("no network namespace of its own: " + noWorld)
	}
	if harness.Sampled() {
		one(t, f)
		return
	}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		f(&place{id, t, id.Repo(t, map[string]string{"a.txt": "a\n"})})
	})
}

// one is each for what depends on no identity: it takes the unprivileged one, and
// with CAISSON_TEST_FULL all.
func one(t *testing.T, f func(p *place)) {
	t.Helper()
	if os.Getenv("CAISSON_TEST_FULL") != "" && !harness.Sampled() {
		each(t, f)
		return
	}
	if noWorld != "" {
		t.Skip("no network namespace of its own: " + noWorld)
	}
	id := harness.NewIdentity(t, "user", harness.UserOf())
	f(&place{id, t, id.Repo(t, map[string]string{"a.txt": "a\n"})})
}

func (p *place) open(flags ...string) string { return p.Open(p.t, p.repo, flags...) }

// sh runs a line in a task.
func (p *place) sh(task, line string) harness.Result {
	return p.Caisson(p.t, p.repo, "exec", task, "--", "bash", "-c", line)
}

// outside runs the same line without a boundary.
func (p *place) outside(line string) harness.Result {
	return harness.Run(p.t, p.Command(p.t.Context(), p.repo, "bash", "-c", line))
}

// event is one line of a task's record.
type event struct {
	Seq  uint64
	Type string
	Body map[string]any
}

// crossings is what a task's record says of its way out.
func (p *place) crossings(task string) (out []event) {
	for line := range strings.SplitSeq(strings.TrimSpace(p.OK(p.t, p.repo, "log", "--json", "--egress", task)), "\n") {
		if line != "" {
			out = append(out, harness.Decode[event](p.t, line))
		}
	}
	return out
}
