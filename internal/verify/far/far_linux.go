package far

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/verify/attack"
)

// Touch is what reached a server and must not.
type Touch struct{ Prop, What string }

// World is everything that is played.
type World struct {
	Secret string // of the credential that is lent
	attack.Far
	ready int // of its names, how many times the flipping one was asked for

	mu   sync.Mutex
	seen []Touch
}

// Names of the world.
const (
	allowed = "allowed.test"
	lent    = "lent.test"
	denied  = "denied.test"
	flip    = "flip.test"
)

// zone is what the name server knows of names that a task may ask for; of every
// other it says the address of the denied host.
var zone = map[string][]string{
	allowed: {allowedAt}, lent: {lentAt}, "meta.test": {metadata}, "local.test": {"127.0.0.1"}, "lan.test": {private},
	"mixed.test": {allowedAt, "127.0.0.1"}, "mapped.test": {"::ffff:" + metadata}, flip: nil,
}

// Play makes this process's namespaces the world and its servers answer. dir is an
// empty folder that others may read. What is played lasts as long as the process.
func Play(dir, secret string) (*World, error) {
	sum := sha256.Sum256([]byte(secret))
	w := &World{Secret: secret, Far: attack.Far{
		Names: namesAt, Denied: denied, DeniedAt: deniedAt, Allowed: allowed, AllowedAt: allowedAt, Lent: lent, LentAt: lentAt,
		Metadata: metadata, Private: private, Sum: hex.EncodeToString(sum[:]),
	}}
	for name := range zone {
		if name != allowed && name != lent {
			w.Flips = append(w.Flips, name)
		}
	}
	slices.Sort(w.Flips)
	cert, authority, err := certificate()
	if err != nil {
		return nil, err
	}
	if err := settle(dir, authority); err != nil {
		return nil, err
	}
	for _, at := range []string{"127.0.0.1", namesAt} {
		if err := w.names(at); err != nil {
			return nil, err
		}
	}
	plain, err := net.Listen("tcp", ":80")
	if err != nil {
		return nil, err
	}
	inTLS, err := net.Listen("tcp", ":443")
	if err != nil {
		return nil, err
	}
	quiet := log.New(io.Discard, "", 0)
	greeted := func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		if at := local(h.Conn.LocalAddr()); at == allowedAt && h.ServerName == denied {
			w.note("P39", "greeted as %s at %s", h.ServerName, at)
		}
		return nil, nil
	}
	go func() { _ = (&http.Server{Handler: w, ErrorLog: quiet}).Serve(plain) }()
	go func() {
		_ = (&http.Server{Handler: w, ErrorLog: quiet, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, GetConfigForClient: greeted}}).ServeTLS(inTLS, "", "")
	}()
	return w, shed()
}

func (w *World) note(prop, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, Touch{prop, fmt.Sprintf(format, args...)})
}

// Taken returns what was noted since the last call.
func (w *World) Taken() []Touch {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.seen
	w.seen = nil
	return l
}

func local(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	return at.Addr().Unmap().String()
}

// ServeHTTP answers with where it was reached, and notes what must not come.
func (w *World) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	at := local(r.Context().Value(http.LocalAddrContextKey).(net.Addr))
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	sni := ""
	if r.TLS != nil {
		sni = r.TLS.ServerName
	}
	got := w.has(r.RequestURI, r.Header, string(body))
	host, _, _ := strings.Cut(strings.ToLower(r.Host), ":")
	prop := "P35"
	for part := range strings.SplitSeq(r.URL.Path, "/") {
		if len(part) == 3 && part[0] == 'P' {
			prop = part
		}
	}
	good := slices.Contains([]string{allowedAt, lentAt}, at)
	switch {
	case !good, host == denied, sni == denied:
		w.note(prop, "%s %s%s at %s", r.Method, r.Host, r.URL.Path, at)
	case got && (at != lentAt || r.TLS == nil || !strings.HasPrefix(r.RequestURI, "/lent/") || prop == "P45"):
		w.note("P45", "the secret, by %s %s%s at %s", r.Method, r.Host, r.URL.Path, at)
	}
	if r.URL.Path != "/first" {
		rw.Header().Set("Connection", "close")
	}
	if to := r.URL.Query().Get("to"); to != "" {
		http.Redirect(rw, r, to, http.StatusTemporaryRedirect)
		return
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	line := fmt.Sprintf("far server %s host=%s path=%s sni=%s secret=%s \n", at, host, r.URL.Path, sni, map[bool]string{true: "yes", false: "no"}[got])
	form, echo := strings.CutPrefix(r.URL.Path, "/lent/echo/")
	switch form {
	case "in-a-field":
		rw.Header().Set("X-Echo", "echo: "+token)
	case "in-an-error":
		rw.WriteHeader(http.StatusBadRequest)
	case "at-the-end":
		rw.Header().Set("Trailer", "X-Late")
	}
	_, _ = io.WriteString(rw, line)
	if !echo {
		return
	}
	switch form {
	case "in-base64":
		token = base64.StdEncoding.EncodeToString([]byte(token))
	case "escaped":
		token = url.QueryEscape(token)
	case "in-JSON":
		token = `"` + token + `"`
	case "in-a-field":
		return
	case "at-the-end":
		rw.Header().Set("X-Late", "echo: "+token)
		return
	}
	for _, c := range []byte("echo: " + token + "\n") { // in pieces
		_, _ = rw.Write([]byte{c})
		_ = http.NewResponseController(rw).Flush()
	}
}

// has says whether the secret stands in a request, in any form.
func (w *World) has(uri string, h http.Header, body string) bool {
	all := []string{uri, body}
	for _, vs := range h {
		for _, v := range vs {
			all = append(all, v)
			if b, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(v, "Basic ")); err == nil {
				all = append(all, string(b))
			}
		}
	}
	return slices.ContainsFunc(all, func(s string) bool {
		return strings.Contains(s, w.Secret) || strings.Contains(s, url.QueryEscape(w.Secret))
	})
}

// certificate makes one for every name of the world, and the authority's own.
func certificate() (cert tls.Certificate, authority []byte, err error) {
	ca, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, err
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "caisson verify"}, NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &ca.PublicKey, ca)
	if err != nil {
		return cert, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, err
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: allowed}, NotAfter: root.NotAfter, DNSNames: []string{allowed, lent, denied},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	one, err := x509.CreateCertificate(rand.Reader, leaf, root, &key.PublicKey, ca)
	return tls.Certificate{Certificate: [][]byte{one}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}
