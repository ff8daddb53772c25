package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

func dest(t testing.TB, s string) Dest {
	t.Helper()
	d, err := ParseAuthority(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestZeroValuesDeny(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a gate without judge and recorder")
	}
	z := &zone{}
	w := open(t, Config{Judge: func(Point) Answer { return Answer{} }, Resolver: z})
	_, err := w.Open(context.Background(), Request{Proto: ProtoConnect, Dest: dest(t, "example.com:443")})
	if ReasonOf(err) != ReasonRule || task.CodeOf(err) != task.CodeDenied {
		t.Errorf("%v", err)
	}
	if _, err := w.Open(context.Background(), Request{}); ReasonOf(err) != ReasonForm {
		t.Errorf("nothing asked for: %v", err)
	}
	if q := z.questions(); len(q) != 0 {
		t.Errorf("resolved %q", q)
	}
}

// TestAddresses holds every set of addresses that a name may have against an
// allowed name: one that is special refuses all.
func TestAddresses(t *testing.T) {
	port := web(t, nil)
	for name, c := range map[string]struct {
		addrs []string
		rng   string
		want  Reason
	}{
		"the granted loopback":       {[]string{"127.0.0.1"}, "127.0.0.1/32", ""},
		"in the clothes of IPv6":     {[]string{"::ffff:127.0.0.1"}, "127.0.0.1/32", ""},
		"twice the same":             {[]string{"127.0.0.1", "127.0.0.1"}, "127.0.0.0/8", ""},
		"loopback, by name alone":    {[]string{"127.0.0.1"}, "", ReasonAddress},
		"loopback, all addresses":    {[]string{"127.0.0.1"}, "0.0.0.0/0", ReasonAddress},
		"mixed":                      {[]string{"93.184.215.14", "127.0.0.1"}, "", ReasonAddress},
		"mixed, the other way round": {[]string{"10.0.0.1", "93.184.215.14"}, "", ReasonAddress},
		"half granted":               {[]string{"127.0.0.1", "127.0.0.2"}, "127.0.0.1/32", ReasonAddress},
		"metadata":                   {[]string{"169.254.169.254"}, "169.254.0.0/16", ReasonAddress},
		"metadata, IPv4 in IPv6":     {[]string{"::ffff:169.254.169.254"}, "", ReasonAddress},
		"metadata, IPv6":             {[]string{"fd00:ec2::254"}, "fc00::/7", ReasonAddress},
		"private":                    {[]string{"192.168.1.1"}, "", ReasonAddress},
		"shared":                     {[]string{"100.64.0.1"}, "", ReasonAddress},
		"NAT64":                      {[]string{"64:ff9b::7f00:1"}, "", ReasonAddress},
		"6to4":                       {[]string{"2002:7f00:1::"}, "", ReasonAddress},
		"only IPv6 loopback":         {[]string{"::1"}, "127.0.0.1/32", ReasonAddress},
		"unspecified":                {[]string{"0.0.0.0"}, "", ReasonAddress},
		"our stand-ins":              {[]string{"198.18.0.1"}, "", ReasonAddress},
		"this machine":               {[]string{"93.184.215.99"}, "0.0.0.0/0", ReasonAddress},
		"with a zone":                {[]string{"2606:4700::1%lo"}, "", ReasonAddress},
		"none":                       {nil, "", ReasonResolve},
	} {
		t.Run(name, func(t *testing.T) {
			var dialled []netip.AddrPort
			var r netip.Prefix
			if c.rng != "" {
				r = netip.MustParsePrefix(c.rng)
			}
			w := open(t, Config{
				Resolver: &zone{at: map[string][]string{"a.test": c.addrs}},
				Judge:    func(p Point) Answer { return Answer{task.VerdictAllow, "all", r} },
				Own:      func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("93.184.215.99")} },
				Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
					dialled = append(dialled, to)
					return (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
				},
			})
			conn, err := w.Open(context.Background(), Request{Proto: ProtoConnect, Dest: dest(t, fmt.Sprintf("a.test:%d", port))})
			if ReasonOf(err) != c.want {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if c.want == "" {
				conn.finish(nil)
				if len(dialled) != 1 || dialled[0].Addr() != loopback.Addr() {
					t.Errorf("dialled %v", dialled)
				}
			} else if len(dialled) != 0 {
				t.Errorf("refused, and dialled %v", dialled)
			}
			if c.want == ReasonAddress {
				if o := w.notes.finished(t); len(o) != 1 || o[0].Reason != ReasonAddress || !strings.Contains(o[0].Text, "a.test") {
					t.Errorf("recorded as %+v", o)
				} else if why := o[0].Text; strings.Contains(why, ": private") && !strings.Contains(why, "--allow "+c.addrs[0]+":") || strings.Contains(why, string(ClassMetadata)) && strings.Contains(why, "--allow") {
					t.Errorf("the next step: %s", why)
				}
				if strings.Contains(ForTask(err), "--allow") {
					t.Errorf("the task is told %s", ForTask(err))
				}
			}
		})
	}
}

