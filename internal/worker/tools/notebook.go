//go:build linux

package tools

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// notebookEdit does notebook_edit.
func notebookEdit(ctx context.Context, c *Call, args any) (any, *contract.Failure) {
	a := args.(*contract.NotebookEditArgs)
	s, fail := c.Root.original(ctx, a.Path, a.ExpectSHA256)
	if fail != nil {
		return nil, fail
	}
	defer s.close()
	nb, fail := parseNotebook(s.raw, s.shown)
	if fail != nil {
		return nil, fail
	}
	res := &contract.NotebookEditResult{Path: s.shown, Mode: a.Mode, Before: s.digest, OtherNames: s.otherNames()}
	if res.Mode == "" {
		res.Mode = "replace"
	}
	at, fail := nb.which(a)
	if fail != nil {
		return nil, fail
	}
	var out []byte
	switch res.Mode {
	case "replace":
		out, res.CellType = nb.replace(at, a)
		res.Index, res.CellID, res.Cells = at, nb.cells[at].id, len(nb.cells)
	case "insert":
		res.CellType = a.CellType
		if res.CellType == "" {
			res.CellType = "code"
		}
		out, res.CellID = nb.insert(at, res.CellType, a.Source)
		res.Index, res.Cells = at+1, len(nb.cells)+1
	case "delete":
		out = nb.remove(at)
		res.Index, res.CellID, res.CellType, res.Cells = at, nb.cells[at].id, nb.cells[at].kind, len(nb.cells)-1
	}
	if !json.Valid(out) {
		return nil, contract.Fail(contract.Internal, "%s would not be JSON any more; nothing was written", s.shown)
	}
	if int64(len(out)) > contract.MaxContent {
		return nil, contract.Fail(contract.TooBig, "%s would become larger than %d bytes", s.shown, contract.MaxContent)
	}
	if fail := s.spot.replace(s.mode(nil), bytesSource(ctx, out, s.shown)); fail != nil {
		return nil, fail
	}
	res.Size, res.SHA256 = int64(len(out)), digestOf(out)
	return res, nil
}

// notebook is the text of one and where its cells are.
type notebook struct {
	b     []byte
	arr   span // the list of cells
	cells []cell
	ids   bool // cells have ids (nbformat 4.5)
	// How the file is laid out: the line end and one step of indentation, or
	// nothing where it is all on one line; what stands behind a colon and a comma.
	nl, unit, colon, comma string
}

type cell struct {
	at       span
	members  []member
	id, kind string
}

func parseNotebook(b []byte, shown string) (*notebook, *contract.Failure) {
	bad := func(why string) (*notebook, *contract.Failure) {
		return nil, contract.Fail(contract.Invalid, "%s is no notebook of nbformat 4: %s", shown, why)
	}
	if !json.Valid(b) {
		return bad("it is not JSON")
	}
	top := span{skip(b, 0), len(b)}
	if b[top.from] != '{' {
		return bad("it is no JSON object")
	}
	ms := members(b, top)
	if twice(ms) {
		return bad("a name stands in it twice")
	}
	format, _ := find(ms, "nbformat")
	if v := string(b[format.val.from:format.val.to]); v != "4" {
		return bad("its nbformat is " + short(v))
	}
	nb := &notebook{b: b}
	minor, _ := find(ms, "nbformat_minor")
	if v := string(b[minor.val.from:minor.val.to]); len(v) > 1 || v >= "5" {
		nb.ids = true
	}
	list, ok := find(ms, "cells")
	if nb.arr = list.val; !ok || b[nb.arr.from] != '[' {
		return bad("it has no list of cells")
	}
	for _, at := range elements(b, nb.arr) {
		if b[at.from] != '{' {
			return bad("a cell is no object")
		}
		c := cell{at: at, members: members(b, at)}
		if twice(c.members) {
			return bad("a name stands in a cell twice")
		}
		if m, ok := find(c.members, "id"); ok {
			c.id = unquote(b[m.val.from:m.val.to])
		}
		m, ok := find(c.members, "cell_type")
		if c.kind = unquote(b[m.val.from:m.val.to]); !ok || c.kind == "" {
			return bad("a cell has no type")
		}
		if _, ok := find(c.members, "source"); !ok {
			return bad("a cell has no source")
		}
		nb.cells = append(nb.cells, c)
	}
	nb.layout(top, ms)
	return nb, nil
}

