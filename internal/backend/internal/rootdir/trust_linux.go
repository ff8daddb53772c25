package rootdir

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/backend"
)

// bundles are where systems keep the list of certificates that programs trust.
var bundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem", "/etc/pki/tls/cacert.pem", "/etc/ssl/cert.pem"}

// covered are the folders in which such a list is seen inside.
var covered = []string{"/usr/", "/etc/ssl/certs/", "/etc/pki/ca-trust/", "/etc/pki/tls/certs/"}

const maxBundle = 4 << 20

// imageBundles are where images have theirs: what an image holds is not looked at.
var imageBundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"}

// Trust is what backend.TrustFile holds, so that programs inside trust the
// boundary's own certificates beside those of the system, and the places that it lies
// over. Empty: the boundary has none.
func Trust(s backend.Spec) (text string, over []string) {
	if s.Trust == "" {
		return "", nil
	}
	var list []byte
	for _, name := range bundles {
		own := s.Rootfs + name
		if s.Rootfs == "" {
			real, err := filepath.EvalSymlinks(name)
			if err != nil {
				continue
			}
			own, name = real, real
		}
		b := bundle(own) // of a root file system that a person chose no link is followed
		if b == nil || slices.Contains(over, name) {
			continue
		}
		if list == nil {
			list = b
		}
		if s.Rootfs != "" || slices.ContainsFunc(covered, func(dir string) bool { return strings.HasPrefix(name, dir) }) {
			over = append(over, name)
		}
	}
	if list == nil && s.Rootfs != "" {
		list = bundle(bundles[0])
	}
	if s.Image != "" {
		over = imageBundles
	}
	return strings.ToValidUTF8(string(list), "?") + "\n" + s.Trust, over
}

// bundle reads a list of certificates; nil: it is none, or no plain file.
func bundle(name string) []byte {
	st, err := os.Lstat(name)
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxBundle {
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBundle))
	if err != nil || !bytes.Contains(b, []byte("-----BEGIN CERTIFICATE-----")) {
		return nil
	}
	return b
}
