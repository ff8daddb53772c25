package mcp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestOutputs reads what a result links to, and nothing else.
func TestOutputs(t *testing.T) {
	r := start(t, newEngine(), "2025-06-18", nil)
	if links := r.s.link("../c1.out", "text/plain", "", 0); links != nil {
		t.Errorf("it links out of the store: %v", links)
	}
	link := r.s.link("c1.out", "text/plain", "all", 0)[0].(*sdk.ResourceLink)
	got, err := r.c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: link.URI})
	if err != nil || len(got.Contents) != 1 || got.Contents[0].Text != "all of it\n" || got.Contents[0].MIMEType != "text/plain" {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, uri := range []string{
		link.URI + "x", "caisson://" + taskID + "/output/../c1.out", "caisson://" + taskID + "/output/%2e%2e/c1.out", "file:///etc/passwd", "caisson://other/output/c1.out", "",
	} {
		if got, err := r.c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("%q was read: %+v", uri, got.Contents[0])
		}
	}
}

// TestLargeFile reads on in a file that a result showed only a part of: its parts
// are together what it is, they are linked to as far as a result may, named by one
// another beyond, and gone with the server.
func TestLargeFile(t *testing.T) {
	r := start(t, newEngine(), "2025-06-18", nil)
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text  string
		links int
		blob  bool
	}{
		"small":      {"abc\ndef\n", 1, false},
		"exact":      {strings.Repeat("0123456789abcdef", maxOutput/16), 1, false},
		"one more":   {strings.Repeat("0123456789abcdef", maxOutput/16) + "x", 2, false},
		"characters": {"x" + strings.Repeat("\U0001f600", maxOutput/4*2), 3, false},
		"many parts": {strings.Repeat("é", maxOutput/2*maxLinks) + "and more", maxLinks, false},
		"bytes":      {strings.Repeat("\x80", maxOutput+10) + "\xff", 2, true},
		"empty":      {"", 1, false},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		res, err := r.c.CallTool(t.Context(), &sdk.CallToolParams{Name: "read_file", Arguments: map[string]any{"path": "/large" + path}})
		if err != nil || res.IsError {
			t.Fatalf("%s: %+v, %v", name, res, err)
		}
		var links []*sdk.ResourceLink
		for _, x := range res.Content {
			if l, ok := x.(*sdk.ResourceLink); ok {
				links = append(links, l)
			}
		}
		if len(links) != c.links || links[0].Name != name {
			t.Errorf("%s: %d links, not %d: %+v", name, len(links), c.links, links)
			continue
		}
		var all strings.Builder
		parts := 0
		for uri := links[0].URI; uri != ""; parts++ {
			if parts < len(links) && links[parts].URI != uri {
				t.Errorf("%s: part %d is %s, the link is %s", name, parts, uri, links[parts].URI)
			}
			got, err := r.c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
			if err != nil || len(got.Contents) != 1 || got.Contents[0].URI != uri {
				t.Fatalf("%s: %v, %v", name, uri, err)
			}
			x := got.Contents[0]
			if all.WriteString(x.Text); c.blob != (len(x.Blob) > 0) || len(x.Text)+len(x.Blob) > maxOutput+utf8.UTFMax {
				t.Errorf("%s: %d of text, %d of bytes", name, len(x.Text), len(x.Blob))
			}
			all.Write(x.Blob)
			uri, _ = x.Meta["caisson/next"].(string)
		}
		if all.String() != c.text {
			t.Errorf("%s: %d bytes came back of %d", name, all.Len(), len(c.text))
		}
	}
	// One that was made shorter ends there: no part leads on for ever.
	path := filepath.Join(dir, "shorter")
	if err := os.WriteFile(path, make([]byte, maxOutput+1), 0o644); err != nil {
		t.Fatal(err)
	}
	res, err := r.c.CallTool(t.Context(), &sdk.CallToolParams{Name: "read_file", Arguments: map[string]any{"path": "/large" + path}})
	if err != nil || os.Truncate(path, 3) != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"\x00\x00\x00", ""} {
		l := res.Content[len(res.Content)-2+i].(*sdk.ResourceLink)
		got, err := r.c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: l.URI})
		if err != nil || got.Contents[0].Text != want || got.Contents[0].Meta["caisson/next"] != nil {
			t.Errorf("part %d of a file that is shorter now: %+v, %v", i, got, err)
		}
	}
	// Only so many stay open, and none longer than the server.
	var first, last string
	path = filepath.Join(dir, "small")
	for i := range maxFiles + 1 {
		res, err := r.c.CallTool(t.Context(), &sdk.CallToolParams{Name: "read_file", Arguments: map[string]any{"path": "/large" + path}})
		if err != nil {
			t.Fatal(err)
		}
		if last = res.Content[len(res.Content)-1].(*sdk.ResourceLink).URI; i == 0 {
			first = last
		}
	}
	for uri, there := range map[string]bool{first: false, last: true, last + "?offset=4": false, strings.Replace(last, taskID, "other", 1): false} {
		if _, err := r.c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); (err == nil) != there {
			t.Errorf("%s: %v", uri, err)
		}
	}
	if len(r.s.files) != maxFiles {
		t.Errorf("%d files are open", len(r.s.files))
	}
	r.s.Close()
	if len(r.s.files) != 0 {
		t.Errorf("%d files are open after the end", len(r.s.files))
	}
}
