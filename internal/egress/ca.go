package egress

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// CA vouches, inside of one boundary, for the servers whose TLS the gate ends. Its
// key lives in memory alone. Safe for concurrent use.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	own  *ecdsa.PrivateKey // of all leaves: they are one program's

	mu     sync.Mutex
	leaves map[Host]leaf
}

type leaf struct {
	cert *tls.Certificate
	at   time.Time
}

const (
	// caTime is how long a boundary's CA is good for. A task that is open for longer
	// is suspended and resumed, which makes another.
	caTime   = 30 * 24 * time.Hour
	leafTime = 24 * time.Hour
	skew     = 10 * time.Minute
	// maxLeaves is the most that are kept; a host that comes again gets another.
	maxLeaves = 512
)

// NewCA makes one. name tells a person whose it is.
func NewCA(name string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, badCA(err)
	}
	now := time.Now()
	text := "caisson, inside of " + name + " alone"
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: text[:min(len(text), 64)]}, NotBefore: now.Add(-skew), NotAfter: now.Add(caTime),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, badCA(err)
	}
	return takeCA(der, key)
}

func takeCA(der []byte, key *ecdsa.PrivateKey) (*CA, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, badCA(err)
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, badCA(err)
	}
	return &CA{cert: cert, key: key, own: own, leaves: map[Host]leaf{}}, nil
}

// Carry returns what TakeCA makes the same CA of: its secret is in there, so it
// goes from memory to memory only.
func (a *CA) Carry() (cert, key []byte, err error) {
	key, err = x509.MarshalPKCS8PrivateKey(a.key)
	return a.cert.Raw, key, err
}

// TakeCA takes up what Carry returned.
func TakeCA(cert, key []byte) (*CA, error) {
	k, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		return nil, badCA(err)
	}
	own, ok := k.(*ecdsa.PrivateKey)
	if !ok {
		return nil, badCA(errors.New("a key of another kind"))
	}
	return takeCA(cert, own)
}

func badCA(err error) error {
	return task.Errorf(task.CodeInternal, "egress.ca", "the certificate of a boundary: %w", err)
}

// PEM is its certificate, for programs inside to trust.
func (a *CA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// leaf returns a certificate for h.
func (a *CA) leaf(h Host) (*tls.Certificate, error) {
	now := time.Now()
	a.mu.Lock()
	have, ok := a.leaves[h]
	a.mu.Unlock()
	if ok && now.Sub(have.at) < leafTime/2 {
		return have.cert, nil
	}
	if now.After(a.cert.NotAfter) {
		return nil, errors.New("the certificate of this boundary is over; suspend and resume the task")
	}
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{Organization: []string{"read by caisson"}}, NotBefore: now.Add(-skew), NotAfter: now.Add(leafTime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true, SubjectKeyId: keyID(a.own.Public()),
	}
	if t.NotAfter.After(a.cert.NotAfter) {
		t.NotAfter = a.cert.NotAfter
	}
	if ip := h.Addr(); ip.IsValid() {
		t.IPAddresses = []net.IP{ip.AsSlice()}
	} else {
		t.DNSNames = []string{h.Name()}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, a.own.Public(), a.key)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.own}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	a.leaves[h] = leaf{c, now}
	return c, nil
}

func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	b[0] &= 0x7f
	b[15] |= 1
	return new(big.Int).SetBytes(b)
}

func keyID(k crypto.PublicKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(k)
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(der)
	return sum[:20]
}
