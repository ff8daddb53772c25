package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Source says where a secret is read. One part is given.
type Source struct {
	Env     string
	File    string
	Command []string
	Keyring map[string]string // attributes of an entry of the Secret Service
	Agent   bool              // no secret is read: the keys stay in the person's agent
}

// Kind says in a word where it is read.
func (s *Source) Kind() string {
	switch {
	case s.Env != "":
		return "env"
	case s.File != "":
		return "file"
	case len(s.Command) > 0:
		return "command"
	case len(s.Keyring) > 0:
		return "keyring"
	case s.Agent:
		return "agent"
	}
	return ""
}

// Reader reads secrets. Its zero value reads files only.
type Reader struct {
	// Getenv is the environment of whoever started the task; nil: it is empty.
	Getenv func(string) string
	// Run runs a program of the person's on the host, with an environment of a few
	// variables and in a folder of nobody's, and returns what it prints, at most
	// MaxSecret bytes and one more. It ends with ctx. nil: none is run.
	Run func(ctx context.Context, argv []string) ([]byte, error)
}

// MaxSecret bounds a secret, in bytes; readTime how long reading one may take.
const (
	MaxSecret = 16 << 10
	readTime  = 30 * time.Second
)

// secret is what was read. It is in no string, so that it can be wiped.
type secret struct {
	value       []byte
	id, session []byte // of sigv4
}

// wipe overwrites it.
func (s *secret) wipe() {
	if s == nil {
		return
	}
	clear(s.value)
	clear(s.id)
	clear(s.session)
	s.value, s.id, s.session = nil, nil, nil
}

// Secret reads a handle's secret and calls use with it. The bytes are
// overwritten when use returns. An error says which handle and where it is read,
// and nothing of what was found there.
func (r Reader) Secret(ctx context.Context, h *Handle, use func(secret []byte) error) error {
	s, err := r.read(ctx, h)
	if err != nil {
		return err
	}
	defer s.wipe()
	return use(s.value)
}

func (r Reader) read(ctx context.Context, h *Handle) (*secret, error) {
	ctx, done := context.WithTimeout(ctx, readTime)
	defer done()
	raw, err := r.raw(ctx, h)
	if err != nil {
		return nil, err
	}
	defer clear(raw)
	if h.As == SigV4 {
		return keyPair(h, raw)
	}
	if h.As == SSH { // a private key has lines, and is never sent
		if len(raw) == 0 || len(raw) > MaxSecret {
			return nil, unread(h, "it is no private key", "look at where it is read from")
		}
		return &secret{value: bytes.Clone(raw)}, nil
	}
	v := bytes.TrimRight(raw, "\r\n")
	if err := usable(h, v); err != nil {
		return nil, err
	}
	return &secret{value: bytes.Clone(v)}, nil
}

// raw returns what stands where the handle says.
func (r Reader) raw(ctx context.Context, h *Handle) ([]byte, error) {
	f := &h.From
	switch {
	case f.Env != "":
		get := r.Getenv
		if get == nil {
			get = func(string) string { return "" }
		}
		v := get(f.Env)
		if v == "" {
			return nil, unread(h, "the environment of whoever started the task has no variable "+f.Env, "set it before the task is started")
		}
		if stem, ok := strings.CutSuffix(f.Env, "ACCESS_KEY_ID"); ok && h.As == SigV4 {
			return []byte(v + "\n" + get(stem+"SECRET_ACCESS_KEY") + "\n" + get(stem+"SESSION_TOKEN")), nil
		}
		return []byte(v), nil
	case f.File != "":
		return fromFile(h, f.File)
	case len(f.Command) > 0:
		return r.run(ctx, h, f.Command)
	case len(f.Keyring) > 0:
		argv := []string{"secret-tool", "lookup"}
		keys := make([]string, 0, len(f.Keyring))
		for k := range f.Keyring {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			argv = append(argv, k, f.Keyring[k])
		}
		return r.run(ctx, h, argv)
	}
	return nil, unread(h, "nothing is read for it", "its from names env, file, command or keyring")
}

