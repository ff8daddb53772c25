package evidence

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/quick"
	"time"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/task"
)

// The samples are put together at run time, so that no scanner takes this file
// for a leak.
func sample(prefix string, n int) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	var b strings.Builder
	b.WriteString(prefix)
	r := rand.New(rand.NewPCG(uint64(n), uint64(len(prefix))))
	for range n {
		b.WriteByte(alphabet[r.IntN(len(alphabet))])
	}
	return b.String()
}

func TestShapes(t *testing.T) {
	jwt := "ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiIxIn0.c2lnbmF0dXJl"
	pem := "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nb3BlbnNzaA==\nsecondline\n-----END OPENSSH " + "PRIVATE KEY-----"
	secrets := map[string]string{
		"aws": sample("AKIA", 16), "github": sample("ghp_", 36), "github fine": sample("github_pat_", 40), "gitlab": sample("glpat-", 20),
		"slack": sample("xoxb-", 24), "npm": sample("npm_", 36), "pypi": sample("pypi-", 60), "openai": sample("sk-proj-", 40),
		"anthropic": sample("sk-ant-api03-", 60), "google": sample("AIza", 35), "oauth": sample("ya29.", 30), "stripe": sample("sk_live_", 24),
		"hf": sample("hf_", 34), "docker": sample("dckr_pat_", 27), "jwt": jwt, "pem": pem, "pem cut": pem[:60], "age": sample("AGE-SECRET-KEY-1", 58),
	}
	r := NewRedactor()
	for name, s := range secrets {
		for _, around := range []string{"%", "error: bad %", "'%'", "x=%;y", "(%)", "https://h/?k=%", "a\n%\nb"} {
			in := strings.ReplaceAll(around, "%", s)
			out, n := r.String(in)
			if n == 0 || strings.Contains(out, s[4:]) || !strings.Contains(out, "[redacted:") {
				t.Errorf("%s: %q became %q (%d)", name, in, out, n)
			}
			if again, m := r.String(out); m != 0 || again != out {
				t.Errorf("%s: not stable: %q became %q (%d)", name, out, again, m)
			}
		}
	}
}

func TestContext(t *testing.T) {
	r := NewRedactor()
	for in, want := range map[string]string{
		"postgres://bob:hunter2@db:5432/x":                    "postgres://bob:[redacted:url]@db:5432/x",
		"https://u:p@ss@host/path":                            "https://u:[redacted:url]@host/path",
		"git clone https://0123456789abcdef0123@h/r":          "git clone https://[redacted:url]@h/r",
		"Authorization: Bearer abc.def":                       "Authorization: Bearer [redacted:authorization]",
		"curl -H 'authorization: Basic dTpw' https://h":       "curl -H 'authorization: Basic [redacted:authorization]' https://h",
		`Authorization: Digest username="u", response="00ff"`: "Authorization: Digest [redacted:authorization]",
		"Cookie: sid=1; other=2":                              "Cookie: [redacted:header]",
		"X-Api-Key: 12345":                                    "X-Api-Key: [redacted:header]",
		"password=hunter2 next":                               "password=[redacted:value] next",
		`DB_PASSWORD="a b c" x`:                               "DB_PASSWORD=[redacted:value] x",
		`{"client_secret": "s3"}`:                             `{"client_secret": [redacted:value]}`,
		"mysql --password hunter2 db":                         "mysql --password [redacted:value] db",
		"tool --api-key=k1 --verbose":                         "tool --api-key=[redacted:value] --verbose",
		"MY_SERVICE_KEY=abc":                                  "MY_SERVICE_KEY=[redacted:value]",
		"AWS_SECRET_ACCESS_KEY=abc/def+g":                     "AWS_SECRET_ACCESS_KEY=[redacted:value]",
		"PGPASSWORD=x psql":                                   "PGPASSWORD=[redacted:value] psql",
	} {
		out, n := r.String(in)
		if out != want || n == 0 {
			t.Errorf("%q became %q (%d), want %q", in, out, n, want)
		}
		if again, m := r.String(out); m != 0 || again != out {
			t.Errorf("not stable: %q became %q (%d)", out, again, m)
		}
	}
	// Controls: ordinary text stays.
	for _, s := range []string{
		"", "go test ./...", "PWD=/home/x OLDPWD=/", "author: Jane", "https://example.org/a@b?c=d", "git@github.com:o/r.git", "ssh://git@host/r",
		"0123456789abcdef0123456789abcdef01234567", "task tabcdefghij", "risk-assessment-of-the-whole-thing", "the keyboard", "exit status 1: no such file", "100% [====>]",
	} {
		if out, n := r.String(s); out != s || n != 0 {
			t.Errorf("%q became %q", s, out)
		}
	}
}

func cleanJSON(t *testing.T, r *Redactor, v any) (string, int) {
	t.Helper()
	tr, n, err := r.clean(v)
	if err != nil {
		t.Fatal(err)
	}
	b, err := marshal(tr)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), n
}

