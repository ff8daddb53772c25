package broker

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"html"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

// forms are what a server may make of a secret.
func forms(secret string) map[string]string {
	js, _ := json.Marshal(map[string]string{"token": secret})
	return map[string]string{
		"plain": "before " + secret + " after", "twice": secret + secret, "json": string(js), "slashes": strings.ReplaceAll(secret, "/", `\/`),
		"query": "?t=" + url.QueryEscape(secret) + "&x", "path": url.PathEscape(secret), "small codes": strings.ToLower(url.QueryEscape(secret)),
		"base64": base64.StdEncoding.EncodeToString([]byte(secret)), "base64 raw": base64.RawURLEncoding.EncodeToString([]byte(secret)),
		"basic": "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+secret)), "basic 1": base64.StdEncoding.EncodeToString([]byte("u:" + secret + "\n")), "basic 2": base64.URLEncoding.EncodeToString([]byte("me:" + secret + "--")),
		"hex": hex.EncodeToString([]byte(secret)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(secret))), "html": html.EscapeString(secret),
	}
}

// readable says whether the secret can be read out of a text in one of its forms.
func readable(text, secret string) bool {
	un, _ := url.QueryUnescape(text)
	in, _ := url.PathUnescape(text)
	var js map[string]string
	if json.Unmarshal([]byte(text), &js) == nil && strings.Contains(js["token"], secret) {
		return true
	}
	for _, s := range []string{text, un, in, html.UnescapeString(text), strings.ReplaceAll(text, `\/`, "/"), strings.ReplaceAll(text, `\u0026`, "&")} {
		if strings.Contains(s, secret) || strings.Contains(strings.ToLower(s), hex.EncodeToString([]byte(secret))) {
			return true
		}
	}
	for i := range 4 { // wherever a group begins
		if len(text) <= i {
			break
		}
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			t := strings.Map(func(r rune) rune {
				if strings.ContainsRune("=* ", r) {
					return -1
				}
				return r
			}, text[i:])
			if b, _ := enc.DecodeString(t); bytes.Contains(b, []byte(secret)) {
				return true
			}
		}
	}
	return false
}

func TestCleaned(t *testing.T) {
	for _, secret := range []string{"ghp_abcdefghijklmnopqrstuvwxyz0123456789", "a/b+c=d&e<f>\"g'h i", "acht-888", "with/slash/and+plus=="} {
		for name, text := range forms(secret) {
			if !readable(text, secret) && name != "small codes" && name != "basic 1" && name != "basic 2" && name != "basic" {
				t.Fatalf("%s of %q: the test cannot see the secret in %q", name, secret, text)
			}
			for what, cut := range map[string]func(io.Reader) io.Reader{
				"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "halves": iotest.HalfReader, "data with the end": iotest.DataErrReader,
			} {
				l := newLoan([]byte(secret))
				got, err := io.ReadAll(l.Body(cut(strings.NewReader(text))))
				if err != nil || len(got) != len(text) {
					t.Fatalf("%s of %q, %s: %q, %v", name, secret, what, got, err)
				}
				if readable(string(got), secret) {
					t.Errorf("%s of %q, %s: %q", name, secret, what, got)
				}
			}
		}
	}
}

// What is no secret passes as it is, also what begins like one.
func TestCleanLeaves(t *testing.T) {
	l := newLoan([]byte("ghp_abcdefghijklmnopqrstuvwxyz"))
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		b := make([]byte, r.IntN(5000))
		for i := range b {
			b[i] = "gh_pabc123"[r.IntN(10)]
		}
		got, err := io.ReadAll(l.Body(iotest.HalfReader(bytes.NewReader(b))))
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%q became %q, %v", b, got, err)
		}
	}
}

// A stream is held back no longer than what may be the beginning of a secret.
func TestCleanStream(t *testing.T) {
	in, out := io.Pipe()
	l := newLoan([]byte("secret-secret"))
	body := l.Body(in)
	buf := make([]byte, 100)
	for _, c := range []struct{ send, want string }{{"data: hello\n\n", "data: hello\n\n"}, {"x sec", "x "}, {"ond\n", "second\n"}} {
		go out.Write([]byte(c.send))
		n, err := body.Read(buf)
		if err != nil || string(buf[:n]) != c.want {
			t.Fatalf("%q gave %q, %v", c.send, buf[:n], err)
		}
	}
	go func() {
		out.Write([]byte("secret-secre"))
		out.Write([]byte("t!"))
		out.CloseWithError(io.ErrUnexpectedEOF)
	}()
	rest, err := io.ReadAll(body)
	if string(rest) != strings.Repeat("*", 13)+"!" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestCleanHeader(t *testing.T) {
	const secret = "ghp_secretsecret"
	l := newLoan([]byte(secret))
	h := http.Header{"Location": {"https://a.example/?t=" + secret}, "X-Echo": {"fine", "Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+secret))}, http.CanonicalHeaderKey(secret): {"x"}, "X-" + secret: {"y"}, "Content-Type": {"text/plain"}}
	l.Answer(h)
	var all strings.Builder
	_ = h.Write(&all)
	if text := all.String(); strings.Contains(text, secret) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("u:"+secret))) || !strings.Contains(text, "text/plain") || !strings.Contains(text, "fine") {
		t.Errorf("%s", text)
	}
	kept := l.all[0]
	body := l.Body(strings.NewReader(secret))
	l.Back()
	if strings.Trim(string(kept), "\x00") != "" {
		t.Errorf("%q is left", kept)
	}
	if b, err := io.ReadAll(body); len(b) > 0 || err == nil {
		t.Errorf("after it was taken back: %q, %v", b, err)
	}
	h = http.Header{"X-Echo": {secret}}
	if l.Answer(h); strings.Contains(h.Get("X-Echo"), secret) {
		t.Errorf("after it was taken back: %v", h)
	}
}

func FuzzClean(f *testing.F) {
	for _, text := range forms("ghp_secret/secret") {
		f.Add([]byte(text), 7)
	}
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		l := newLoan([]byte("ghp_secret/secret"))
		want := bytes.Clone(b)
		if _, err := l.clean(want, true); err != nil {
			t.Fatal(err)
		}
		c := l.Body(iotest.HalfReader(bytes.NewReader(b)))
		var got []byte
		buf := make([]byte, 1+size&63)
		for {
			n, err := c.Read(buf)
			got = append(got, buf[:n]...)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(got) != len(b) || bytes.Contains(got, []byte("ghp_secret/secret")) {
			t.Errorf("%q became %q", b, got)
		}
	})
}

// TestBrokenOff: an answer that breaks off within what was lent gives none of it
// away; one that comes to its end is the control.
func TestBrokenOff(t *testing.T) {
	secret := []byte("s3cret-of-the-handle")
	for name, c := range map[string]struct {
		end  error
		want string
	}{
		"its end":   {io.EOF, "it is s3cret-of-the-handl"},
		"cut":       {io.ErrUnexpectedEOF, "it is "},
		"a mistake": {errors.New("the task has moved the bytes that it may"), "it is "},
	} {
		l := newLoan(secret)
		b, err := io.ReadAll(l.Body(io.MultiReader(strings.NewReader("it is "+string(secret[:len(secret)-1])), failed{c.end})))
		if string(b) != c.want || (err == nil) != (c.end == io.EOF) {
			t.Errorf("%s: %q %v", name, b, err)
		}
	}
}

type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }
