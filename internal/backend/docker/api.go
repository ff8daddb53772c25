package docker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// The versions of the API that this package speaks. 1.40 is that of Docker 19.03;
// what is asked for has not changed since.
const (
	oldestAPI = "1.40"
	newestAPI = "1.47"
)

// answerTime bounds one answer of the engine that need not wait for anything.
const answerTime = 30 * time.Second

// maxAnswer bounds what is read of one.
const maxAnswer = 16 << 20

// engine talks to one engine. Safe for concurrent use.
type engine struct {
	at      endpoint
	http    *http.Client
	version string // negotiated; empty: not yet
}

// statusError is an answer that is not a success.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

// missing reports whether the engine says that there is no such thing.
func missing(err error) bool {
	var s *statusError
	return errors.As(err, &s) && s.code == http.StatusNotFound
}

// conflict reports whether the engine says that something is in the way.
func conflict(err error) bool {
	var s *statusError
	return errors.As(err, &s) && s.code == http.StatusConflict
}

// unreachable reports whether no engine answered at all.
func unreachable(err error) bool {
	var s *statusError
	return err != nil && !errors.As(err, &s)
}

// connect finds out which versions the engine speaks.
func connect(ctx context.Context, at endpoint) (*engine, *versionInfo, error) {
	e := &engine{at: at}
	e.http = &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return at.dial(ctx) },
		DisableKeepAlives: true, // a task's process must not hold a connection for the engine's sake
	}}
	ctx, done := context.WithTimeout(ctx, answerTime)
	defer done()
	var v versionInfo
	if err := e.call(ctx, http.MethodGet, "/version", nil, nil, &v); err != nil {
		return nil, nil, err
	}
	low, lowOK := parseAPI(v.MinAPIVersion)
	high, ok := parseAPI(v.APIVersion)
	oldest, _ := parseAPI(oldestAPI)
	newest, _ := parseAPI(newestAPI)
	if !ok || high < oldest || lowOK && low > newest {
		return nil, nil, task.Errorf(task.CodeUnavailable, "docker.version", "the engine at %s speaks versions %s to %s of the API, this program %s to %s", at, v.MinAPIVersion, v.APIVersion, oldestAPI, newestAPI).
			WithHint("Docker Engine 20.10 or later, or Podman 4.3 or later")
	}
	e.version = "1." + strconv.Itoa(min(high, newest))
	return e, &v, nil
}

func parseAPI(s string) (minor int, ok bool) {
	rest, ok := strings.CutPrefix(s, "1.")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(rest)
	return n, err == nil
}

func (e *engine) path(p string) string {
	if e.version == "" {
		return p
	}
	return "/v" + e.version + p
}

// call makes one request. in is rendered as JSON, or sent as it is where it is a
// reader; out is filled from the answer, gets its text where it is a *string, or is
// called with it while it comes.
func (e *engine) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body io.Reader
	kind := "application/json"
	switch b := in.(type) {
	case nil:
	case io.Reader:
		body, kind = b, "application/x-tar"
	default:
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	u := "http://engine" + e.path(path)
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := e.http.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // without an address that nobody typed
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
	defer resp.Body.Close()
	if read, ok := out.(func(io.Reader) error); ok && resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return read(resp.Body)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return refused(resp.StatusCode, text)
	}
	if err != nil {
		return err
	}
	switch o := out.(type) {
	case nil:
	case *string:
		*o = string(text)
	default:
		if err := json.Unmarshal(text, out); err != nil {
			return fmt.Errorf("an answer of the engine cannot be read: %v", err)
		}
	}
	return nil
}

// refused is what the engine says went wrong, made fit to be shown.
func refused(code int, text []byte) error {
	var m struct{ Message, Cause string }
	if json.Unmarshal(text, &m) != nil || m.Message == "" {
		m.Message = string(text)
	}
	return &statusError{code: code, text: printable(m.Message, 600)}
}

// printable makes a text of the engine, which may hold names that others chose, one
// line without control characters.
func printable(s string, most int) string {
	var b strings.Builder
	for _, r := range strings.TrimSpace(s) {
		if b.Len() >= most {
			b.WriteString("…")
			break
		}
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			r = ' '
		}
		b.WriteRune(r)
	}
	return b.String()
}

// attach connects to the standard streams of a container that is not started yet.
// The caller closes the connection.
func (e *engine) attach(ctx context.Context, id string) (*attached, error) {
	conn, err := e.at.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	req, err := http.NewRequest(http.MethodPost, "http://engine"+e.path("/containers/"+id+"/attach")+"?stream=1&stdin=1&stdout=1&stderr=1", http.NoBody)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "tcp")
	if err := req.Write(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	r := bufio.NewReaderSize(conn, 64<<10)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols && resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		_ = conn.Close()
		return nil, refused(resp.StatusCode, text)
	}
	return &attached{Conn: conn, r: r}, nil
}