// TestLocalhost: nobody is asked where the names of the loopback interface are.
func TestLocalhost(t *testing.T) {
	z := &zone{at: map[string][]string{"localhost": {"93.184.215.14"}, "a.localhost": {"93.184.215.14"}}}
	w := open(t, Config{Resolver: z, Judge: func(Point) Answer { return Answer{Verdict: task.VerdictAllow, Rule: "all"} }})
	for _, at := range []string{"localhost:80", "LOCALHOST.:80", "a.localhost:443"} {
		if _, err := w.Open(context.Background(), Request{Proto: ProtoConnect, Dest: dest(t, at)}); ReasonOf(err) != ReasonAddress {
			t.Errorf("%s: %v", at, err)
		}
	}
	if q := z.questions(); len(q) > 0 {
		t.Errorf("resolved %q", q)
	}
}

// TestRebinding has a name move between two questions for it, and between the
// check and the dial: what was checked is what is dialled.
func TestRebinding(t *testing.T) {
	port := web(t, nil)
	z := &zone{next: func(n int, _ string) []string {
		if n%2 == 1 {
			return []string{"127.0.0.1"}
		}
		return []string{"169.254.169.254"}
	}}
	var mu sync.Mutex
	var dialled []string
	w := open(t, Config{Judge: only("rebind.test"), Resolver: z, Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		mu.Lock()
		dialled = append(dialled, to.String())
		mu.Unlock()
		return (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
	}})
	for i := range 6 {
		got := w.say(t, fmt.Sprintf("GET http://rebind.test:%d/ HTTP/1.1\r\nHost: rebind.test:%d\r\n\r\n", port, port))
		if ok := strings.Contains(got, "200 OK"); ok != (i%2 == 0) {
			t.Errorf("request %d: %q", i, got)
		}
		if strings.Contains(got, "169.254") {
			t.Errorf("the task is told where the name leads: %q", got)
		}
	}
	if o := w.notes.finished(t); strings.Count(fmt.Sprint(o), "a rule about that address grants") != 3 || !strings.Contains(fmt.Sprint(o), "rebind.test has the address 169.254.169.254") {
		t.Errorf("the record does not say where it led: %+v", o)
	}
	if len(z.questions()) != 6 {
		t.Errorf("%d questions for 6 requests", len(z.questions()))
	}
	for _, d := range dialled {
		if d != fmt.Sprintf("127.0.0.1:%d", port) {
			t.Errorf("dialled %s", d)
		}
	}
	// A dialler that goes elsewhere is found out.
	l := listen(t)
	w = open(t, Config{Judge: only("a.test"), Dial: func(context.Context, netip.AddrPort) (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }})
	if c, err := w.Open(context.Background(), Request{Proto: ProtoConnect, Dest: dest(t, "a.test:1")}); err == nil {
		c.finish(nil)
		t.Error("reached another address")
	} else if ReasonOf(err) != ReasonAddress {
		t.Error(err)
	}
}

func TestDirectAddresses(t *testing.T) {
	port := web(t, nil)
	w := open(t, Config{Judge: only("127.0.0.1")})
	c, err := w.Open(context.Background(), Request{Proto: ProtoConnect, Dest: dest(t, fmt.Sprintf("127.0.0.1:%d", port))})
	if err != nil {
		t.Fatal(err)
	}
	c.finish(nil)
	w = open(t, Config{Judge: func(Point) Answer { return Answer{task.VerdictAllow, "all", netip.MustParsePrefix("0.0.0.0/0")} }})
	for _, a := range []string{"127.0.0.1:80", "169.254.169.254:80", "10.0.0.1:443", "100.100.100.200:80", "[fd00::1]:80", "198.18.0.1:80"} {
		if _, err := w.Open(context.Background(), Request{Proto: ProtoConnect, Dest: dest(t, a)}); ReasonOf(err) != ReasonAddress {
			t.Errorf("%s: %v", a, err)
		}
	}
	if d, o := w.notes.all(); len(d) != 6 || len(o) != 0 || d[0].Reason != ReasonAddress || d[0].Verdict != task.VerdictDeny {
		t.Errorf("recorded as %+v %+v", d, o)
	}
}

