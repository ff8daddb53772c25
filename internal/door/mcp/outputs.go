package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// Outputs is an engine that keeps what a call wrote beyond its result. The copy
// is the host's: nothing inside can change it once it is there.
type Outputs interface {
	// OpenOutput opens one output of a task by the name that a result gave it.
	// It refuses every name that is not a plain one of its store. The caller closes it.
	OpenOutput(ctx context.Context, ref, name string) (io.ReadCloser, error)
}

// output is one part of what a result of this server linked to: of an output by
// its name, or of the file that a read_file showed only a part of.
type output struct {
	name, mime string
	file       *os.File // in place of an output's name
	at         int64    // where the part begins
}

const (
	// maxOutput is how much one read returns.
	maxOutput = 4 << 20
	// maxLinks is how many parts a result links to. Each part names the one that
	// follows it, so that a program reads on.
	maxLinks = 4
	// maxFiles is how many files of earlier results stay open for their readers.
	maxFiles = 16
)

const outputScheme = "caisson://"

// addResources offers what results link to, by templates: there is no list of
// them.
func (s *Server) addResources() {
	s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "file", Title: "file of a read_file", URITemplate: outputScheme + "{task}/file/{call}{?offset}",
		Description: "the file that a read_file showed a part of, as it is now; 4 MiB from the offset",
	}, s.readOutput)
	if _, ok := s.cfg.Engine.(Outputs); !ok {
		return
	}
	s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "output", Title: "output of a call", URITemplate: outputScheme + "{task}/output/{name}{?offset}",
		Description: "what a call wrote beyond its result; 4 MiB from the offset",
	}, s.readOutput)
}

// link links to an output that a result names, by its name or by its path inside,
// and lets it be read. A size of 0 is not known yet.
func (s *Server) link(name, mime, title string, size int64) []sdk.Content {
	if path.IsAbs(name) {
		name = path.Base(name)
	}
	store, ok := s.cfg.Engine.(Outputs)
	if !ok || !plainName(name) {
		return nil
	}
	if size <= 0 {
		if f, err := store.OpenOutput(s.ctx, string(s.cfg.Task), name); err == nil {
			size = sizeOf(f)
			_ = f.Close()
		}
	}
	return s.links(outputScheme+string(s.cfg.Task)+"/output/"+name, name, title, size, output{name: name, mime: mime})
}

// linkFile links to the file that a read_file showed only a part of, and takes it
// over. What is read of it later is what it holds then.
func (s *Server) linkFile(call string, f *os.File, v *contract.ReadFileResult) []sdk.Content {
	if !plainName(call) {
		_ = f.Close()
		return nil
	}
	mime := v.MIME
	switch v.Encoding { // a text that is sent as its bytes
	case "latin-1":
		mime += "; charset=iso-8859-1"
	case "utf-16le", "utf-16be":
		mime += "; charset=utf-16"
	}
	s.mu.Lock()
	s.files = append(s.files, f)
	var old *os.File
	if len(s.files) > maxFiles {
		old, s.files = s.files[0], s.files[1:]
		maps.DeleteFunc(s.outputs, func(_ string, o output) bool { return o.file == old })
	}
	s.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	return s.links(outputScheme+string(s.cfg.Task)+"/file/"+call, visible(path.Base(v.Path)), "the whole file", sizeOf(f), output{mime: mime, file: f})
}

// closeFiles closes what is open for readers of results.
func (s *Server) closeFiles() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		_ = f.Close()
	}
	s.files = nil
	maps.DeleteFunc(s.outputs, func(_ string, o output) bool { return o.file != nil })
}

// sizeOf is what a file holds, 0 where that is not known.
func sizeOf(f any) int64 {
	if st, ok := f.(interface{ Stat() (fs.FileInfo, error) }); ok {
		if i, err := st.Stat(); err == nil {
			return i.Size()
		}
	}
	return 0
}

