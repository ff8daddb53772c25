package sshagent

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// asked is what a loan was asked to allow, and what was refused.
type asked struct {
	sync.Mutex
	uses    []Use
	refused []string
	deny    error
}

func (a *asked) take() ([]Use, []string) {
	a.Lock()
	defer a.Unlock()
	u, r := a.uses, a.refused
	a.uses, a.refused = nil, nil
	return u, r
}

// loan is what the tests lend: two of the keys, at one host, for git.
func (k *kit) loan(a *asked) Loan {
	return Loan{
		Handle: "deploy", Keys: func(context.Context) (Keys, error) { return FromAgent(k.socket), nil },
		Named: []string{"work", fingerprint(k.rsa.PublicKey().Marshal())},
		Hosts: []Host{{Name: "git.test", Port: 22, Keys: [][]byte{k.host.PublicKey().Marshal()}}}, Users: []string{"git"},
		Use: func(_ context.Context, u Use, sign func(Keys) error) error {
			a.Lock()
			a.uses = append(a.uses, u)
			deny := a.deny
			a.Unlock()
			if deny != nil {
				return deny
			}
			return sign(FromAgent(k.socket))
		},
	}
}

// start has a filter listen, and returns its socket.
func start(t *testing.T, a *asked, loans ...Loan) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "f")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(Config{Loans: func() []Loan { return loans }, Refused: func(what, why string) {
		a.Lock()
		defer a.Unlock()
		a.refused = append(a.refused, what+": "+why)
	}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.Serve(l) }()
	t.Cleanup(func() {
		f.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "s")
}

// say sends messages on one connection and returns the last answer; nil: none came.
func say(t *testing.T, socket string, msgs ...[]byte) []byte {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	var last []byte
	for _, m := range msgs {
		if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(m))), m...)); err != nil {
			return nil
		}
		if last, err = readMessage(c); err != nil {
			return nil
		}
	}
	return last
}

