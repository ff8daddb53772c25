package contract

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	for _, c := range []struct {
		tool, raw string
		code      Code // empty: taken
		refused   []string
	}{
		{ReadFile, `{"path":"a"}`, "", nil},
		{ReadFile, ` {"path":"a","offset":3,"limit":null} `, "", nil},
		{ReadFile, `{"path":"a","backend":"docker","network":true,"disableSandbox":1}`, "", []string{"backend", "disableSandbox", "network"}},
		{ReadFile, `{"path":"a","x":` + deep + `}`, BadArgs, nil},
		{ReadFile, `{"path":"a","Path":"b"}`, BadArgs, nil},
		{ReadFile, `{"Path":"b"}`, BadArgs, nil}, // no such name, and path is missing
		{ReadFile, `{"path":"a","OFFSET":1}`, "", []string{"OFFSET"}},
		{ReadFile, `{"path":"a","path":"b"}`, BadArgs, nil},
		{ReadFile, `{"path":"a","x":{"y":1,"y":2}}`, BadArgs, nil},
		{ReadFile, `{"path":null}`, BadArgs, nil},
		{ReadFile, `{"path":1}`, BadArgs, nil},
		{ReadFile, `{"path":""}`, BadArgs, nil},
		{ReadFile, `{"path":"a\u0000b"}`, BadArgs, nil},
		{ReadFile, `{"path":"` + strings.Repeat("x", MaxPath+1) + `"}`, BadArgs, nil},
		{ReadFile, `{"path":"a","offset":1.5}`, BadArgs, nil},
		{ReadFile, `{"path":"a","offset":"1"}`, BadArgs, nil},
		{ReadFile, `{"path":"a","offset":-1}`, BadArgs, nil},
		{ReadFile, `{"path":"a","offset":1e99}`, BadArgs, nil},
		{ReadFile, `{"path":"a","as":"hex"}`, BadArgs, nil},
		{ReadFile, `{"path":"a","as":"base64","limit":1}`, BadArgs, nil},
		{ReadFile, `["path"]`, BadArgs, nil},
		{ReadFile, `"path"`, BadArgs, nil},
		{ReadFile, `{"path":"a"}{}`, BadArgs, nil},
		{ReadFile, `{"path":"a"`, BadArgs, nil},
		{ReadFile, "{\"path\":\"\xff\"}", BadArgs, nil},
		{ReadFile, `{"path":"\ud83d"}`, BadArgs, nil},
		{ReadFile, `{"path":"\udc00\ud83d"}`, BadArgs, nil},
		{ReadFile, `{"path":"\ud83d\ude00 \\ud83d"}`, "", nil},
		{"format_disk", `{}`, NotFound, nil},
		{ShellList, ``, "", nil},
		{ShellList, `null`, BadArgs, nil},
		{WriteFile, `{"path":"a"}`, BadArgs, nil},
		{WriteFile, `{"path":"a","content":""}`, "", nil},
		{WriteFile, `{"path":"a","content":"","create_only":true,"expect_sha256":"` + strings.Repeat("0", 64) + `"}`, BadArgs, nil},
		{WriteFile, `{"path":"a","content":"","expect_sha256":"ABC"}`, BadArgs, nil},
		{WriteFile, `{"path":"a","content":"` + strings.Repeat("x", MaxContent+1) + `"}`, TooBig, nil},
		{EditFile, `{"path":"a","edits":[]}`, BadArgs, nil},
		{EditFile, `{"path":"a","edits":[{"old":"x","new":"y"}]}`, "", nil},
		{EditFile, `{"path":"a","edits":[{"old":"x","new":"y","mode":1}]}`, BadArgs, nil},
		{EditFile, `{"path":"a","edits":[{"old":"x","New":"y"}]}`, BadArgs, nil},
		{EditFile, `{"path":"a","edits":[{"old":"","new":"y"}]}`, BadArgs, nil},
		{EditFile, `{"path":"a","edits":[{"old":"x","new":"x"}]}`, BadArgs, nil},
		{EditFile, `{"path":"a","edits":[{"old":"x","new":"y","replace_all":true,"occurrence":2}]}`, BadArgs, nil},
		{EditFile, `{"path":"a","edits":{"old":"x","new":"y"}}`, BadArgs, nil},
		{EditFile, `{"path":"a","edits":[null]}`, BadArgs, nil},
		{NotebookEdit, `{"path":"a","source":"x"}`, BadArgs, nil},
		{NotebookEdit, `{"path":"a","mode":"insert","source":"x"}`, "", nil},
		{NotebookEdit, `{"path":"a","index":0,"cell_id":"b"}`, BadArgs, nil},
		{NotebookEdit, `{"path":"a","index":-1}`, BadArgs, nil},
		{NotebookEdit, `{"path":"a","mode":"delete","index":0,"source":"x"}`, BadArgs, nil},
		{Grep, `{"pattern":""}`, BadArgs, nil},
		{Shell, `{}`, BadArgs, nil},
		{Shell, `{"command":"x","argv":["x"]}`, BadArgs, nil},
		{Shell, `{"argv":["x",null]}`, BadArgs, nil},
		{Shell, `{"argv":["x",1]}`, BadArgs, nil},
		{Shell, `{"command":"x","env":{"A":null}}`, BadArgs, nil},
		{Shell, `{"command":"x","env":{"A=B":"c"}}`, BadArgs, nil},
		{Shell, `{"command":"x","env":{"A":"c"},"uid":0}`, "", []string{"uid"}},
		{ShellInput, `{"shell":"1"}`, BadArgs, nil},
	} {
		args, refused, err := Decode(c.tool, []byte(c.raw))
		var f *Failure
		if c.code == "" {
			if err != nil || args == nil || !slices.Equal(refused, c.refused) {
				t.Errorf("%s %.80s: %v, refused %q", c.tool, c.raw, err, refused)
			}
		} else if !errors.As(err, &f) || f.Code != c.code || args != nil {
			t.Errorf("%s %.80s: %v, want %s", c.tool, c.raw, err, c.code)
		}
	}
}

