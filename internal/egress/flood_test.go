package egress

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestStreamsThatTakeNoAnswer: requests of HTTP/2 whose answers nobody takes stay in
// memory, so that all connections together have a bounded number of them; once they
// are given up others are served.
func TestStreamsThatTakeNoAnswer(t *testing.T) {
	const most, each = 3, 5
	port, roots := secureWeb(t, true, nil)
	m := &matrix{readable: reading(t, Config{Roots: roots, Limits: Limits{Conns: most}}, port)}
	held, reset := 0, 0
	var give []func()
	for range 2 {
		c := m.secured(t, m.asked(t, "connect", m.at(true)), "h2")
		io.WriteString(c, http2.ClientPreface)
		fr := http2.NewFramer(c, c)
		fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for i := range each {
			var b strings.Builder
			enc := hpack.NewEncoder(&b)
			for _, f := range request2("GET", m.at(true), "/no") {
				enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
			}
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: []byte(b.String()), EndStream: true, EndHeaders: true})
		}
		for n := 0; n < each; {
			f, err := fr.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			switch f.(type) {
			case *http2.HeadersFrame: // an answer, of which the body waits
				held, n = held+1, n+1
			case *http2.RSTStreamFrame:
				reset, n = reset+1, n+1
			}
		}
		give = append(give, func() { c.Close() })
	}
	if held != most || reset != 2*each-most {
		t.Errorf("%d requests are held and %d were given up; want %d and %d", held, reset, most, 2*each-most)
	}
	limit := false
	ds, _ := m.notes.all()
	for _, d := range ds {
		limit = limit || d.Reason == ReasonLimit && strings.Contains(d.Rule, "requests of HTTP/2")
	}
	if !limit {
		t.Error("that is not on record")
	}
	for _, f := range give {
		f()
	}
	// Their ends are seen a moment later.
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var resp *http.Response
		if resp, err = m.client(t, true).Get(m.url("/yes")); err == nil {
			resp.Body.Close()
			break
		}
	}
	if err != nil {
		t.Errorf("nobody is served any more: %v", err)
	}
}
