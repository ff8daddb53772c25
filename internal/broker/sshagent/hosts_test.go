package sshagent

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

func line(s ssh.Signer) string {
	return s.PublicKey().Type() + " " + base64.StdEncoding.EncodeToString(s.PublicKey().Marshal())
}

// TestKnownKeys: which keys a known_hosts has for whom.
func TestKnownKeys(t *testing.T) {
	_, a := ed(t)
	_, b := ed(t)
	text := strings.Join([]string{
		"# a comment", "", "git.test,10.0.0.1 " + line(a), "[git.test]:2222 " + line(b), "*.wild.test,!no.wild.test " + line(a),
		"@revoked old.test " + line(a), "old.test " + line(a), "old.test " + line(b), "@cert-authority ca.test " + line(a), "@new new.test " + line(a),
		"short.test ssh-ed25519", "bad.test ssh-ed25519 AAAA", "other.test ssh-rsa " + strings.Fields(line(a))[1], "Upper.TEST " + line(a) + " remark here", "twice.test " + line(a), "twice.test " + line(a),
	}, "\n")
	for _, c := range []struct {
		host string
		port uint16
		want []ssh.Signer
	}{
		{"git.test", 22, []ssh.Signer{a}}, {"git.test", 2222, []ssh.Signer{b}}, {"git.test", 2223, nil}, {"10.0.0.1", 22, []ssh.Signer{a}}, {"git.tes", 22, nil}, {"xgit.test", 22, nil},
		{"a.wild.test", 22, []ssh.Signer{a}}, {"no.wild.test", 22, nil}, {"wild.test", 22, nil}, {"old.test", 22, []ssh.Signer{b}}, {"ca.test", 22, nil}, {"new.test", 22, nil},
		{"short.test", 22, nil}, {"bad.test", 22, nil}, {"other.test", 22, nil}, {"upper.test", 22, []ssh.Signer{a}}, {"twice.test", 22, []ssh.Signer{a}},
	} {
		got, err := KnownKeys(strings.NewReader(text), Host{Name: c.host, Port: c.port})
		if err != nil || len(got) != len(c.want) || len(got) == 1 && string(got[0]) != string(c.want[0].PublicKey().Marshal()) {
			t.Errorf("%s %d: %d keys, %v", c.host, c.port, len(got), err)
		}
	}
	h := Host{Name: "git.test", Port: 2222, Keys: [][]byte{a.PublicKey().Marshal()}}
	if got, want := KnownHosts([]Host{h}), "[git.test]:2222 "+line(a)+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestHashed: names that ssh-keygen has hashed.
func TestHashed(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("no ssh-keygen to hash names")
	}
	_, a := ed(t)
	file := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(file, []byte("git.test "+line(a)+"\n[git.test]:2222 "+line(a)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ssh-keygen", "-H", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(text), "git.test") {
		t.Fatalf("%v %s", err, text)
	}
	for _, c := range []struct {
		h    Host
		want int
	}{{Host{Name: "git.test", Port: 22}, 1}, {Host{Name: "git.test", Port: 2222}, 1}, {Host{Name: "other.test", Port: 22}, 0}} {
		if got, err := KnownKeys(strings.NewReader(string(text)), c.h); err != nil || len(got) != c.want {
			t.Errorf("%v: %d keys, %v", c.h, len(got), err)
		}
	}
}

func TestHostKey(t *testing.T) {
	_, a := ed(t)
	for text, ok := range map[string]bool{line(a): true, line(a) + " a comment": true, "": false, "ssh-ed25519": false, "ssh-rsa " + strings.Fields(line(a))[1]: false, line(a) + "A": false} {
		if _, err := HostKey(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