// Two spellings of one call have one canonical form, two calls have two, and
// the form is its own.
func TestCanonical(t *testing.T) {
	form := func(tool, raw string) string {
		args, _, err := Decode(tool, []byte(raw))
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		b, err := Canonical(args)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	one := form(EditFile, `{"edits":[{"new":"<b>\u00e9","old":"x","occurrence":0}], "path":"a/\u0062", "evil":1}`)
	if want := `{"edits":[{"new":"<b>é","old":"x"}],"path":"a/b"}`; one != want {
		t.Errorf("%s, want %s", one, want)
	}
	if again := form(EditFile, one); again != one {
		t.Errorf("%s became %s", one, again)
	}
	big := form(ReadFile, `{"path":"a","limit":9007199254740993}`)
	if !strings.Contains(big, "9007199254740993") {
		t.Errorf("a number was rounded: %s", big)
	}
	if a, b := form(NotebookEdit, `{"path":"a","index":0}`), form(NotebookEdit, `{"path":"a","index":1}`); a == b || !strings.Contains(a, `"index":0`) {
		t.Errorf("%s and %s", a, b)
	}
}

// Every argument type that an undecoded JSON text can fill is filled by Decode
// in the same way: the reader by exact names agrees with encoding/json.
func FuzzDecode(f *testing.F) {
	f.Add(byte(0), []byte(`{"path":"a","offset":3}`))
	f.Add(byte(2), []byte(`{"path":"a","edits":[{"old":"x","new":"y","replace_all":true}]}`))
	f.Add(byte(7), []byte(`{"argv":["a","b"],"env":{"A":"b"},"timeout_ms":5}`))
	f.Add(byte(3), []byte(`{"path":"\ud83d\ude00","index":0,"x":[[[]]]}`))
	f.Fuzz(func(t *testing.T, n byte, raw []byte) {
		tool := Tools[int(n)%len(Tools)]
		args, refused, err := Decode(tool.Name, raw)
		if err != nil {
			var fail *Failure
			if !errors.As(err, &fail) || !fail.Code.Known() || args != nil {
				t.Fatalf("%v", err)
			}
			return
		}
		b, err := Canonical(args)
		if err != nil {
			t.Fatal(err)
		}
		again, more, err := Decode(tool.Name, b)
		if err != nil || len(more) != 0 {
			t.Fatalf("canonical form %s: %v %q", b, err, more)
		}
		if c, _ := Canonical(again); string(c) != string(b) {
			t.Fatalf("%s became %s", b, c)
		}
		if len(refused) == 0 && len(raw) > 0 {
			plain := tool.Args()
			if json.Unmarshal(raw, plain) != nil {
				return
			}
			if p, _ := Canonical(plain); string(p) != string(b) {
				t.Fatalf("encoding/json read %s, Decode %s", p, b)
			}
		}
	})
}
