//go:build linux

package egress

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/policy"
)

// named are the hosts of the world that answer TLS with a name of their own; the
// registries have their real names.
var named = map[string]string{
	npmHost: registries, yarnHost: registries, pypiHost: registries, wheelHost: registries,
	goHost: registries, indexHost: registries, crateHost: registries,
	"a.test": public, "b.test": other, "git.test": gitHost, "deb.test": public, "db.test": dbHost, "nginx.test": nginxHost,
}

// The registries by what they are called, out of the list of the product.
var (
	npmHost, yarnHost, pypiHost, wheelHost = hostOf("npmjs"), hostOf("yarn"), hostOf("pypi"), hostOf("pythonhosted")
	goHost, indexHost, crateHost           = hostOf("proxy.go"), hostOf("index.crates"), hostOf("static.crates")
)

// hostOf is the registry with this in its name.
func hostOf(part string) string {
	for _, h := range policy.Registries {
		if strings.Contains(string(h), part) {
			return string(h)
		}
	}
	panic("no registry is called " + part)
}

// pack makes a compressed tar of the files, in the order given: name, text.
func pack(files ...string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for i := 0; i < len(files); i += 2 {
		_ = t.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1])), Format: tar.FormatUSTAR})
		_, _ = t.Write([]byte(files[i+1]))
	}
	_ = t.Close()
	_ = z.Close()
	return b.Bytes()
}

func zipped(files ...string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		w, _ := z.Create(files[i])
		_, _ = w.Write([]byte(files[i+1]))
	}
	_ = z.Close()
	return b.Bytes()
}

func sha(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// One thing that every registry has, in the form of each.
var (
	npmThing   = pack("package/package.json", `{"name":"thing","version":"1.0.0"}`, "package/index.js", "module.exports='the thing'\n")
	wheelThing = zipped("thing.py", "print('the thing')\n", "thing-1.0.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0.0\n",
		"thing-1.0.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: world\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "thing-1.0.0.dist-info/RECORD", "")
	goThing = zipped("thing.test/thing@v1.0.0/go.mod", "module thing.test/thing\n", "thing.test/thing@v1.0.0/thing.go", "package thing\n\nconst Text = \"the thing\"\n")
	crate   = pack("thing-1.0.0/Cargo.toml", "[package]\nname = \"thing\"\nversion = \"1.0.0\"\n", "thing-1.0.0/src/lib.rs", "\n")
	debian  = []byte("!<arch>\nthe thing\n")
)

// registryFiles are what the registries answer, by host and path.
var registryFiles = func() map[string]string {
	f := map[string]string{
		pypiHost + "/simple/thing/":                 `<!DOCTYPE html><a href="https://` + wheelHost + `/thing-1.0.0-py3-none-any.whl#sha256=` + sha(wheelThing) + `">thing-1.0.0-py3-none-any.whl</a>`,
		wheelHost + "/thing-1.0.0-py3-none-any.whl": string(wheelThing),
		goHost + "/thing.test/thing/@v/list":        "v1.0.0\n",
		goHost + "/thing.test/thing/@v/v1.0.0.info": `{"Version":"v1.0.0","Time":"2024-01-02T03:04:05Z"}`,
		goHost + "/thing.test/thing/@latest":        `{"Version":"v1.0.0","Time":"2024-01-02T03:04:05Z"}`,
		goHost + "/thing.test/thing/@v/v1.0.0.mod":  "module thing.test/thing\n",
		goHost + "/thing.test/thing/@v/v1.0.0.zip":  string(goThing),
		indexHost + "/config.json":                  `{"dl":"https://` + crateHost + `/crates"}`,
		indexHost + "/th/in/thing":                  `{"name":"thing","vers":"1.0.0","deps":[],"cksum":"` + sha(crate) + `","features":{},"yanked":false}` + "\n",
		crateHost + "/crates/thing/1.0.0/download":  string(crate),
		"deb.test/Packages":                         "Package: thing\nVersion: 1.0\nArchitecture: all\nMaintainer: world\nFilename: ./thing_1.0_all.deb\nSize: " + fmt.Sprint(len(debian)) + "\nSHA256: " + sha(debian) + "\nDescription: a thing\n\n",
		"deb.test/thing_1.0_all.deb":                string(debian),
	}
	for _, host := range []string{npmHost, yarnHost} {
		s1, s512 := sha1.Sum(npmThing), sha512.Sum512(npmThing)
		doc, _ := json.Marshal(map[string]any{"name": "thing", "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": map[string]any{
			"name": "thing", "version": "1.0.0", "dist": map[string]string{"tarball": "https://" + host + "/thing/-/thing-1.0.0.tgz",
				"shasum": hex.EncodeToString(s1[:]), "integrity": "sha512-" + base64.StdEncoding.EncodeToString(s512[:])}}}})
		f[host+"/thing"] = string(doc)
		f[host+"/thing/-/thing-1.0.0.tgz"] = string(npmThing)
	}
	return f
}()

// registryAnswers serves what the registries have, and says whether it did.
func registryAnswers(w http.ResponseWriter, r *http.Request) bool {
	host, _, _ := strings.Cut(r.Host, ":")
	body, ok := registryFiles[host+r.URL.Path]
	if !ok && host == "deb.test" {
		http.NotFound(w, r)
	}
	if !ok {
		return host == "deb.test"
	}
	note("registry %s%s", host, r.URL.Path)
	switch {
	case strings.HasSuffix(r.URL.Path, "/"):
		w.Header().Set("Content-Type", "text/html")
	case strings.HasPrefix(body, "{"):
		w.Header().Set("Content-Type", "application/json")
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	_, _ = w.Write([]byte(body))
	return true
}

// authority makes a certificate for all names of the world, and the file that
// makes programs trust it.
func authority() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of the world"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	root, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "world"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for name := range named {
		leaf.DNSNames = append(leaf.DNSNames, name)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der, root}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root}), err
}