func session(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

func extension(name string, contents []byte) []byte {
	return append(appendBytes([]byte{msgExtension}, []byte(name)), contents...)
}

func bindTo(t *testing.T, host ssh.Signer, sid []byte, forwarded byte) []byte {
	t.Helper()
	sig, err := host.Sign(rand.Reader, sid)
	if err != nil {
		t.Fatal(err)
	}
	b := appendBytes(nil, host.PublicKey().Marshal())
	return extension(sessionBind, append(appendBytes(appendBytes(b, sid), ssh.Marshal(sig)), forwarded))
}

func loginText(sid []byte, user string, alg string, key, host []byte) []byte {
	b := append(appendBytes(nil, sid), 50)
	b = appendBytes(appendBytes(b, []byte(user)), []byte("ssh-connection"))
	method := "publickey"
	if host != nil {
		method = "publickey-hostbound-v00@openssh.com"
	}
	b = append(appendBytes(b, []byte(method)), 1)
	b = appendBytes(appendBytes(b, []byte(alg)), key)
	if host != nil {
		b = appendBytes(b, host)
	}
	return b
}

func signOf(key, data []byte, flags uint32) []byte {
	return binary.BigEndian.AppendUint32(appendBytes(appendBytes([]byte{msgSign}, key), data), flags)
}

func document(namespace string) []byte {
	b := appendBytes([]byte(documentMagic), []byte(namespace))
	return appendBytes(appendBytes(appendBytes(b, nil), []byte("sha256")), make([]byte, 32))
}

// TestSign: what the filter signs and what not, each beside what the agent behind
// it does when it is asked the same.
func TestSign(t *testing.T) {
	k := newKit(t)
	key, rsaKey, priv := k.lent.PublicKey().Marshal(), k.rsa.PublicKey().Marshal(), k.private.PublicKey().Marshal()
	hostKey := k.host.PublicKey().Marshal()
	const ed = ssh.KeyAlgoED25519
	n := byte(0)
	for _, c := range []struct {
		name string
		msgs func(sid []byte) [][]byte
		why  string // part of the reason of the refusal; "" = it is signed
	}{
		{"a login in a bound session", func(s []byte) [][]byte {
			return [][]byte{bindTo(t, k.host, s, 0), {msgList}, signOf(key, loginText(s, "git", ed, key, nil), 0)}
		}, ""},
		{"bound to the host by the client as well", func(s []byte) [][]byte {
			return [][]byte{bindTo(t, k.host, s, 0), signOf(key, loginText(s, "git", ed, key, hostKey), 0)}
		}, ""},
		{"RSA with SHA-2", func(s []byte) [][]byte {
			return [][]byte{bindTo(t, k.host, s, 0), signOf(rsaKey, loginText(s, "git", ssh.KeyAlgoRSASHA512, rsaKey, nil), 4)}
		}, ""},
		{"RSA with SHA-1", func(s []byte) [][]byte {
			return [][]byte{bindTo(t, k.host, s, 0), signOf(rsaKey, loginText(s, "git", ssh.KeyAlgoRSA, rsaKey, nil), 0)}
		}, "of this kind are not made"},
		{"RSA, another hash than it says", func(s []byte) [][]byte {
			return [][]byte{bindTo(t, k.host, s, 0), signOf(rsaKey, loginText(s, "git", ssh.KeyAlgoRSASHA256, rsaKey, nil), 4)}
		}, "another key"},
		{"no session is bound", func(s []byte) [][]byte { return [][]byte{signOf(key, loginText(s, "git", ed, key, nil), 0)} }, "not bound to a session"},
		{"another session", func(s []byte) [][]byte {
			return [][]byte{bindTo(t, k.host, s, 0), signOf(key, loginText(session(0), "git", ed, key, nil), 0)}
		}, "another session"},
		{"another host", func(s []byte) [][]byte {
			return [][]byte{bindTo(t, k.evil, s, 0), signOf(key, loginText(s, "git", ed, key, nil), 0)}
		}, "no host that a key was lent for"},
		{"another host, named as ours", func(s []byte) [][]byte {
			return [][]byte{bindTo(t, k.host, s, 0), signOf(key, loginText(s, "git", ed, key, k.evil.PublicKey().Marshal()), 0)}
		}, "another host"},
		{"a signature of the host that is none", func(s []byte) [][]byte {
			return [][]byte{bindTo(t, k.evil, s, 0), bindTo(t, k.host, s, 0), signOf(key, loginText(s, "git", ed, key, nil), 0)}
		}, ""},
		{"forwarded", func(s []byte) [][]byte {
			return [][]byte{bindTo(t, k.host, session(200), 1), bindTo(t, k.host, s, 0), signOf(key, loginText(s, "git", ed, key, nil), 0)}
		}, ""},
		{"another user", func(s []byte) [][]byte {
			return [][]byte{bindTo(t, k.host, s, 0), signOf(key, loginText(s, "root", ed, key, nil), 0)}
		}, "not lent for the user root"},
		{"a key that is not lent", func(s []byte) [][]byte {
			return [][]byte{bindTo(t, k.host, s, 0), signOf(priv, loginText(s, "git", ed, priv, nil), 0)}
		}, "the key was not lent"},
		{"a certificate of a lent key", func(s []byte) [][]byte {
			cert := k.cert.Marshal()
			return [][]byte{bindTo(t, k.host, s, 0), signOf(cert, loginText(s, "git", ssh.CertAlgoED25519v01, cert, nil), 0)}
		}, "the key was not lent"},
		{"a key that is not the one of the login", func(s []byte) [][]byte {
			return [][]byte{bindTo(t, k.host, s, 0), signOf(key, loginText(s, "git", ed, priv, nil), 0)}
		}, "another key"},
		{"the same again", func(s []byte) [][]byte {
			m := signOf(key, loginText(s, "git", ed, key, nil), 0)
			return [][]byte{bindTo(t, k.host, s, 0), m, m}
		}, "the same was signed before"},
		{"bytes", func(s []byte) [][]byte { return [][]byte{signOf(key, []byte("anything"), 0)} }, "no login"},
		{"a login with something behind", func(s []byte) [][]byte {
			return [][]byte{bindTo(t, k.host, s, 0), signOf(key, append(loginText(s, "git", ed, key, nil), 0), 0)}
		}, "no login"},
		{"a document", func(s []byte) [][]byte { return [][]byte{signOf(key, document("git"), 0)} }, "are not signed with it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n++
			sid := session(n)
			msgs := c.msgs(sid)
			if c.name == "a signature of the host that is none" { // the key of ours, the signature of another
				forged := slices.Clone(msgs[1])
				forged[len(forged)-2] ^= 1
				msgs = [][]byte{forged, msgs[2]}
				c.why = "has not signed this session"
			}
			if c.name == "forwarded" {
				c.why = "was forwarded to another machine"
			}
			var a asked
			got := say(t, start(t, &a, k.loan(&a)), msgs...)
			uses, refused := a.take()
			if signed := len(got) > 0 && got[0] == msgSignature; signed != (c.why == "") {
				t.Errorf("answered %v, refused %q", got, refused)
			}
			if c.why == "" && (len(uses) != 1 || len(refused) != 0 || uses[0].Host != "git.test" || uses[0].User != "git") {
				t.Errorf("asked for %v, refused %q", uses, refused)
			}
			if c.why != "" && !strings.Contains(strings.Join(refused, "\n"), c.why) {
				t.Errorf("refused %q, want %q", refused, c.why)
			}
			raw := say(t, k.socket, msgs...)
			if len(raw) == 0 || raw[0] != msgSignature {
				t.Errorf("the agent itself answered %v", raw)
			}
		})
	}
}

