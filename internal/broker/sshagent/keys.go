package sshagent

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// Key is a public key with the name that its owner gave it.
type Key struct {
	Blob    []byte // as in the protocol
	Comment string
}

// Fingerprint is how OpenSSH shows a key; of a certificate it is that of the
// whole certificate.
func (k Key) Fingerprint() string { return fingerprint(k.Blob) }

// Keys makes signatures. Methods may be called from several goroutines.
type Keys interface {
	List(ctx context.Context) ([]Key, error)
	// Sign signs with one of the keys. bound is the request by which the session
	// was bound, for an agent that holds its keys to hosts; may be nil.
	Sign(ctx context.Context, key, data []byte, flags uint32, bound []byte) (*ssh.Signature, error)
}

// maxSilence is how long a person's agent may take for one answer. It may ask its
// person, or wait for a key that must be touched.
const maxSilence = 2 * time.Minute

// FromAgent returns the keys of an SSH agent that listens at a Unix socket. It
// connects anew for each question.
func FromAgent(socket string) Keys { return agentKeys(socket) }

type agentKeys string

func (a agentKeys) dial(ctx context.Context) (net.Conn, func(), error) {
	c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "unix", string(a))
	if err != nil {
		return nil, nil, fmt.Errorf("the SSH agent does not answer: %v", err)
	}
	_ = c.SetDeadline(time.Now().Add(maxSilence))
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return c, func() { stop(); _ = c.Close() }, nil
}

func (a agentKeys) List(ctx context.Context) ([]Key, error) {
	c, done, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	ks, err := agent.NewClient(c).List()
	if err != nil {
		return nil, err
	}
	out := make([]Key, 0, len(ks))
	for _, k := range ks {
		out = append(out, Key{Blob: k.Blob, Comment: k.Comment})
	}
	return out, nil
}

func (a agentKeys) Sign(ctx context.Context, key, data []byte, flags uint32, bound []byte) (*ssh.Signature, error) {
	c, done, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	cl := agent.NewClient(c)
	if bound != nil {
		_, _ = cl.Extension(sessionBind, bound) // an agent that does not know it holds no key to a host
	}
	return cl.SignWithFlags(blobKey(key), data, agent.SignatureFlags(flags))
}

// blobKey is a public key of which only the bytes matter.
type blobKey []byte

func (k blobKey) Type() string                        { f := fields{b: k}; return string(f.bytes()) }
func (k blobKey) Marshal() []byte                     { return k }
func (k blobKey) Verify([]byte, *ssh.Signature) error { return errors.New("not verified here") }

// FromPrivate returns the key in the text of a private key file. Its comment is
// name.
func FromPrivate(text []byte, name string) (Keys, error) {
	s, err := ssh.ParsePrivateKey(text)
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return nil, errors.New("the private key has a passphrase, and nobody is asked for one: load it into an SSH agent")
	case err != nil:
		return nil, errors.New("it is no private key that can be read")
	}
	as, ok := s.(ssh.AlgorithmSigner)
	if !ok {
		return nil, fmt.Errorf("a key of the kind %s cannot be used", s.PublicKey().Type())
	}
	return fileKey{as, name}, nil
}

type fileKey struct {
	signer ssh.AlgorithmSigner
	name   string
}

func (k fileKey) List(context.Context) ([]Key, error) {
	return []Key{{Blob: k.signer.PublicKey().Marshal(), Comment: k.name}}, nil
}

func (k fileKey) Sign(_ context.Context, key, data []byte, flags uint32, _ []byte) (*ssh.Signature, error) {
	if !bytes.Equal(key, k.signer.PublicKey().Marshal()) {
		return nil, errors.New("there is no such key")
	}
	alg, ok := algorithms[k.signer.PublicKey().Type()][flags]
	if !ok {
		return nil, errors.New("the key does not sign so")
	}
	return k.signer.SignWithAlgorithm(rand.Reader, data, alg[1])
}
