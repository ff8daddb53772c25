package model

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Step is one answer of the model: a text, or the call of one tool.
type Step struct {
	Text string // what it says, where Tool is empty

	// Tool is a regular expression for the whole name under which the client
	// offers the tool; clients rename those of MCP servers.
	Tool string
	// Unoffered is called where no offered tool fits: a model that names a tool
	// nobody gave it. Empty: it then says that there is none.
	Unoffered string
	Args      map[string]any
	// From makes the arguments from the last tool result; nil: Args.
	From func(last string) map[string]any

	// Before is called before the answer, for what has to happen while the
	// client waits for the model; may be nil. The context ends with the request.
	Before func(context.Context)
}

// Done is what the model says past the last step.
const Done = "the script is over"

// Request is one request for an answer, as the server understood it.
type Request struct {
	Dialect   string // "chat", "responses", "messages", "gemini"
	Path      string
	UserAgent string
	Stream    bool
	Offered   []string // names of tools, in the client's order
	Results   []string // texts of the tool results, oldest first
	Step      int      // index in the script; -1: a request outside of it
	Tool      string   // the tool that was called; empty: a text
	Text      string   // what was said
}

// Last is the newest tool result, or nothing.
func (r Request) Last() string {
	if len(r.Results) == 0 {
		return ""
	}
	return r.Results[len(r.Results)-1]
}

// Server answers a script. It is an http.Handler without state that an answer
// depends on: a request that a client repeats gets the same answer.
type Server struct {
	script []Step
	names  []*regexp.Regexp

	mu  sync.Mutex
	log []Request
	odd []string // requests that it has no answer for
}

// New returns a server for one script. It panics where a step's Tool is no
// regular expression: the script is part of the test.
func New(script ...Step) *Server {
	s := &Server{script: script}
	for _, st := range script {
		s.names = append(s.names, regexp.MustCompile("^(?:"+st.Tool+")$"))
	}
	return s
}

// Requests returns what was asked so far, oldest first.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Odd returns the requests that were answered with an error: method, path, why.
func (s *Server) Odd() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.odd)
}

// Results returns every tool result that the client sent, oldest first, each once.
func (s *Server) Results() []string {
	var most []string
	for _, r := range s.Requests() {
		if len(r.Results) > len(most) {
			most = r.Results
		}
	}
	return most
}

// maxBody bounds what is read of a request.
const maxBody = 64 << 20

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, status int, format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	s.mu.Lock()
	s.odd = append(s.odd, r.Method+" "+r.URL.Path+": "+why)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"type": "invalid_request_error", "message": why}})
}

// ServeHTTP answers one request of any dialect; the path says which.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case r.Method == http.MethodGet && strings.HasSuffix(path, "/models"):
		answer(w, map[string]any{"object": "list", "data": []any{map[string]any{"id": "fake-model", "object": "model"}}})
		return
	case r.Method != http.MethodPost:
		s.refuse(w, r, http.StatusNotFound, "nothing here")
		return
	}
	body, err := decoded(r)
	if err != nil {
		s.refuse(w, r, http.StatusUnsupportedMediaType, "%v", err)
		return
	}
	var d dialect
	switch {
	case strings.HasSuffix(path, "/count_tokens"):
		answer(w, map[string]any{"input_tokens": 1})
		return
	case strings.HasSuffix(path, ":countTokens"):
		answer(w, map[string]any{"totalTokens": 1})
		return
	case strings.HasSuffix(path, "/chat/completions"):
		d = chat{}
	case strings.HasSuffix(path, "/responses"):
		d = responses{}
	case strings.HasSuffix(path, "/messages"):
		d = messages{}
	case strings.HasSuffix(path, "enerateContent"): // generate and streamGenerate
		d = gemini{}
	default:
		s.refuse(w, r, http.StatusNotFound, "nothing here")
		return
	}
	q, err := d.read(path, body)
	if err != nil {
		s.refuse(w, r, http.StatusBadRequest, "%v", err)
		return
	}
	a := s.next(r.Context(), d, r, &q)
	if q.stream {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-cache")
		d.stream(&events{w: w, r: http.NewResponseController(w)}, q, a)
		return
	}
	answer(w, d.whole(q, a))
}

// next chooses the answer and writes the request down.
func (s *Server) next(ctx context.Context, d dialect, r *http.Request, q *query) reply {
	rec := Request{Dialect: d.name(), Path: r.URL.Path, UserAgent: r.UserAgent(), Stream: q.stream, Results: q.results, Step: -1}
	for _, t := range q.tools {
		rec.Offered = append(rec.Offered, t.full())
	}
	a := reply{text: "ok"}
	if q.json {
		// Clients ask on the side who speaks next, or which model to take.
		a.text = `{"reasoning":"scripted","next_speaker":"user","model_choice":"flash"}`
	}
	// Titles, judges and the like offer no tools, or one of their own for the form of the answer.
	aside := len(q.tools) == 0 || len(q.tools) == 1 && q.tools[0].name == "respond_in_schema"
	if !aside {
		rec.Step = len(q.results)
		a = s.step(ctx, rec.Step, q)
	}
	rec.Tool, rec.Text = a.tool.full(), a.text
	s.mu.Lock()
	s.log = append(s.log, rec)
	a.id = len(s.log)
	s.mu.Unlock()
	return a
}

func (s *Server) step(ctx context.Context, n int, q *query) reply {
	if n >= len(s.script) {
		return reply{text: Done}
	}
	st := s.script[n]
	if st.Before != nil {
		st.Before(ctx)
	}
	if st.Tool == "" && st.Unoffered == "" {
		return reply{text: st.Text}
	}
	args := st.Args
	if st.From != nil {
		last := ""
		if len(q.results) > 0 {
			last = q.results[len(q.results)-1]
		}
		args = st.From(last)
	}
	if args == nil {
		args = map[string]any{}
	}
	if i := slices.IndexFunc(q.tools, func(t offered) bool { return st.Tool != "" && s.names[n].MatchString(t.full()) }); i >= 0 {
		return reply{tool: q.tools[i], args: args}
	}
	if st.Unoffered != "" {
		return reply{tool: offered{name: st.Unoffered}, args: args}
	}
	return reply{text: "no offered tool is called " + st.Tool}
}

// decoded reads a body in the encoding that its header names.
func decoded(r *http.Request) ([]byte, error) {
	var in io.Reader = r.Body
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, err
		}
		in = z
	default:
		return nil, fmt.Errorf("content encoding %q is not understood here", enc)
	}
	body, err := io.ReadAll(io.LimitReader(in, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = fmt.Errorf("more than %d bytes", maxBody)
	}
	return body, err
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// events writes server-sent events, each at once.
type events struct {
	w io.Writer
	r *http.ResponseController
}

func (e *events) send(name string, v any) {
	data, ok := v.(string)
	if !ok {
		b, _ := json.Marshal(v)
		data = string(b)
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	_, _ = fmt.Fprintf(e.w, "%sdata: %s\n\n", name, data)
	_ = e.r.Flush()
}