// TestReplay: what one connection was given is of no use to another.
func TestReplay(t *testing.T) {
	k := newKit(t)
	var a asked
	at := start(t, &a, k.loan(&a))
	key := k.lent.PublicKey().Marshal()
	msgs := [][]byte{bindTo(t, k.host, session(7), 0), signOf(key, loginText(session(7), "git", ssh.KeyAlgoED25519, key, nil), 0)}
	if got := say(t, at, msgs...); got[0] != msgSignature {
		t.Fatal(got)
	}
	if got := say(t, at, msgs...); got[0] != msgFailure {
		t.Errorf("the whole exchange again is answered with %v", got)
	}
	if _, refused := a.take(); !strings.Contains(strings.Join(refused, "\n"), "another connection was bound") {
		t.Errorf("refused %q", refused)
	}
	for range 2 {
		if got := say(t, k.socket, msgs...); got[0] != msgSignature {
			t.Errorf("the agent itself answered %v", got)
		}
	}
}

// TestRest: nothing but listing and signing, and only what is lent is listed.
func TestRest(t *testing.T) {
	k := newKit(t)
	var a asked
	at := start(t, &a, k.loan(&a))
	list := say(t, at, []byte{msgList})
	for _, c := range []struct {
		s    ssh.PublicKey
		want bool
	}{{k.lent.PublicKey(), true}, {k.rsa.PublicKey(), true}, {k.private.PublicKey(), false}, {k.cert, false}} {
		if bytes.Contains(list, c.s.Marshal()) != c.want {
			t.Errorf("%s is listed: %v", ssh.FingerprintSHA256(c.s), !c.want)
		}
		if !bytes.Contains(say(t, k.socket, []byte{msgList}), c.s.Marshal()) {
			t.Error("the agent itself does not list it")
		}
	}
	if got := say(t, at, bindTo(t, k.evil, session(1), 0), []byte{msgList}); !bytes.Equal(got, []byte{msgKeys, 0, 0, 0, 0}) {
		t.Errorf("at another host %v is listed", got)
	}
	a.take()
	for _, m := range [][]byte{{19}, {18}, {22, 0, 0, 0, 0}, {17}, {25}, {20}, {26}, {21}, {9}, {1}, {255}, {msgList, 0}, {msgSign}, {msgSign, 0xff, 0xff, 0xff, 0xff}} {
		if got := say(t, at, m); len(got) != 1 || got[0] != msgFailure {
			t.Errorf("%v is answered with %v", m, got)
		}
	}
	for _, m := range [][]byte{extension("query", nil), extension(sessionBind, nil), {msgExtension}, {msgExtension, 0xff, 0xff, 0xff, 0xff}, extension("restrict-destination-v00@openssh.com", []byte("x"))} {
		if got := say(t, at, m); len(got) != 1 || got[0] != msgExtensionFailure {
			t.Errorf("%q is answered with %v", m, got)
		}
	}
	if _, refused := a.take(); len(refused) != 19 {
		t.Errorf("%d of 19 are told: %q", len(refused), refused)
	}
	for _, m := range []string{"\x00\x00\x00\x00", "\xff\xff\xff\xff", "\x00\x01\x00\x01x"} {
		c, err := net.Dial("unix", at)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(m))
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a length of %q: %d %v", m, n, err)
		}
		c.Close()
	}
	if got := say(t, at, []byte{msgList}); !bytes.Equal(got, list) {
		t.Error("after that keys are not listed any more")
	}
}

