package sshagent

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the format of known_hosts
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Host is a server at which keys may be used.
type Host struct {
	Name string // a name or an address, in lower case
	Port uint16
	Keys [][]byte // its public keys; none: it is never found to be that host
}

// at is how known_hosts names it.
func (h Host) at() string {
	if h.Port == 22 || h.Port == 0 {
		return h.Name
	}
	return "[" + h.Name + "]:" + strconv.Itoa(int(h.Port))
}

func (h Host) String() string {
	if h.Port == 22 || h.Port == 0 {
		return h.Name
	}
	return net.JoinHostPort(h.Name, strconv.Itoa(int(h.Port)))
}

// HostKey reads a public key as known_hosts has it: its kind and its text.
func HostKey(text string) ([]byte, error) {
	kind, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	b64, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	blob, err := base64.StdEncoding.DecodeString(b64)
	if err != nil || b64 == "" {
		return nil, errors.New("it is not of the form KIND TEXT, as in known_hosts")
	}
	k, err := ssh.ParsePublicKey(blob)
	if err != nil || k.Type() != kind || !bytes.Equal(k.Marshal(), blob) {
		return nil, errors.New("it is no public key of the kind that it says")
	}
	if hostSignatures[kind] == nil {
		return nil, fmt.Errorf("host keys of the kind %s are not taken", kind)
	}
	return blob, nil
}

// maxKnown is the most that is read of a known_hosts.
const maxKnown = 4 << 20

// KnownKeys returns the keys that a known_hosts has for a host, without those that
// it revokes. Authorities for certificates and kinds of keys that are not taken
// are passed over.
func KnownKeys(known io.Reader, h Host) ([][]byte, error) {
	text, err := io.ReadAll(io.LimitReader(known, maxKnown+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxKnown {
		return nil, errors.New("the file of known hosts is too large")
	}
	var keys, revoked [][]byte
	for line := range strings.Lines(string(text)) {
		w := strings.Fields(line)
		mark := ""
		if len(w) > 0 && strings.HasPrefix(w[0], "@") {
			mark, w = w[0], w[1:]
		}
		if len(w) < 3 || strings.HasPrefix(w[0], "#") || !matches(w[0], strings.ToLower(h.at())) {
			continue
		}
		k, err := HostKey(w[1] + " " + w[2])
		if err != nil {
			continue
		}
		switch mark {
		case "":
			keys = append(keys, k)
		case "@revoked":
			revoked = append(revoked, k)
		}
	}
	keys = slices.DeleteFunc(keys, func(k []byte) bool {
		return slices.ContainsFunc(revoked, func(r []byte) bool { return bytes.Equal(k, r) })
	})
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal), nil
}

// matches says whether the first field of a line is about a host. A pattern with
// a sign in front takes it out again.
func matches(field, at string) bool {
	if rest, ok := strings.CutPrefix(field, "|1|"); ok {
		s, sum, _ := strings.Cut(rest, "|")
		salt, err1 := base64.StdEncoding.DecodeString(s)
		want, err2 := base64.StdEncoding.DecodeString(sum)
		m := hmac.New(sha1.New, salt)
		m.Write([]byte(at))
		return err1 == nil && err2 == nil && hmac.Equal(want, m.Sum(nil))
	}
	found := false
	for p := range strings.SplitSeq(strings.ToLower(field), ",") {
		p, not := strings.CutPrefix(p, "!")
		if like(p, at) {
			if not {
				return false
			}
			found = true
		}
	}
	return found
}

// like is how OpenSSH compares a name with a pattern: * and ? are its only signs.
func like(p, s string) bool {
	star, back := -1, 0
	i, j := 0, 0
	for i < len(s) {
		switch {
		case j < len(p) && p[j] == '*':
			star, back = j, i
			j++
		case j < len(p) && (p[j] == '?' || p[j] == s[i]):
			i, j = i+1, j+1
		case star >= 0:
			back++
			i, j = back, star+1
		default:
			return false
		}
	}
	return strings.Trim(p[j:], "*") == ""
}

// KnownHosts is the text of a known_hosts with these hosts.
func KnownHosts(hosts []Host) string {
	var b strings.Builder
	for _, h := range hosts {
		for _, k := range h.Keys {
			f := fields{b: k}
			fmt.Fprintf(&b, "%s %s %s\n", h.at(), f.bytes(), base64.StdEncoding.EncodeToString(k))
		}
	}
	return b.String()
}

func fingerprint(blob []byte) string {
	s := sha256.Sum256(blob)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(s[:])
}
