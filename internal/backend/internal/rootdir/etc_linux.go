package rootdir

import (
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
)

// What of the host's /etc is useful inside and says nothing about the user.
var (
	// EtcCopied are small files whose content is copied, if everybody may read it.
	EtcCopied = []string{"services", "protocols", "rpc", "ethertypes", "os-release", "lsb-release", "debian_version", "timezone", "mime.types", "magic",
		"shells", "inputrc", "ld.so.conf", "ssl/openssl.cnf", "gai.conf", "host.conf", "ca-certificates.conf", "java-openjdk"}
	// EtcBound are folders and larger files.
	EtcBound = []string{"alternatives", "ssl/certs", "pki/ca-trust", "pki/tls/certs", "pki/tls/cert.pem", "ca-certificates", "ld.so.cache", "ld.so.conf.d",
		"crypto-policies", "terminfo", "fonts", "perl", "java-*", "python3*", "chromium.d"}
)

const maxCopied = 64 << 10

// BrowserPolicy is for a boundary with a way out. The gate reads the name in a TLS
// greeting, and what hides one does not pass. Chromium and its kin send a decoy of
// that to every server unless a policy says that they shall not.
const BrowserPolicy = `{"EncryptedClientHelloEnabled": false}` + "\n"

// BrowserPolicies are where Chromium, Chrome and the Chrome that is made for tests
// look for policies.
var BrowserPolicies = []string{"/etc/chromium/policies/managed", "/etc/opt/chrome/policies/managed", "/etc/opt/chrome_for_testing/policies/managed"}

// ReadPublic returns the content of a small file that everybody may read.
func ReadPublic(name string) (string, bool) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return "", false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Mode().Perm()&0o004 == 0 || st.Size() > maxCopied {
		return "", false
	}
	data, err := io.ReadAll(io.LimitReader(f, st.Size()+1))
	return strings.ToValidUTF8(string(data), "?"), err == nil
}

// Identity are the files of /etc that say who and where one is inside, by name. uid
// and gid are the tools' there; base is a prepared root folder, empty where the
// system folders are this machine's.
func Identity(sp backend.Spec, base string, uid, gid int) map[string]string {
	login := sp.Identity.Login
	if login == "" || login == "root" || strings.ContainsAny(login, ":\n\x00/") {
		login = "caisson"
	}
	shell := "/bin/sh"
	for _, s := range []string{"/bin/bash", "/usr/bin/bash"} {
		if _, err := os.Stat(base + s); err == nil {
			shell = s
			break
		}
	}
	home := sp.Home
	if strings.ContainsAny(home, ":\n") {
		home = "/"
	}
	host := Hostname(sp)
	resolver, hosts := "", "files"
	if sp.Way != nil {
		resolver, hosts = "nameserver 127.0.0.1\n", "files dns"
	}
	user, group := strconv.Itoa(uid), strconv.Itoa(gid)
	root, rootGroup := "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n", "root:x:0:\n"
	if uid == 0 {
		root = ""
	}
	if gid == 0 {
		rootGroup = ""
	}
	files := map[string]string{
		"passwd": root + login + ":x:" + user + ":" + group + "::" + home + ":" + shell + "\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":  rootGroup + login + ":x:" + group + ":\nnogroup:x:65534:\n",
		"hosts":  "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t" + host + "\n", "hostname": host + "\n",
		"resolv.conf":   resolver,
		"nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: " + hosts + "\nnetworks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n",
	}
	if sp.KnownHosts != "" {
		files["ssh/ssh_known_hosts"] = sp.KnownHosts
	}
	return files
}

// Hostname is the boundary's own.
func Hostname(sp backend.Spec) string {
	if sp.Hostname != "" {
		return sp.Hostname
	}
	return string(sp.Task)
}

// GitConfig is the text of /etc/gitconfig; empty: there is none.
func GitConfig(sp backend.Spec) string {
	g := sp.Git
	if g.Name == "" || g.Email == "" {
		return ""
	}
	return "[user]\n\tname = " + gitValue(g.Name) + "\n\temail = " + gitValue(g.Email) + "\n"
}

// gitValue quotes a value for a git configuration file.
func gitValue(v string) string {
	v = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, v)
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
}
