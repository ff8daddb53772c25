package egress

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// TestClientGone: a client that goes while its server is silent ends the request
// for the server as well.
func TestClientGone(t *testing.T) {
	for name, c := range map[string]struct {
		say   string // to the proxy, after the request line
		flush bool   // the server begins its answer
	}{
		"before an answer":       {"\r\n", false},
		"in an answer":           {"\r\n", true},
		"in its body":            {"Content-Length: 1000\r\n\r\nfew", false},
		"in a body of chunks":    {"Transfer-Encoding: chunked\r\n\r\n5\r\nab", false},
		"between chunks":         {"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", true},
		"after its body":         {"Content-Length: 3\r\n\r\nall", false},
		"after a body of chunks": {"Transfer-Encoding: chunked\r\n\r\n3\r\nall\r\n0\r\n\r\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			began, ended := make(chan bool), make(chan bool)
			port := web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.flush {
					_ = http.NewResponseController(w).EnableFullDuplex()
					w.WriteHeader(http.StatusOK)
					w.(http.Flusher).Flush()
				}
				close(began)
				io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
				close(ended)
			}))
			w := open(t, Config{Judge: only("good.test"), Timeouts: Timeouts{Head: 100 * time.Millisecond}})
			conn := w.dialled(t)
			fmt.Fprintf(conn, "POST http://good.test:%d/ HTTP/1.1\r\nHost: good.test:%d\r\n%s", port, port, c.say)
			<-began
			conn.Close()
			<-ended
			if o := w.notes.last(t); o.Reason != ReasonBroken {
				t.Errorf("%+v", o)
			}
		})
	}
}
