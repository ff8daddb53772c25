package broker

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"strings"
)

// Placeholder is what stands inside in the place of a secret. It is random, for
// one task and one handle, and opens nothing.
type Placeholder struct {
	Value string
	ID    string // of sigv4: the key's id
}

// NewPlaceholder makes one of the form that the handle asks for.
func NewPlaceholder(h *Handle) Placeholder {
	const letters, capitals = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ012345678901", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	if h.As == SigV4 {
		form := h.Form
		if form == "" {
			form = "AKIA"
		}
		return Placeholder{Value: random(letters, 40), ID: form + random(capitals, 16)}
	}
	return Placeholder{Value: h.Form + random(letters, 36)}
}

// random draws n characters out of an alphabet of a power of two.
func random(alphabet string, n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	for i := range b {
		b[i] = alphabet[int(b[i])%len(alphabet)]
	}
	return string(b)
}

// Env is what the variables of a handle hold inside.
func (p Placeholder) Env(h *Handle) map[string]string {
	out := map[string]string{}
	for i, n := range h.Env {
		out[n] = p.Value
		if h.As == SigV4 && i == 0 {
			out[n] = p.ID
		}
	}
	for n, v := range h.Set {
		out[n] = v
	}
	return out
}

// stands says whether the placeholder stands in the field of its handle, alone
// and in the form that is replaced.
func (p Placeholder) stands(h *Handle, header http.Header) bool {
	v, one := single(header, h.Header)
	if !one || p.Value == "" {
		return false
	}
	switch h.As {
	case Bearer:
		_, token, ok := bearer(v)
		return ok && token == p.Value
	case Basic, Git:
		user, pass, ok := basic(v)
		return ok && pass == p.Value && (h.User == "" || user == h.User || user == "")
	case Header:
		return v == p.Value
	case SigV4:
		_, ok := strings.CutPrefix(v, "AWS4-HMAC-SHA256 Credential="+p.ID+"/")
		return ok && p.ID != ""
	}
	return false
}

// set puts the secret into the field of its handle: where the placeholder stands,
// or in place of nothing.
func (p Placeholder) set(h *Handle, header http.Header, s *secret) {
	v, _ := single(header, h.Header)
	switch h.As {
	case Bearer:
		scheme, _, ok := bearer(v)
		if !ok {
			scheme = "Bearer"
		}
		header.Set(h.Header, scheme+" "+string(s.value))
	case Basic, Git:
		user, _, _ := basic(v)
		if h.User != "" {
			user = h.User
		}
		plain := append([]byte(user+":"), s.value...)
		header.Set(h.Header, "Basic "+base64.StdEncoding.EncodeToString(plain))
		clear(plain)
	case Header:
		header.Set(h.Header, string(s.value))
	}
}

// single returns the value of a field that is there once.
func single(h http.Header, name string) (string, bool) {
	v := h.Values(name)
	if len(v) != 1 {
		return "", false
	}
	return v[0], true
}

// bearer reads "Bearer TOKEN", and "token TOKEN" as GitHub's tools write it.
func bearer(v string) (scheme, token string, ok bool) {
	scheme, token, ok = strings.Cut(v, " ")
	return scheme, token, ok && (strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "token"))
}

func basic(v string) (user, pass string, ok bool) {
	scheme, code, ok := strings.Cut(v, " ")
	if !ok || !strings.EqualFold(scheme, "basic") {
		return "", "", false
	}
	b, err := base64.StdEncoding.Strict().DecodeString(code)
	if err != nil {
		return "", "", false
	}
	return strings.Cut(string(b), ":")
}

// elsewhere names the places of a request where the placeholder stands, but for
// its own field where that counted; "" for none.
func (p Placeholder) elsewhere(h *Handle, r *Request, counted bool) string {
	var places []string
	in := func(s string) bool {
		return p.Value != "" && strings.Contains(s, p.Value) || p.ID != "" && strings.Contains(s, p.ID)
	}
	for name, values := range r.Header {
		own := counted && http.CanonicalHeaderKey(h.Header) == name
		for _, v := range values {
			_, pass, _ := basic(v)
			if user, _, _ := basic(v); !own && (in(v) || in(pass) || in(user)) {
				places = append(places, "the field "+name)
				break
			}
		}
		if in(name) {
			places = append(places, "the name of a field")
		}
	}
	if in(r.Path) {
		places = append(places, "the path")
	}
	if in(r.Query) {
		places = append(places, "the query")
	}
	return strings.Join(places, "; ")
}
