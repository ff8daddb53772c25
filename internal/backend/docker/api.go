package docker

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/backend/internal/foreign"
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

// connectTime bounds an engine's first answers: one that takes a connection and says
// nothing is not there.
const connectTime = 10 * time.Second

// maxAnswer bounds what is read of one.
const maxAnswer = 16 << 20

// engine talks to one engine. Safe for concurrent use.
type engine struct {
	at      endpoint
	http    *http.Client
	version string // negotiated; empty: not yet
	server  string // what it calls itself, with its version; may be empty
}

var errSilent = fmt.Errorf("no answer within %s, though its socket is open", connectTime)

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

// connect finds out which version the engine speaks. It costs a moment; versions says
// the rest.
func connect(ctx context.Context, at endpoint) (*engine, error) {
	e := &engine{at: at}
	e.http = &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return at.dial(ctx) },
		DisableKeepAlives: true, // a task's process must not hold a connection for the engine's sake
	}}
	ctx, done := context.WithTimeoutCause(ctx, connectTime, errSilent)
	defer done()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/_ping", nil)
	if err != nil {
		return nil, err
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return nil, plain(ctx, err)
	}
	_ = resp.Body.Close()
	api := resp.Header.Get("Api-Version")
	if resp.StatusCode != http.StatusOK || api == "" {
		v, err := e.versions(ctx)
		if err != nil {
			return nil, err
		}
		api = v.APIVersion
	}
	high, ok := parseAPI(api)
	if oldest, _ := parseAPI(oldestAPI); !ok || high < oldest {
		return nil, notSpoken(at, "", api)
	}
	newest, _ := parseAPI(newestAPI)
	e.version, e.server = "1."+strconv.Itoa(min(high, newest)), printable(resp.Header.Get("Server"), 200)
	return e, nil
}

// versions asks for all that the engine says of its versions.
func (e *engine) versions(ctx context.Context) (*versionInfo, error) {
	bare := &engine{at: e.at, http: e.http} // of the API's versions none is known to be spoken
	var v versionInfo
	if err := bare.call(ctx, http.MethodGet, "/version", nil, nil, &v); err != nil {
		return nil, err
	}
	low, lowOK := parseAPI(v.MinAPIVersion)
	high, ok := parseAPI(v.APIVersion)
	oldest, _ := parseAPI(oldestAPI)
	newest, _ := parseAPI(newestAPI)
	if !ok || high < oldest || lowOK && low > newest {
		return nil, notSpoken(e.at, v.MinAPIVersion, v.APIVersion)
	}
	return &v, nil
}

func notSpoken(at endpoint, low, high string) error {
	speaks := "up to " + cmp.Or(high, "?")
	if low != "" {
		speaks = low + " to " + high
	}
	return task.Errorf(task.CodeUnavailable, "docker.version", "the engine at %s speaks versions %s of the API, this program %s to %s", at, printable(speaks, 60), oldestAPI, newestAPI).
		WithHint("Docker Engine 20.10 or later, or Podman 4.3 or later")
}

// plain is an error of a request without an address that nobody typed.
func plain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err
	}
	return err
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
		return plain(ctx, err)
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

// printable is a text of the engine, fit to be shown.
func printable(s string, most int) string { return foreign.Printable(s, most) }

// isID reports whether s can be the whole id of a container.
func isID(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

// maxHead bounds what comes before the streams of an attached container.
const maxHead = 64 << 10

// attach connects to the standard streams of a container that is not started yet.
// The caller closes the connection.
func (e *engine) attach(ctx context.Context, id string) (*attached, error) {
	ctx, done := context.WithTimeout(ctx, answerTime)
	defer done()
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
	head := &io.LimitedReader{R: conn, N: maxHead}
	r := bufio.NewReaderSize(head, maxHead)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		_ = conn.Close()
		return nil, plain(ctx, err)
	}
	head.N = math.MaxInt64 // the streams have bounds of their own
	if resp.StatusCode != http.StatusSwitchingProtocols && resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		_ = conn.Close()
		return nil, refused(resp.StatusCode, text)
	}
	return &attached{Conn: conn, r: r}, nil
}
