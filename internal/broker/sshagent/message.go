package sshagent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// What an agent is asked and answers; all other numbers are refused.
const (
	msgFailure          = 5
	msgSuccess          = 6
	msgList             = 11
	msgKeys             = 12
	msgSign             = 13
	msgSignature        = 14
	msgExtension        = 27
	msgExtensionFailure = 28
)

const sessionBind = "session-bind@openssh.com"

// The bounds of what is read from inside. A login of the largest key that OpenSSH
// makes, with a certificate, is far below them.
const (
	maxMessage = 64 << 10
	maxText    = 256
)

var errForm = errors.New("it has not the form that it should have")

// fields reads the parts of a message. After a mistake everything is empty.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) take(n int) []byte {
	if f.bad || n < 0 || n > len(f.b) {
		f.b, f.bad = nil, true
		return nil
	}
	p := f.b[:n:n]
	f.b = f.b[n:]
	return p
}

func (f *fields) byte() byte {
	if p := f.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (f *fields) number() uint32 {
	if p := f.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (f *fields) bytes() []byte {
	n := f.number()
	if n > maxMessage {
		f.b, f.bad = nil, true
		return nil
	}
	return f.take(int(n))
}

// text is a string that may be shown: short, of visible ASCII.
func (f *fields) text() string {
	b := f.bytes()
	if len(b) > maxText || slices.ContainsFunc(b, func(c byte) bool { return c <= ' ' || c > '~' }) {
		f.b, f.bad = nil, true
		return ""
	}
	return string(b)
}

func (f *fields) end() error {
	if f.bad || len(f.b) != 0 {
		return errForm
	}
	return nil
}

func appendBytes(b, s []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

// binding is a session that a program inside says to have with a host: its
// number, signed by the host.
type binding struct {
	host      []byte // its public key
	session   []byte
	forwarded bool
	raw       []byte // the whole, for an agent that binds as well
}

// parseBinding reads a session-bind request and checks the host's signature.
func parseBinding(contents []byte) (*binding, error) {
	f := fields{b: contents}
	b := &binding{host: f.bytes(), session: f.bytes(), raw: contents}
	signature := f.bytes()
	forwarded := f.byte()
	if err := f.end(); err != nil || forwarded > 1 || !sessionLength(b.session) {
		return nil, errForm
	}
	b.forwarded = forwarded == 1
	key, err := ssh.ParsePublicKey(b.host)
	if err != nil {
		return nil, fmt.Errorf("the key of the host cannot be read: %v", err)
	}
	var s ssh.Signature
	if err := ssh.Unmarshal(signature, &s); err != nil || len(s.Rest) != 0 {
		return nil, errForm
	}
	if !bytes.Equal(key.Marshal(), b.host) || !slices.Contains(hostSignatures[key.Type()], s.Format) {
		return nil, fmt.Errorf("a host key of the kind %.40q with a signature of the kind %.40q is not taken", key.Type(), s.Format)
	}
	if err := key.Verify(b.session, &s); err != nil {
		return nil, errors.New("the host has not signed this session")
	}
	return b, nil
}

// sessionLength says whether a session's number is as long as a hash of the SHA-2
// family.
func sessionLength(s []byte) bool { return len(s) == 32 || len(s) == 48 || len(s) == 64 }

// hostSignatures are the signatures that count of each kind of host key. SHA-1 is
// not among them, nor are certificates: which authority names a host is nothing
// that a loan says.
var hostSignatures = map[string][]string{
	ssh.KeyAlgoED25519:  {ssh.KeyAlgoED25519},
	ssh.KeyAlgoECDSA256: {ssh.KeyAlgoECDSA256},
	ssh.KeyAlgoECDSA384: {ssh.KeyAlgoECDSA384},
	ssh.KeyAlgoECDSA521: {ssh.KeyAlgoECDSA521},
	ssh.KeyAlgoRSA:      {ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA512},
}

// The flags of a request to sign: which hash an RSA key is used with.
const (
	flagSHA256 = 2
	flagSHA512 = 4
)

// algorithms are the names by which a signature of a kind of key may be asked
// for in a login, by the flags that go with them; and how that signature is named.
var algorithms = map[string]map[uint32][2]string{
	ssh.KeyAlgoED25519:       {0: {ssh.KeyAlgoED25519, ssh.KeyAlgoED25519}},
	ssh.KeyAlgoECDSA256:      {0: {ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA256}},
	ssh.KeyAlgoECDSA384:      {0: {ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA384}},
	ssh.KeyAlgoECDSA521:      {0: {ssh.KeyAlgoECDSA521, ssh.KeyAlgoECDSA521}},
	ssh.KeyAlgoSKED25519:     {0: {ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKED25519}},
	ssh.KeyAlgoSKECDSA256:    {0: {ssh.KeyAlgoSKECDSA256, ssh.KeyAlgoSKECDSA256}},
	ssh.KeyAlgoRSA:           {flagSHA256: {ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA256}, flagSHA512: {ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA512}},
	ssh.CertAlgoED25519v01:   {0: {ssh.CertAlgoED25519v01, ssh.KeyAlgoED25519}},
	ssh.CertAlgoECDSA256v01:  {0: {ssh.CertAlgoECDSA256v01, ssh.KeyAlgoECDSA256}},
	ssh.CertAlgoECDSA384v01:  {0: {ssh.CertAlgoECDSA384v01, ssh.KeyAlgoECDSA384}},
	ssh.CertAlgoECDSA521v01:  {0: {ssh.CertAlgoECDSA521v01, ssh.KeyAlgoECDSA521}},
	ssh.CertAlgoSKED25519v01: {0: {ssh.CertAlgoSKED25519v01, ssh.KeyAlgoSKED25519}},
	ssh.CertAlgoRSAv01:       {flagSHA256: {ssh.CertAlgoRSASHA256v01, ssh.KeyAlgoRSASHA256}, flagSHA512: {ssh.CertAlgoRSASHA512v01, ssh.KeyAlgoRSASHA512}},
}

// purpose is what a signature is asked for.
type purpose struct {
	// Of a login.
	session   []byte
	user      string
	algorithm string
	key       []byte // empty: it is no login
	host      []byte // the server's key; nil where the client does not name it
	// Of a document.
	namespace string
}

const documentMagic = "SSHSIG"

// parsePurpose reads what is to be signed. What is neither a login nor a document
// in the form of ssh-keygen is an error: an agent that signs bytes signs anything.
func parsePurpose(data []byte) (purpose, error) {
	var p purpose
	if rest, ok := strings.CutPrefix(string(data), documentMagic); ok {
		f := fields{b: []byte(rest)}
		p.namespace = f.text()
		reserved, hash, sum := f.bytes(), f.text(), f.bytes()
		size := map[string]int{"sha256": 32, "sha512": 64}[hash]
		if f.end() != nil || p.namespace == "" || len(reserved) != 0 || size == 0 || len(sum) != size {
			return p, errors.New("a document that is to be signed has not the form of one")
		}
		return p, nil
	}
	no := errors.New("what is to be signed is no login")
	f := fields{b: data}
	p.session = f.bytes()
	if f.byte() != 50 || !sessionLength(p.session) { // SSH_MSG_USERAUTH_REQUEST
		return p, no
	}
	p.user = f.text()
	service, method := f.text(), f.text()
	signed := f.byte()
	p.algorithm, p.key = f.text(), f.bytes()
	switch method {
	case "publickey":
	case "publickey-hostbound-v00@openssh.com":
		p.host = f.bytes()
		if len(p.host) == 0 {
			return p, no
		}
	default:
		return p, no
	}
	if f.end() != nil || service != "ssh-connection" || signed != 1 || p.user == "" || len(p.key) == 0 {
		return p, no
	}
	return p, nil
}