func TestBody(t *testing.T) {
	const secret = "kn0wn value/+"
	r := NewRedactor()
	if !r.Add(secret, "12345678") || r.Add("abc") {
		t.Fatal("Add")
	}
	type inner struct {
		Tail []byte `json:"tail"`
		Skip string `json:"-"`
		Omit string `json:"omit,omitempty"`
	}
	type outer struct {
		inner
		Argv  []string          `json:"argv"`
		Env   map[string]string `json:"env"`
		Any   any               `json:"any"`
		Vec   task.Vector       `json:"vec"`
		At    time.Time         `json:"at"`
		Err   error             `json:"err"`
		Num   int               `json:"num"`
		Pairs []map[string]any  `json:"pairs"`
		Raw   json.RawMessage   `json:"raw"`
	}
	got, n := cleanJSON(t, r, outer{
		inner: inner{Tail: []byte("out: " + secret), Skip: secret},
		Argv:  []string{"tool", "--token", "abc", "--name", "x", secret},
		Env:   map[string]string{"GH_TOKEN": "zzz", "k-" + secret: "v", "PATH": "/bin"},
		Any:   []any{map[string]any{"deep": []any{&[]string{secret}[0]}}},
		Vec:   task.Vector{task.NET: 3}, At: time.Unix(0, 0).UTC(), Err: errors.New("failed with " + secret), Num: 12345678,
		Pairs: []map[string]any{{"name": "API_TOKEN", "value": "q"}, {"name": "LANG", "value": "C"}},
		Raw:   json.RawMessage(`{"x":"` + secret + `"}`),
	})
	if strings.Contains(got, secret) || strings.Contains(got, "12345678") || strings.Contains(got, `"zzz"`) || strings.Contains(got, `"abc"`) || strings.Contains(got, `"q"`) {
		t.Fatalf("leaked: %s", got)
	}
	for _, keep := range []string{`"PATH":"/bin"`, `"--name","x"`, `"NET":3`, `"1970-01-01T00:00:00Z"`, `"value":"C"`, `"tail":"out: [redacted:known]"`} {
		if !strings.Contains(got, keep) {
			t.Errorf("lost %s: %s", keep, got)
		}
	}
	if n != 10 {
		t.Errorf("%d redactions: %s", n, got)
	}
	for _, argv := range [][]string{{"curl", "-u", "me:pw-x", "h"}, {"/usr/bin/mysql", "-ppw-x"}, {"x", "--db-password=pw-x"}, {"sh", "-c", "x --password pw-x"}} {
		if got, n := cleanJSON(t, r, argv); n != 1 || strings.Contains(got, "pw-x") {
			t.Errorf("%q became %s (%d)", argv, got, n)
		}
	}
	for pad := range 3 {
		b := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("u", pad) + secret + ":more"))
		if got, n := r.String("x " + b + " y"); n == 0 {
			t.Errorf("base64 of a known value stays: %s", got)
		}
	}
}

// Bytes survive: what was put in comes back, redacted or not, and nothing
// becomes U+FFFD.
func TestBytesSurvive(t *testing.T) {
	r := NewRedactor()
	f := func(b []byte) bool {
		s := "f-" + string(b)
		if out, n := r.String(s); n > 0 || out != s {
			return true
		}
		got, _ := cleanJSON(t, r, map[string]any{"v": s, s: 1})
		var m map[string]any
		if err := json.Unmarshal([]byte(got), &m); err != nil || !utf8.ValidString(got) {
			return false
		}
		if utf8.ValidString(s) {
			return m["v"] == s && m[s] == 1.0
		}
		raw, err := base64.StdEncoding.DecodeString(m["v"].(map[string]any)[base64Key].(string))
		_, key := m[base64Key+":"+base64.StdEncoding.EncodeToString([]byte(s))]
		return err == nil && string(raw) == s && key
	}
	if err := quick.Check(f, &quick.Config{MaxCount: 2000}); err != nil {
		t.Fatal(err)
	}
	// A secret among bytes that are not UTF-8 goes too.
	got, n := cleanJSON(t, r, "\xff\xfe "+sample("ghp_", 36)+" \xff")
	if n != 1 || !strings.Contains(got, base64Key) {
		t.Fatalf("%s (%d)", got, n)
	}
}

// tree agrees with encoding/json wherever that loses nothing.
func TestTreeIsJSON(t *testing.T) {
	one := 1
	for _, v := range []any{
		task.View{ID: "t", Exit: &one, Findings: []task.Finding{{ID: "x", Axis: task.NET}}, Command: []string{"a"}},
		task.PlanReport{}, task.CloseReport{Rescued: []task.ResultRef{{Kind: "branch"}}}, task.Outcome{Exit: 3, Duration: time.Second},
		map[task.Axis]int{task.NET: 1}, []any{nil, 1.5, uint8(3), "x", true}, struct{ A, b int }{1, 2}, map[int]string{3: "x"},
	} {
		got, err := tree(reflect.ValueOf(v), 0)
		if err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(v)
		var x, y any
		if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil || !reflect.DeepEqual(x, y) {
			t.Errorf("%T:\n%s\n%s", v, a, b)
		}
	}
}

