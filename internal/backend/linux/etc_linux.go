package linux

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend/linux/stage"
)

// What of the host's /etc is useful inside and says nothing about the user.
var (
	// etcCopied are small files whose content is copied, if everybody may read it.
	etcCopied = []string{"services", "protocols", "rpc", "ethertypes", "os-release", "lsb-release", "debian_version", "timezone", "mime.types", "magic",
		"shells", "inputrc", "ld.so.conf", "ssl/openssl.cnf", "gai.conf", "host.conf", "ca-certificates.conf", "java-openjdk"}
	// etcBound are folders and larger files.
	etcBound = []string{"alternatives", "ssl/certs", "pki/ca-trust", "pki/tls/certs", "pki/tls/cert.pem", "ca-certificates", "ld.so.cache", "ld.so.conf.d",
		"crypto-policies", "terminfo", "fonts", "perl", "java-*", "python3*", "chromium.d"}
)

const maxCopied = 64 << 10

// replacedTries is how often a boundary is made anew whose set-up met a file of
// /etc in the moment at which a package manager put another in its place.
const replacedTries = 3

// replacedEtc says that err is such a moment: the file that was looked at lies
// nowhere any more, or another does.
func replacedEtc(err error) bool {
	var se *stage.Error
	if !errors.As(err, &se) {
		return false
	}
	_, name, found := strings.Cut(se.Op, " ")
	return found && strings.HasPrefix(name, "/etc/") && (se.Errno == unix.ENOENT || se.Detail == stage.Replaced)
}

// etc generates /etc: an identity of its own and read-only parts of the host's.
func (pl *planner) etc() error {
	pl.add(stage.Step{Op: "dir", Target: "/etc", Mode: 0o755})
	for name, text := range pl.identityFiles() {
		pl.add(stage.Step{Op: "file", Target: "/etc/" + name, Mode: 0o444, Data: text})
	}
	if g := pl.spec.Git; g.Name != "" && g.Email != "" {
		text := "[user]\n\tname = " + gitValue(g.Name) + "\n\temail = " + gitValue(g.Email) + "\n"
		pl.add(stage.Step{Op: "file", Target: "/etc/gitconfig", Mode: 0o444, Data: text})
	}
	if pl.spec.Way != nil {
		for _, dir := range browserPolicies {
			pl.add(stage.Step{Op: "file", Target: dir + "/caisson.json", Mode: 0o444, Data: browserPolicy})
		}
	}
	for _, name := range etcCopied {
		if text, ok := readPublic("/etc/" + name); ok {
			pl.add(stage.Step{Op: "file", Target: "/etc/" + name, Mode: 0o444, Data: text})
		}
	}
	if dest, err := filepath.EvalSymlinks("/etc/localtime"); err == nil {
		if strings.HasPrefix(dest, "/usr/") {
			pl.add(stage.Step{Op: "link", Target: "/etc/localtime", Data: dest})
		} else if err := pl.bind(dest, "/etc/localtime", false, "ro"); err != nil {
			return err
		}
	}
	pl.add(stage.Step{Op: "link", Target: "/etc/mtab", Data: "/proc/self/mounts"})
	for _, pattern := range etcBound {
		names, _ := filepath.Glob("/etc/" + pattern)
		for _, name := range names {
			dest, err := filepath.EvalSymlinks(name)
			if err != nil {
				continue // absent, or a link into nothing
			}
			switch {
			case dest == name:
				err = pl.bind(name, name, false, "ro")
			case strings.HasPrefix(dest, "/usr/"):
				pl.add(stage.Step{Op: "link", Target: name, Data: dest})
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
				return err
			}
		}
	}
	return nil
}

// The gate reads the name in a TLS greeting, and what hides one does not pass.
// Chromium and its kin send a decoy of that to every server unless a policy says
// that they shall not.
const browserPolicy = `{"EncryptedClientHelloEnabled": false}` + "\n"

// browserPolicies are where Chromium, Chrome and the Chrome that is made for tests
// look for policies.
var browserPolicies = []string{"/etc/chromium/policies/managed", "/etc/opt/chrome/policies/managed", "/etc/opt/chrome_for_testing/policies/managed"}

// readPublic returns the content of a small file that everybody may read.
func readPublic(name string) (string, bool) {
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	})
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o004 == 0 || st.Size > maxCopied {
		return "", false
	}
	data, err := readAll(fd, int(st.Size)+1)
	return strings.ToValidUTF8(string(data), "?"), err == nil
}

// identityFiles are the files of /etc that say who and where one is inside.
func (pl *planner) identityFiles() map[string]string {
	sp := pl.spec
	login := sp.Identity.Login
	if login == "" || login == "root" || strings.ContainsAny(login, ":\n\x00/") {
		login = "caisson"
	}
	shell := "/bin/sh"
	base := sp.Rootfs // empty: the host's own
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
	host := hostname(sp)
	resolver, hosts := "", "files"
	if sp.Way != nil {
		resolver, hosts = "nameserver 127.0.0.1\n", "files dns"
	}
	files := map[string]string{
		"passwd": "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n" + login + ":x:1000:1000::" + home + ":" + shell + "\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":  "root:x:0:\n" + login + ":x:1000:\nnogroup:x:65534:\n",
		"hosts":  "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t" + host + "\n", "hostname": host + "\n",
		"resolv.conf":   resolver,
		"nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: " + hosts + "\nnetworks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n",
	}
	if sp.KnownHosts != "" {
		files["ssh/ssh_known_hosts"] = sp.KnownHosts
	}
	return files
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
