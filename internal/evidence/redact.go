package evidence

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Redactor takes secrets out of what is recorded: values that the caller knows
// and text of known shapes. It works on single strings, so a secret that was
// cut into several is not found. Safe for concurrent use.
type Redactor struct {
	mu    sync.RWMutex
	known []string // longest first
}

// NewRedactor returns a Redactor that knows the shapes only.
func NewRedactor() *Redactor { return &Redactor{} }

// minKnown is the length below which a known value would also match innocent
// text everywhere.
const minKnown = 4

// Add makes values known, also in base64 and percent-encoded. It reports false
// when one is too short (below four bytes) to be looked for.
func (r *Redactor) Add(values ...string) bool {
	ok := true
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range values {
		if len(v) < minKnown {
			ok = ok && v == ""
			continue
		}
		forms := append([]string{v, url.QueryEscape(v), url.PathEscape(v)}, base64Forms(v)...)
		if t := strings.TrimSpace(v); len(t) >= minKnown {
			forms = append(forms, t)
		}
		for _, f := range forms {
			if !slices.Contains(r.known, f) {
				r.known = append(r.known, f)
			}
		}
	}
	slices.SortStableFunc(r.known, func(a, b string) int { return len(b) - len(a) })
	return ok
}

// base64Forms returns what v looks like anywhere inside longer text that was
// base64-encoded: three alignments, two alphabets, without the characters at
// the edges that neighbours share.
func base64Forms(v string) []string {
	if len(v) < 9 {
		return nil
	}
	var out []string
	for pad := range 3 {
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			s := enc.EncodeToString([]byte(strings.Repeat("\x00", pad) + v))
			from := []int{0, 2, 3}[pad]
			to := len(s)
			if (pad+len(v))%3 != 0 {
				to--
			}
			out = append(out, s[from:to])
		}
	}
	return out
}

// mark is what stands in the place of a secret.
func mark(kind string) string { return "[redacted:" + kind + "]" }

// String returns s without secrets and how many it held.
func (r *Redactor) String(s string) (string, int) {
	n := 0
	s, n = r.knownIn(s)
	if len(s) < minKnown {
		return s, n
	}
	may := mayMatch(s)
	if may == 0 {
		return s, n
	}
	for i := range shapes {
		if may&(1<<i) == 0 {
			continue
		}
		var m int
		if s, m = shapes[i].redact(s); m > 0 {
			n, may = n+m, mayMatch(s)
		}
	}
	return s, n
}

func (r *Redactor) knownIn(s string) (string, int) {
	n := 0
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, k := range r.known {
		if c := strings.Count(s, k); c > 0 {
			s, n = strings.ReplaceAll(s, k, mark("known")), n+c
		}
	}
	return s, n
}

// clean returns body's tree without secrets, and how many it held.
func (r *Redactor) clean(body any) (any, int, error) {
	t, err := tree(reflect.ValueOf(body), 0)
	if err != nil {
		return nil, 0, err
	}
	if t == nil {
		t = map[string]any{}
	}
	n := 0
	return r.walk(t, &n), n, nil
}

func (r *Redactor) walk(v any, n *int) any {
	switch v := v.(type) {
	case string:
		s, c := r.String(v)
		*n += c
		return text(s)
	case json.Number:
		if s, c := r.knownIn(v.String()); c > 0 {
			*n += c
			return s
		}
		return v
	case []any:
		return r.walkList(v, n)
	case map[string]any:
		return r.walkMap(v, n)
	}
	return v
}

func (r *Redactor) walkMap(m map[string]any, n *int) any {
	out := make(map[string]any, len(m))
	// {"name": "TOKEN", "value": "…"}, as engines and manifests write variables.
	pair := ""
	for _, k := range []string{"name", "Name", "key", "Key"} {
		if s, ok := m[k].(string); ok && secretName(s) {
			pair = k
		}
	}
	for k, v := range m {
		key, c := r.String(k)
		*n += c
		secret := secretName(k) || pair != "" && strings.EqualFold(k, "value")
		if s, ok := v.(string); ok && secret && s != "" {
			out[keyText(key)] = r.whole(s, n)
			continue
		}
		out[keyText(key)] = r.walk(v, n)
	}
	return out
}

// whole redacts a value by what it is called.
func (r *Redactor) whole(s string, n *int) string {
	if strings.HasPrefix(s, "[redacted:") {
		return s
	}
	*n++
	return mark("value")
}

// walkList also knows command lines: a flag and the value after it.
func (r *Redactor) walkList(l []any, n *int) any {
	out := make([]any, len(l))
	prog := ""
	if len(l) > 0 {
		s, _ := l[0].(string)
		prog = path.Base(s)
	}
	for i := 0; i < len(l); i++ {
		s, ok := l[i].(string)
		if i > 0 && ok && s != "" {
			prev, _ := l[i-1].(string)
			switch {
			case secretFlag(prev) && !strings.HasPrefix(s, "--"):
				out[i] = r.whole(s, n)
				continue
			case userFlag(prog, prev):
				if user, pass, ok := strings.Cut(s, ":"); ok && pass != "" {
					u, c := r.String(user)
					*n += c
					out[i] = text(u + ":" + r.whole(pass, n))
					continue
				}
			case attachedPassword(prog, s):
				out[i] = "-p" + r.whole(s[2:], n)
				continue
			}
		}
		out[i] = r.walk(l[i], n)
	}
	return out
}

// userFlag reports whether the argument after flag is USER:PASSWORD.
func userFlag(prog, flag string) bool {
	return prog == "curl" && (flag == "-u" || flag == "--user" || flag == "-U" || flag == "--proxy-user")
}

// attachedPassword reports whether arg is -pPASSWORD.
func attachedPassword(prog, arg string) bool {
	return (strings.HasPrefix(prog, "mysql") || strings.HasPrefix(prog, "mariadb") || prog == "sshpass") && strings.HasPrefix(arg, "-p") && len(arg) > 2 && !strings.HasPrefix(arg, "--")
}