func TestAsk(t *testing.T) {
	port := web(t, nil)
	judge := func(Point) Answer { return Answer{task.VerdictAsk, "a person is to agree", loopback} }
	for name, c := range map[string]struct {
		ask  Asker
		want Reason
	}{
		"nobody is there": {nil, ReasonAsk},
		"no":              {func(context.Context, Point, string) (bool, error) { return false, nil }, ReasonAsk},
		"a fault":         {func(context.Context, Point, string) (bool, error) { return true, errors.New("lost") }, ReasonAsk},
		"yes": {func(_ context.Context, p Point, _ string) (bool, error) {
			return p.Host == "a.test" && !p.Addr.IsValid(), nil
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := open(t, Config{Judge: judge, Ask: c.ask})
			conn, err := w.Open(context.Background(), Request{Proto: ProtoConnect, Dest: dest(t, fmt.Sprintf("a.test:%d", port))})
			if ReasonOf(err) != c.want {
				t.Fatalf("%v", err)
			}
			if err == nil {
				conn.finish(nil)
			} else if len(w.zone.questions()) != 0 {
				t.Error("resolved before the answer")
			}
			if d, _ := w.notes.all(); d[0].Asked != (err == nil) {
				t.Errorf("recorded as %+v", d)
			}
		})
	}
}

// TestRecord refuses what cannot be recorded before anything leaves.
func TestRecord(t *testing.T) {
	n := &notes{fail: errors.New("disk full")}
	z := &zone{}
	w := open(t, Config{Judge: only("a.test"), Resolver: z, Recorder: n})
	if _, err := w.Open(context.Background(), Request{Proto: ProtoConnect, Dest: dest(t, "a.test:1")}); ReasonOf(err) != ReasonRecord || task.CodeOf(err) != task.CodeEvidence {
		t.Errorf("%v", err)
	}
	if q := z.questions(); len(q) != 0 {
		t.Errorf("resolved %q", q)
	}
}

func TestLimits(t *testing.T) {
	l := listen(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	to := fmt.Sprintf("a.test:%d", portOf(l.Addr().String()))
	t.Run("connections", func(t *testing.T) {
		w := open(t, Config{Judge: only("a.test"), Limits: Limits{Conns: 2}})
		a, s1 := w.tunnelTo(t, to)
		_, s2 := w.tunnelTo(t, to)
		_, s3 := w.tunnelTo(t, to)
		if !strings.Contains(s1+s2, "200") || !strings.Contains(s3, "429") {
			t.Fatalf("%q %q %q", s1, s2, s3)
		}
		a.Close()
		for range 1000 {
			c, s := w.tunnelTo(t, to)
			c.Close()
			if strings.Contains(s, "200") {
				return
			}
		}
		t.Error("none came free")
	})
	t.Run("bytes", func(t *testing.T) {
		w := open(t, Config{Judge: only("a.test"), Limits: Limits{Bytes: 1000}})
		a, _ := w.tunnelTo(t, to)
		a.Write(make([]byte, 2000))
		io.Copy(io.Discard, a)
		o := w.notes.finished(t)
		if o[0].Reason != ReasonLimit || o[0].Up < 1000 || o[0].Up+o[0].Down > 4000 {
			t.Errorf("%+v", o)
		}
		if _, s := w.tunnelTo(t, to); !strings.Contains(s, "429") {
			t.Errorf("then %q", s)
		}
	})
	t.Run("rate", func(t *testing.T) {
		l := newLimiter(Limits{PerSecond: 100, Burst: 1})
		begin := time.Now()
		for range 11 {
			if err := l.pace(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(begin); d < 80*time.Millisecond {
			t.Errorf("11 at 100 a second took %v", d)
		}
		slow := newLimiter(Limits{PerSecond: 0.001, Burst: 1})
		if err := slow.pace(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := slow.pace(context.Background()); ReasonOf(err) != ReasonLimit {
			t.Errorf("%v", err)
		}
	})
}

// TestClose ends what is open, and everything is recorded by then.
func TestClose(t *testing.T) {
	l := listen(t)
	n := &notes{}
	w := open(t, Config{Judge: only("a.test"), Recorder: n})
	c, s := w.tunnelTo(t, fmt.Sprintf("a.test:%d", portOf(l.Addr().String())))
	if !strings.Contains(s, "200") {
		t.Fatal(s)
	}
	w.Close()
	if _, o := n.all(); len(o) != 1 || o[0].Reason != ReasonClosed {
		t.Errorf("%+v", o)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the client's end is open")
	}
	if _, err := w.Open(context.Background(), Request{Proto: ProtoConnect, Dest: dest(t, "a.test:1")}); ReasonOf(err) != ReasonClosed {
		t.Errorf("after that: %v", err)
	}
}