// links lets what o names be read, and returns a link for each of its first parts.
func (s *Server) links(uri, name, title string, size int64, o output) (out []sdk.Content) {
	for n := int64(0); n < maxLinks; n++ {
		if o.at = n * maxOutput; n > 0 && o.at >= size {
			break
		}
		l := &sdk.ResourceLink{URI: s.offer(uri, o), Name: name, Title: title, MIMEType: o.mime}
		if size > 0 {
			part := min(size-o.at, maxOutput)
			l.Size = &part
		}
		if size > maxOutput {
			l.Title = fmt.Sprintf("%s, bytes %d to %d of %d", title, o.at, min(o.at+maxOutput, size), size)
		}
		out = append(out, l)
	}
	return out
}

// offer lets a part be read and returns its URI.
func (s *Server) offer(uri string, o output) string {
	uri, _, _ = strings.Cut(uri, "?")
	if o.at > 0 {
		uri += "?offset=" + strconv.FormatInt(o.at, 10)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.file != nil && !slices.Contains(s.files, o.file) {
		return uri // closed meanwhile
	}
	s.outputs[uri] = o
	return uri
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

// readOutput answers resources/read. Only what a result of this server linked to,
// and what follows that, can be read.
func (s *Server) readOutput(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	uri := req.Params.URI
	s.mu.Lock()
	o, known := s.outputs[uri]
	s.mu.Unlock()
	if !known {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	data, size, err := s.part(ctx, o)
	if task.CodeOf(err) == task.CodeNotFound || errors.Is(err, fs.ErrClosed) {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	if err != nil {
		return nil, err
	}
	c := &sdk.ResourceContents{URI: uri, MIMEType: o.mime}
	end := o.at + int64(len(data))
	data = wholeRunes(data, o.at > 0)
	text := strings.ToValidUTF8(string(data), string(utf8.RuneError))
	if text == string(data) || o.file == nil && strings.HasPrefix(o.mime, "text/") {
		c.Text = text
	} else {
		c.Blob = data
	}
	if size > 0 {
		c.Meta = sdk.Meta{"caisson/offset": o.at, "caisson/size": size}
	}
	if end = min(end, o.at+maxOutput); end < size && end > o.at { // one that is made shorter has no next
		o.at = end
		c.Meta["caisson/next"] = s.offer(uri, o)
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}, nil
}

// part reads one part, with the first bytes of the next one that may belong to
// its last character, and says how much there is in all: 0 where nobody knows.
func (s *Server) part(ctx context.Context, o output) (data []byte, size int64, err error) {
	var f io.Reader
	if o.file != nil {
		f, size = io.NewSectionReader(o.file, o.at, maxOutput+utf8.UTFMax-1), sizeOf(o.file)
	} else {
		store, ok := s.cfg.Engine.(Outputs)
		if !ok {
			return nil, 0, task.Errorf(task.CodeNotFound, "mcp.output", "there are no outputs")
		}
		r, err := store.OpenOutput(ctx, string(s.cfg.Task), o.name)
		if err != nil {
			return nil, 0, err
		}
		defer r.Close()
		f, size = r, sizeOf(r)
		if at, ok := r.(io.ReaderAt); ok {
			f = io.NewSectionReader(at, o.at, maxOutput+utf8.UTFMax-1)
		} else if _, err := io.CopyN(io.Discard, r, o.at); err != nil {
			return nil, size, nil
		}
	}
	data, err = io.ReadAll(io.LimitReader(f, maxOutput+utf8.UTFMax-1))
	return data, size, err
}

// wholeRunes leaves to a part of a text the characters that begin in it, so that
// the parts are together what the whole is. later says that it is not the first.
func wholeRunes(data []byte, later bool) []byte {
	end := min(len(data), maxOutput)
	for n := 0; n < utf8.UTFMax-1 && end < len(data) && !utf8.RuneStart(data[end]); n++ {
		end++
	}
	data = data[:end]
	for n := 0; later && n < utf8.UTFMax-1 && len(data) > 0 && !utf8.RuneStart(data[0]); n++ {
		data = data[1:]
	}
	return data
}
