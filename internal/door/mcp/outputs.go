package mcp

import (
	"context"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-dev/caisson/internal/task"
)

// Outputs is an engine that keeps what a call wrote beyond its result. The copy
// is the host's: nothing inside can change it once it is there.
type Outputs interface {
	// OpenOutput opens one output of a task by the name that a result gave it.
	// It refuses every name that is not a plain one of its store. The caller closes it.
	OpenOutput(ctx context.Context, ref, name string) (io.ReadCloser, error)
}

// output is a spilled output that a result of this server named.
type output struct{ name, mime string }

// maxOutput is how much of an output one read returns.
const maxOutput = 4 << 20

const outputScheme = "caisson://"

// addResources offers the outputs, by a template: there is no list of them, a
// client reads those that results link to.
func (s *Server) addResources() {
	if _, ok := s.cfg.Engine.(Outputs); !ok {
		return
	}
	s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "output", Title: "output of a call", URITemplate: outputScheme + "{task}/output/{name}",
		Description: "what a call wrote beyond its result; at most the first 4 MiB",
	}, s.readOutput)
}

// link links to an output that a result names, by its name or by its path inside,
// and lets it be read.
func (s *Server) link(name, mime, title string, size int64) []sdk.Content {
	if path.IsAbs(name) {
		name = path.Base(name)
	}
	if _, ok := s.cfg.Engine.(Outputs); !ok || !plainName(name) {
		return nil
	}
	uri := outputScheme + string(s.cfg.Task) + "/output/" + name
	s.mu.Lock()
	s.outputs[uri] = output{name, mime}
	s.mu.Unlock()
	l := &sdk.ResourceLink{URI: uri, Name: name, Title: title, MIMEType: mime}
	if size > 0 {
		l.Size = &size
	}
	return []sdk.Content{l}
}

// plainName reports whether a name can only mean a file in its store, written in
// one way.
func plainName(name string) bool {
	if name == "" || len(name) > 255 || name[0] == '.' {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	})
}

// readOutput answers resources/read. Only what a result of this server linked to
// can be read.
func (s *Server) readOutput(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	uri := req.Params.URI
	s.mu.Lock()
	o, known := s.outputs[uri]
	s.mu.Unlock()
	store, ok := s.cfg.Engine.(Outputs)
	if !known || !ok {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	f, err := store.OpenOutput(ctx, string(s.cfg.Task), o.name)
	if task.CodeOf(err) == task.CodeNotFound {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxOutput))
	if err != nil {
		return nil, err
	}
	c := &sdk.ResourceContents{URI: uri, MIMEType: o.mime}
	if text := strings.ToValidUTF8(string(data), string(utf8.RuneError)); strings.HasPrefix(o.mime, "text/") || text == string(data) {
		c.Text = text
	} else {
		c.Blob = data
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}, nil
}