func twice(ms []member) bool {
	seen := map[string]bool{}
	for _, m := range ms {
		if seen[m.name] {
			return true
		}
		seen[m.name] = true
	}
	return false
}

func short(s string) string {
	if s == "" {
		return "missing"
	}
	return s[:min(len(s), 20)]
}

// layout learns how the file is written from the object at its top.
func (nb *notebook) layout(top span, ms []member) {
	first := ms[0]
	before := string(nb.b[top.from+1 : first.key.from])
	if i := strings.LastIndexByte(before, '\n'); i >= 0 {
		nb.nl, nb.unit = "\n", before[i+1:]
		if i > 0 && before[i-1] == '\r' {
			nb.nl = "\r\n"
		}
	}
	between := string(nb.b[first.key.to:first.val.from])
	nb.colon = between[strings.IndexByte(between, ':')+1:]
	if len(ms) > 1 && nb.nl == "" {
		between := string(nb.b[first.val.to:ms[1].key.from])
		nb.comma = between[strings.IndexByte(between, ',')+1:]
	}
}

// which is the index that the arguments name; -1 for an insert at the start.
func (nb *notebook) which(a *contract.NotebookEditArgs) (int, *contract.Failure) {
	if a.CellID == "" {
		if a.Index == nil {
			return -1, nil
		}
		if *a.Index >= len(nb.cells) {
			return 0, contract.Fail(contract.NoMatch, "the notebook has %d cells, and none with index %d", len(nb.cells), *a.Index)
		}
		return *a.Index, nil
	}
	at := -1
	for i, c := range nb.cells {
		if c.id != a.CellID {
			continue
		}
		if at >= 0 {
			return 0, contract.Fail(contract.Ambiguous, "several cells have the id %.60q; use index", a.CellID)
		}
		at = i
	}
	if at < 0 {
		return 0, contract.Fail(contract.NoMatch, "no cell has the id %.60q", a.CellID)
	}
	return at, nil
}

// indentOf is the white space of the line on which i stands, if nothing else
// does before it.
func (nb *notebook) indentOf(i int) string {
	j := i
	for j > 0 && (nb.b[j-1] == ' ' || nb.b[j-1] == '\t') {
		j--
	}
	return string(nb.b[j:i])
}

// change is a part of the text and what comes in its place.
type change struct {
	span
	text string
}

// apply makes changes, which are in order and do not overlap.
func (nb *notebook) apply(cs ...change) []byte {
	var out bytes.Buffer
	done := 0
	for _, c := range cs {
		out.Write(nb.b[done:c.from])
		out.WriteString(c.text)
		done = c.to
	}
	out.Write(nb.b[done:])
	return out.Bytes()
}

// list renders items below a line with that indentation.
func (nb *notebook) list(items []string, open, end, indent string) string {
	if len(items) == 0 {
		return open + end
	}
	if nb.nl == "" {
		return open + strings.Join(items, ","+nb.comma) + end
	}
	in := nb.nl + indent + nb.unit
	return open + in + strings.Join(items, ","+in) + nb.nl + indent + end
}

// source renders a cell's text: as one string where it was one, else as a list
// of its lines.
func (nb *notebook) source(text string, whole bool, indent string) string {
	if whole {
		return quote(text)
	}
	var items []string
	for line := range strings.Lines(text) {
		items = append(items, quote(line))
	}
	return nb.list(items, "[", "]", indent)
}