func FuzzRedactor(f *testing.F) {
	for _, s := range []string{"password=x", "Authorization: Digest a", "https://a:b@c", "-----BEGIN " + "PRIVATE KEY-----", "\xff=[redacted:", `{"token":"}`} {
		f.Add(s, "secret-value")
	}
	f.Fuzz(func(t *testing.T, s, known string) {
		r := NewRedactor()
		ok := r.Add(known)
		out, n := r.String(s + known)
		if n == 0 && out != s+known {
			t.Fatalf("changed without counting: %q", out)
		}
		if ok && known != "" && strings.Contains(out, known) && !strings.Contains("[redacted:known][redacted:known]", known) && !partOfMark(known) {
			t.Fatalf("known value left: %q in %q", known, out)
		}
		got, _, err := r.clean(map[string]any{s: []string{s, known}, "v": s})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := marshal(got); err != nil || !json.Valid(b) || !utf8.Valid(b) {
			t.Fatalf("%q %v", b, err)
		}
	})
}

// TestExpressions: every expression is sound, and the cheap look before one
// never keeps it from what it would have found.
func TestExpressions(t *testing.T) {
	for i := range shapes {
		shapes[i].re()
	}
	names := []string{"", "a", "PASSWORD", "db_Passwd", "pa\u017f\u017fword", "to\u212aen", "x-api-key", "ApiKey", "SIGNING-KEY", "credentials", "Set-Cookie",
		"cookie", "Authorization", "X_authorization", "AWS_PAT", "a_PAT", "SSHPASS", "sshpass", "PGPASSWORD", "DOCKER_AUTH_CONFIG", "argv", "monkey", "keyboard", "\xff"}
	for _, n := range names {
		if got, want := secretName(n), secretNameRE().MatchString(n) || secretEnvRE().MatchString(n); got != want {
			t.Errorf("secretName(%q) is %v, its expressions say %v", n, got, want)
		}
		for _, f := range []string{n, "-" + n, "--" + n, "--my-" + n} {
			if got, want := secretFlag(f), secretFlagRE().MatchString(f); got != want {
				t.Errorf("secretFlag(%q) is %v, its expression says %v", f, got, want)
			}
		}
	}
}

// partOfMark reports whether known could be made of a mark and its neighbours.
func partOfMark(known string) bool {
	for _, s := range shapes {
		if strings.Contains(mark(s.kind), known) {
			return true
		}
	}
	return strings.ContainsAny(known, "[]")
}

func BenchmarkRedact4K(b *testing.B) {
	r := NewRedactor()
	r.Add("some known value")
	s := strings.Repeat("ok  \tgithub.com/x/y\t0.123s [no test files] http://a/b x=1\n", 70)
	b.SetBytes(int64(len(s)))
	for b.Loop() {
		r.String(s)
	}
}

func BenchmarkClean(b *testing.B) {
	r := NewRedactor()
	for b.Loop() {
		_, _, _ = r.clean(map[string]any{"argv": []string{"go", "test", "./..."}, "dir": "/home/u/src", "n": 3})
	}
}

// TestOneLook compares the one look for all hints with a search for each.
func TestOneLook(t *testing.T) {
	if len(shapes) > 32 {
		t.Fatalf("%d shapes do not fit into a set", len(shapes))
	}
	each := func(s string) (may looks) {
		for i := range shapes {
			if hinted(s, shapes[i].hints) {
				may |= 1 << i
			}
		}
		return may
	}
	same := func(s string) {
		t.Helper()
		if got, want := mayMatch(s), each(s); got != want {
			t.Errorf("%q: %b, not %b", s, got, want)
		}
	}
	var hints []string
	for i := range shapes {
		hints = append(hints, shapes[i].hints...)
	}
	pieces := append([]string{"", "x", " ", "=", "g", "s", "\x00", "\xff", "é", "\u017f", "\u212a", "toke", "ke"}, hints...)
	for _, h := range hints {
		for _, s := range []string{h, strings.ToUpper(h), h[:len(h)-1], h[1:], "x" + h, h + "x", h[:1] + h, h[:2] + h, strings.ToUpper(h[:1]) + h[1:]} {
			same(s)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		var b strings.Builder
		for range r.IntN(5) {
			p := pieces[r.IntN(len(pieces))]
			if r.IntN(2) == 0 {
				p = strings.ToUpper(p)
			}
			b.WriteString(p)
		}
		same(b.String())
	}
	// A text in which something was taken out is looked at again.
	red := NewRedactor()
	in := "Authorization: Bearer " + sample("ghp_", 36) + " password=hunter22"
	if out, n := red.String(in); n < 2 || strings.Contains(out, "hunter22") || strings.Contains(out, "ghp_") {
		t.Errorf("%q (%d)", out, n)
	}
}

func BenchmarkString(b *testing.B) {
	r := NewRedactor()
	for b.Loop() {
		for _, s := range []string{"axis", "private clone; every object of the repository is readable", "sha256:234dd6b606c8d90e5d669e23c176c690136cd9f55c7", "/usr/lib/go-1.26/bin/go"} {
			r.String(s)
		}
	}
}
