package sshagent

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// kit is what the tests have: keys of a person in a real agent, and of hosts.
type kit struct {
	socket             string // of the real agent
	lent, rsa, private ssh.Signer
	cert               *ssh.Certificate
	host, second, evil ssh.Signer
}

func signer(t *testing.T, key any) ssh.Signer {
	t.Helper()
	s, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ed(t *testing.T) (ed25519.PrivateKey, ssh.Signer) {
	t.Helper()
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k, signer(t, k)
}

// newKit starts OpenSSH's agent with three keys and a certificate.
func newKit(t *testing.T) *kit {
	t.Helper()
	for _, p := range []string{"ssh-agent", "ssh-add"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip("no " + p + " to hold the keys")
		}
	}
	dir, err := os.MkdirTemp("", "a") // short: the path of a socket has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	k := &kit{socket: filepath.Join(dir, "s")}
	cmd := exec.Command("ssh-agent", "-D", "-a", k.socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("unix", k.socket); err == nil {
			c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal("the agent did not start")
		}
	}
	add := func(key any, comment string) ssh.Signer {
		t.Helper()
		b, err := ssh.MarshalPrivateKey(key, comment)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, comment)
		if err := os.WriteFile(file, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("ssh-add", "-q", file)
		cmd.Env = []string{"SSH_AUTH_SOCK=" + k.socket, "PATH=" + os.Getenv("PATH")}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		return signer(t, key)
	}
	raw, s := ed(t)
	ca, _ := ed(t)
	k.cert = &ssh.Certificate{Key: s.PublicKey(), CertType: ssh.UserCert, ValidBefore: ssh.CertTimeInfinity, ValidPrincipals: []string{"git"}}
	if err := k.cert.SignCert(rand.Reader, signer(t, ca)); err != nil {
		t.Fatal(err)
	}
	// ssh-add takes the certificate that lies beside the key.
	if err := os.WriteFile(filepath.Join(dir, "work-cert.pub"), ssh.MarshalAuthorizedKey(k.cert), 0o600); err != nil {
		t.Fatal(err)
	}
	k.lent = add(raw, "work")
	rk, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	k.rsa = add(rk, "old")
	raw, _ = ed(t)
	k.private = add(raw, "private")
	_, k.host = ed(t)
	_, k.evil = ed(t)
	ek, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	k.second = signer(t, ek)
	return k
}