// replace changes one cell. A changed code cell has no outputs: they were those
// of another text.
func (nb *notebook) replace(at int, a *contract.NotebookEditArgs) (out []byte, kind string) {
	c := &nb.cells[at]
	if kind = a.CellType; kind == "" {
		kind = c.kind
	}
	indent := nb.indentOf(c.members[0].key.from)
	value := func(m member) string {
		switch {
		case m.name == "source":
			return nb.source(a.Source, nb.b[m.val.from] == '"', indent)
		case m.name == "cell_type":
			return quote(kind)
		case m.name == "outputs" && kind == "code":
			return "[]"
		case m.name == "execution_count" && kind == "code":
			return "null"
		}
		return string(nb.b[m.val.from:m.val.to])
	}
	if kind == c.kind {
		var cs []change
		for _, m := range c.members {
			if v := value(m); v != string(nb.b[m.val.from:m.val.to]) && m.name != "cell_type" {
				cs = append(cs, change{m.val, v})
			}
		}
		return nb.apply(cs...), kind
	}
	// Another type has other members: the cell is written anew out of its parts.
	var items []string
	add := func(name, val string) { items = append(items, quote(name)+":"+nb.colon+val) }
	for _, m := range c.members {
		if kind != "code" && (m.name == "outputs" || m.name == "execution_count") || kind == "code" && m.name == "attachments" {
			continue
		}
		if _, has := find(c.members, "execution_count"); m.name == "source" && kind == "code" && !has {
			add("execution_count", "null")
		}
		if _, has := find(c.members, "outputs"); m.name == "source" && kind == "code" && !has {
			add("outputs", "[]")
		}
		add(m.name, value(m))
	}
	return nb.apply(change{c.at, nb.list(items, "{", "}", nb.indentOf(c.at.from))}), kind
}

// insert puts a new cell behind cell at; -1 is the start.
func (nb *notebook) insert(at int, kind, text string) (out []byte, id string) {
	indent := nb.unit + nb.unit
	if len(nb.cells) > 0 {
		indent = nb.indentOf(nb.cells[0].at.from)
	}
	var items []string
	add := func(name, val string) { items = append(items, quote(name)+":"+nb.colon+val) }
	add("cell_type", quote(kind))
	if kind == "code" {
		add("execution_count", "null")
	}
	if nb.ids {
		id = nb.newID()
		add("id", quote(id))
	}
	add("metadata", "{}")
	if kind == "code" {
		add("outputs", "[]")
	}
	add("source", nb.source(text, false, indent+nb.unit))
	one := nb.list(items, "{", "}", indent)
	gap := nb.comma
	if nb.nl != "" {
		gap = nb.nl + indent
	}
	switch {
	case len(nb.cells) == 0:
		return nb.apply(change{nb.arr, nb.list([]string{one}, "[", "]", nb.unit)}), id
	case at < 0:
		first := nb.cells[0].at.from
		return nb.apply(change{span{first, first}, one + "," + gap}), id
	}
	end := nb.cells[at].at.to
	return nb.apply(change{span{end, end}, "," + gap + one}), id
}

// newID is one that no cell has.
func (nb *notebook) newID() string {
	for {
		var b [4]byte
		_, _ = rand.Read(b[:])
		id := hex.EncodeToString(b[:])
		free := true
		for _, c := range nb.cells {
			free = free && c.id != id
		}
		if free {
			return id
		}
	}
}

// remove takes a cell and one comma away.
func (nb *notebook) remove(at int) []byte {
	switch n := len(nb.cells); {
	case n == 1:
		return nb.apply(change{nb.arr, "[]"})
	case at < n-1:
		return nb.apply(change{span{nb.cells[at].at.from, nb.cells[at+1].at.from}, ""})
	}
	return nb.apply(change{span{nb.cells[at-1].at.to, nb.cells[at].at.to}, ""})
}

func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

// unquote reads a JSON string; what is none reads as empty.
func unquote(b []byte) string {
	var s string
	_ = json.Unmarshal(b, &s)
	return s
}
