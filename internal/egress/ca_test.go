package egress

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"testing"
)

func TestCertificatesOfABoundary(t *testing.T) {
	a, err := NewCA("task x")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := a.Carry()
	if err != nil {
		t.Fatal(err)
	}
	b, err := TakeCA(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(a.PEM())
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.PEM())
	for _, s := range []string{"example.com", "10.0.0.1", "[2001:db8::1]"} {
		h, err := ParseHost(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, ca := range []*CA{a, b} {
			l, err := ca.leaf(h)
			if err != nil {
				t.Fatal(err)
			}
			x, err := x509.ParseCertificate(l.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			if _, err := x.Verify(x509.VerifyOptions{DNSName: s, Roots: roots}); err != nil {
				t.Error(err)
			}
			if again, _ := ca.leaf(h); again != l {
				t.Error("it was made twice")
			}
			if _, err := x.Verify(x509.VerifyOptions{DNSName: "other.test", Roots: roots}); err == nil || x.IsCA {
				t.Error("it is good for more than it should be")
			}
		}
	}
	if string(block.Bytes) != string(cert) || len(b.leaves) != 3 {
		t.Error("another certificate")
	}
	for i := range 2 * maxLeaves {
		if _, err := a.leaf(Host{name: fmt.Sprintf("h%d.test", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.leaves) > maxLeaves {
		t.Errorf("%d certificates are kept", len(a.leaves))
	}
}