func unread(h *Handle, why, fix string) error {
	return task.Errorf(task.CodeUnavailable, "broker.read", "the credential %s cannot be read: %s", h.Name, why).WithHint("%s", fix)
}

// fromFile reads a file that its owner alone can read and change.
func fromFile(h *Handle, name string) ([]byte, error) {
	const fix = "it is a file of yours that nobody else can read: chmod 600"
	f, err := sys.OpenTrusted(name, os.Geteuid())
	if err != nil {
		return nil, unread(h, err.Error(), fix)
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return nil, unread(h, err.Error(), fix)
	case !fi.Mode().IsRegular():
		return nil, unread(h, name+" is not a file", fix)
	case othersRead(fi):
		return nil, unread(h, name+" can be read by others", fix)
	}
	b := make([]byte, 0, min(fi.Size(), MaxSecret)+bytes.MinRead) // no copy of it is left behind by growing
	buf := bytes.NewBuffer(b)
	if _, err := buf.ReadFrom(io.LimitReader(f, MaxSecret+1)); err != nil {
		clear(buf.Bytes())
		return nil, unread(h, err.Error(), fix)
	}
	return buf.Bytes(), nil
}

func (r Reader) run(ctx context.Context, h *Handle, argv []string) ([]byte, error) {
	if r.Run == nil {
		return nil, unread(h, "no program is run here", "name a file or a variable")
	}
	out, err := r.Run(ctx, slices.Clone(argv))
	if err != nil {
		clear(out)
		return nil, unread(h, err.Error(), "run it by hand: its words, its login and its time of "+readTime.String()+" at most")
	}
	return out, nil
}

// usable refuses what can stand in no header field.
func usable(h *Handle, v []byte) error {
	switch {
	case len(v) == 0:
		return unread(h, "it is empty", "look at where it is read from")
	case len(v) > MaxSecret:
		return unread(h, "it is longer than a credential is", "look at where it is read from")
	case len(v) < 8:
		// It could not be told from other text in what comes back.
		return unread(h, "it is shorter than 8 bytes, and could not be kept out of what comes back", "use a longer one")
	}
	for _, c := range v {
		if c < ' ' || c == 0x7f {
			return unread(h, "it holds a control character or a second line", "the source must print the secret alone")
		}
	}
	return nil
}

// keyPair reads a key of AWS: the JSON that a credential_process prints, or lines
// with the key's id, its secret and, where there is one, its session token.
func keyPair(h *Handle, raw []byte) (*secret, error) {
	s := &secret{}
	if t := bytes.TrimSpace(raw); len(t) > 0 && t[0] == '{' {
		var p struct{ AccessKeyId, SecretAccessKey, SessionToken string } // as that process names them
		if json.Unmarshal(t, &p) != nil {
			return nil, unread(h, "it is no JSON of a key", "print what a credential_process of AWS prints")
		}
		s.id, s.value, s.session = []byte(p.AccessKeyId), []byte(p.SecretAccessKey), []byte(p.SessionToken)
	} else {
		l := bytes.Split(bytes.TrimRight(raw, "\r\n"), []byte("\n"))
		if len(l) < 2 || len(l) > 3 {
			return nil, unread(h, "it is not a key's id and its secret", "give both, in a line each, or as a credential_process of AWS prints them")
		}
		s.id, s.value = bytes.Clone(bytes.TrimSpace(l[0])), bytes.Clone(bytes.TrimSpace(l[1]))
		if len(l) == 3 {
			s.session = bytes.Clone(bytes.TrimSpace(l[2]))
		}
	}
	for _, v := range [][]byte{s.id, s.value} {
		if err := usable(h, v); err != nil {
			s.wipe()
			return nil, err
		}
	}
	if len(s.session) > 0 {
		if err := usable(h, s.session); err != nil {
			s.wipe()
			return nil, err
		}
	}
	return s, nil
}