// TestLoans: what a loan says counts, for as long as it does.
func TestLoans(t *testing.T) {
	k := newKit(t)
	key := k.lent.PublicKey().Marshal()
	login := func(n byte) [][]byte {
		return [][]byte{bindTo(t, k.host, session(n), 0), signOf(key, loginText(session(n), "git", ssh.KeyAlgoED25519, key, nil), 0)}
	}
	for i, c := range []struct {
		name   string
		change func(l *Loan, a *asked)
		msgs   [][]byte
		why    string
	}{
		{"nobody agrees", func(l *Loan, a *asked) { a.deny = errors.New("a person said no") }, login(1), "a person said no"},
		{"taken back", func(l *Loan, a *asked) {
			l.Keys = func(context.Context) (Keys, error) { return nil, errors.New("it was taken back") }
		}, login(2), "it was taken back"},
		{"a host without a key", func(l *Loan, a *asked) { l.Hosts = []Host{{Name: "git.test"}} }, login(3), "no host that a key was lent for"},
		{"no hosts", func(l *Loan, a *asked) { l.Hosts = nil }, login(4), "no host that a key was lent for"},
		{"no keys", func(l *Loan, a *asked) { l.Named = nil }, login(5), "the key was not lent"},
		{"no loans", nil, login(6), "no host that a key was lent for"},
		{"any user", func(l *Loan, a *asked) { l.Users = nil }, login(7), ""},
		{"documents", func(l *Loan, a *asked) { l.Namespaces = []string{"git"} }, [][]byte{signOf(key, document("git"), 0)}, ""},
		{"other documents", func(l *Loan, a *asked) { l.Namespaces = []string{"git"} }, [][]byte{signOf(key, document("file"), 0)}, "are not signed with it"},
		{"a document in a session", func(l *Loan, a *asked) { l.Namespaces = []string{"git"} }, [][]byte{login(8)[0], signOf(key, document("git"), 0)}, "and a document is none"},
		{"a certificate that is named", func(l *Loan, a *asked) { l.Named = []string{fingerprint(k.cert.Marshal())} },
			[][]byte{login(9)[0], signOf(k.cert.Marshal(), loginText(session(9), "git", ssh.CertAlgoED25519v01, k.cert.Marshal(), nil), 0)}, ""},
	} {
		t.Run(fmt.Sprint(i, " ", c.name), func(t *testing.T) {
			var a asked
			var loans []Loan
			if c.change != nil {
				l := k.loan(&a)
				c.change(&l, &a)
				loans = append(loans, l)
			}
			got := say(t, start(t, &a, loans...), c.msgs...)
			_, refused := a.take()
			if signed := got[0] == msgSignature; signed != (c.why == "") || !strings.Contains(strings.Join(refused, "\n"), c.why) {
				t.Errorf("answered %v, refused %q, want %q", got, refused, c.why)
			}
		})
	}
}

// TestFile: a private key can lie in a file instead.
func TestFile(t *testing.T) {
	k := newKit(t)
	raw, s := ed(t)
	b, err := ssh.MarshalPrivateKey(raw, "")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := FromPrivate(pem.EncodeToMemory(b), "deploy")
	if err != nil {
		t.Fatal(err)
	}
	var a asked
	l := k.loan(&a)
	l.Keys, l.Named = func(context.Context) (Keys, error) { return keys, nil }, []string{"deploy"}
	l.Use = func(_ context.Context, u Use, sign func(Keys) error) error { return sign(keys) }
	key := s.PublicKey().Marshal()
	data := loginText(session(1), "git", ssh.KeyAlgoED25519, key, nil)
	got := say(t, start(t, &a, l), bindTo(t, k.host, session(1), 0), signOf(key, data, 0))
	if got[0] != msgSignature {
		t.Fatal(a.take())
	}
	f := fields{b: got[1:]}
	var sig ssh.Signature
	if err := ssh.Unmarshal(f.bytes(), &sig); err != nil || s.PublicKey().Verify(data, &sig) != nil {
		t.Error("the signature is none of that key")
	}
	b, err = ssh.MarshalPrivateKeyWithPassphrase(raw, "", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{string(pem.EncodeToMemory(b)): "passphrase", "": "no private key", "secret": "no private key"} {
		if _, err := FromPrivate([]byte(text), "x"); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestTwo: a comment that two keys have names none of them.
func TestTwo(t *testing.T) {
	_, a := ed(t)
	_, b := ed(t)
	l := Loan{Named: []string{"same"}}
	if got, err := l.named([]Key{{a.PublicKey().Marshal(), "same"}, {b.PublicKey().Marshal(), "same"}}); err == nil || len(got) > 0 {
		t.Errorf("%v %v", got, err)
	}
	l.Named = []string{fingerprint(b.PublicKey().Marshal())}
	if got, err := l.named([]Key{{a.PublicKey().Marshal(), l.Named[0]}, {b.PublicKey().Marshal(), "same"}}); err != nil || len(got) != 1 || !bytes.Equal(got[0].Blob, b.PublicKey().Marshal()) {
		t.Errorf("a comment that looks like a fingerprint is taken for one: %v %v", got, err)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte{msgList})
	f.Add(append([]byte{msgSign}, document("git")...))
	f.Add(extension(sessionBind, bytes.Repeat([]byte{0, 0, 0, 1, 0}, 8)))
	flt, err := New(Config{Loans: func() []Loan { return nil }, Refused: func(string, string) {}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		got := (&client{f: flt}).answer(b)
		if got[0] == msgSignature || got[0] == msgSuccess {
			t.Errorf("%q is answered with %v", b, got)
		}
		if _, err := parsePurpose(b); err == nil && len(b) < 40 {
			t.Errorf("%q is taken for something that can be signed", b)
		}
	})
}
