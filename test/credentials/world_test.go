//go:build linux

package credentials

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/test/harness"
)

// seen is what reached the servers of the world.
var seen struct {
	sync.Mutex
	list []string
}

func note(format string, args ...any) {
	seen.Lock()
	defer seen.Unlock()
	seen.list = append(seen.list, fmt.Sprintf(format, args...))
}

// taken returns what was seen since the last call.
func taken() string {
	seen.Lock()
	defer seen.Unlock()
	l := seen.list
	seen.list = nil
	return strings.Join(l, "\n")
}

// authority makes a certificate for the names of the world, and the text that
// whoever trusts it has.
func authority() (roots []byte, cert tls.Certificate, err error) {
	ca, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, cert, err
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "world"}, NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &ca.PublicKey, ca)
	if err != nil {
		return nil, cert, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, cert, err
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "git.test"}, NotAfter: root.NotAfter, DNSNames: []string{"git.test", "other.test"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	one, err := x509.CreateCertificate(rand.Reader, leaf, root, &key.PublicKey, ca)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), tls.Certificate{Certificate: [][]byte{one}, PrivateKey: key}, err
}

// asServer prepares a program of a server.
func asServer(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = worldDir
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + worldDir + "/home", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=S", "GIT_AUTHOR_EMAIL=s@example.org", "GIT_COMMITTER_NAME=S", "GIT_COMMITTER_EMAIL=s@example.org"}
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: harness.UserID, Gid: harness.UserID}}
	}
	return cmd
}

// startWorld starts the servers. Low ports are bound before capabilities go.
func startWorld(cert tls.Certificate) error {
	uid := harness.UserOf()
	for _, d := range []string{"home", "repos", "etc"} {
		if err := errors.Join(os.Mkdir(filepath.Join(worldDir, d), 0o755), os.Chown(filepath.Join(worldDir, d), uid, uid)); err != nil {
			return err
		}
	}
	dns, err := net.ListenPacket("udp4", "127.0.0.1:53")
	if err != nil {
		return err
	}
	go answerNames(dns)
	for name, addr := range zone {
		if err := serveSSH(name, addr); err != nil {
			return err
		}
		l, err := net.Listen("tcp", addr+":443")
		if err != nil {
			return err
		}
		server := &http.Server{Handler: answers(name), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, ErrorLog: log.New(io.Discard, "", 0)}
		go server.ServeTLS(l, "", "")
		if l, err = net.Listen("tcp", addr+":80"); err != nil {
			return err
		}
		go http.Serve(l, answers(name))
	}
	if os.Getuid() != 0 {
		return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	}
	return nil
}

// noSSHD is why there is no SSH server; empty: there is one.
var noSSHD string

// serveSSH has OpenSSH answer at a host: one process for each connection.
func serveSSH(name, addr string) error {
	sshd := "/usr/sbin/sshd"
	if _, err := os.Stat(sshd); err != nil {
		noSSHD = "no " + sshd
		return nil
	}
	key := filepath.Join(worldDir, "etc", name)
	if out, err := asServer("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", key).CombinedOutput(); err != nil {
		return fmt.Errorf("ssh-keygen: %s %w", out, err)
	}
	config := key + ".conf"
	if err := os.WriteFile(config, []byte("HostKey "+key+"\nAuthorizedKeysFile "+worldDir+"/etc/authorized\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nAllowAgentForwarding yes\nPidFile none\nLogLevel VERBOSE\n"), 0o644); err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr+":22")
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f, err := c.(*net.TCPConn).File()
				if err != nil {
					return
				}
				defer f.Close()
				var log bytes.Buffer
				cmd := asServer(sshd, "-i", "-e", "-f", config)
				cmd.Stdin, cmd.Stdout, cmd.Stderr = f, f, &log
				_ = cmd.Run()
				for line := range strings.Lines(log.String()) {
					if strings.HasPrefix(line, "Accepted ") {
						note("ssh %s %s", name, strings.Fields(line)[1]+" "+strings.Fields(line)[3])
					}
				}
			}()
		}
	}()
	return nil
}

// hostKey is the public key of a host as known_hosts has it.
func hostKey(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(worldDir, "etc", name+".pub"))
	if err != nil {
		t.Fatal(err)
	}
	w := strings.Fields(string(b))
	return w[0] + " " + w[1]
}

// secret is the password of both servers.
const secret = "s3cret/of+the=person"

// gitServer is git's own server behind a password, at one host. What is below
// /moved leads to the same below /team.
func gitServer(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, pass, some := r.BasicAuth()
		who := "nobody"
		switch {
		case some && pass == secret:
			who = user
		case some:
			who = "a wrong password"
		}
		note("https %s %s %s by %s", name, r.Method, r.URL.Path, who)
		if rest, ok := strings.CutPrefix(r.URL.Path, "/moved/"); ok {
			http.Redirect(w, r, "https://"+name+"/team/"+rest+"?"+r.URL.RawQuery, http.StatusFound)
			return
		}
		if rest, ok := strings.CutPrefix(r.URL.Path, "/away/"); ok {
			http.Redirect(w, r, "https://other.test/team/"+rest+"?"+r.URL.RawQuery, http.StatusFound)
			return
		}
		if pass != secret || user == "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you? not "+user+" with "+pass, http.StatusUnauthorized)
			return
		}
		h := &cgi.Handler{Path: "/bin/sh", Args: []string{"-c", "exec git http-backend"}, Dir: worldDir, Logger: nil, Stderr: io.Discard, Env: []string{"GIT_PROJECT_ROOT=" + worldDir + "/repos", "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=" + user, "HOME=" + worldDir + "/home", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
		h.ServeHTTP(w, r)
	})
}

// repository makes a bare repository of the servers with one commit.
func repository(t *testing.T, path string) {
	t.Helper()
	at := filepath.Join(worldDir, "repos", path)
	if err := os.RemoveAll(at); err != nil { // of a run before; the server over HTTPS runs as this process
		t.Fatal(err)
	}
	script := `set -e; mkdir -p "$1"; git init -q --bare -b main "$1"; git -C "$1" config http.receivepack true
t=$(mktemp -d); cd "$t"; git init -q -b main .; echo hello >a.txt; git add a.txt; git commit -qm first; git push -q "$1" main; rm -rf "$t"`
	if out, err := asServer("sh", "-c", script, "sh", at).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
}

// tip is the last commit's text of a repository of the servers.
func tip(t *testing.T, path string) string {
	t.Helper()
	out, err := asServer("git", "-C", filepath.Join(worldDir, "repos", path), "log", "-1", "--format=%s %G?", "main").CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// answerNames is the authority for everything.
func answerNames(pc net.PacketConn) {
	b := make([]byte, 1500)
	for {
		n, from, err := pc.ReadFrom(b)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		out := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true}, Questions: m.Questions}
		addr := zone[strings.TrimSuffix(q.Name.String(), ".")]
		switch {
		case addr == "":
			out.RCode = dnsmessage.RCodeNameError
		case q.Type == dnsmessage.TypeA:
			out.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: dnsmessage.ClassINET}, Body: &dnsmessage.AResource{A: netip.MustParseAddr(addr).As4()}}}
		}
		if p, err := out.Pack(); err == nil {
			_, _ = pc.WriteTo(p, from)
		}
	}
}

// place is a person of this world, with a repository of their own.
type place struct {
	*harness.Identity
	t    *testing.T
	repo string
}

// each runs f as every identity, in a world; one after the other, for there is
// one list of what was seen.
func each(t *testing.T, f func(p *place)) {
	t.Helper()
	if noWorld != "" {
		t.Skip("no network namespace of its own: " + noWorld)
	}
	if harness.Sampled() {
		one(t, f)
		return
	}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		f(&place{id, t, id.Repo(t, map[string]string{"a.txt": "a\n"})})
	})
}

// one is each for what depends on no identity: it takes the unprivileged one, and
// with CAISSON_TEST_FULL all.
func one(t *testing.T, f func(p *place)) {
	t.Helper()
	if os.Getenv("CAISSON_TEST_FULL") != "" && !harness.Sampled() {
		each(t, f)
		return
	}
	if noWorld != "" {
		t.Skip("no network namespace of its own: " + noWorld)
	}
	id := harness.NewIdentity(t, "user", harness.UserOf())
	f(&place{id, t, id.Repo(t, map[string]string{"a.txt": "a\n"})})
}

// policy writes the person's own policy.
func (p *place) policy(text string) {
	p.t.Helper()
	p.Write(p.t, p.Home+"/.config/caisson/policy.yaml", text, 0o600)
}

func (p *place) open(flags ...string) string { return p.Open(p.t, p.repo, flags...) }

// sh runs a line in a task.
func (p *place) sh(task, line string) harness.Result {
	return p.Caisson(p.t, p.repo, "exec", task, "--", "bash", "-c", line)
}

// outside runs the same line without a boundary, with SSH's files of this person.
func (p *place) outside(line string) harness.Result {
	bin := p.Tmp + "/bin"
	p.Write(p.t, bin+"/ssh", "#!/bin/sh\nexec /usr/bin/ssh -o UserKnownHostsFile=$HOME/.ssh/known_hosts \"$@\"\n", 0o755)
	return harness.Run(p.t, p.Command(p.t.Context(), p.repo, "bash", "-c", "PATH="+bin+":$PATH\n"+line))
}

// answer waits for one question, whose text must have part in it, and answers it.
func (p *place) answer(verb, part string, flags ...string) {
	p.t.Helper()
	type question struct{ ID, Call string }
	var q question
	harness.Eventually(p.t, "a question", func() bool {
		l := harness.Decode[struct{ Questions []question }](p.t, p.OK(p.t, p.repo, "approve", "--json"))
		if len(l.Questions) == 1 {
			q = l.Questions[0]
		}
		return len(l.Questions) == 1
	})
	if !strings.Contains(q.Call, part) {
		p.t.Errorf("%q is not in the question %q", part, q.Call)
	}
	p.OK(p.t, p.repo, append([]string{verb, q.ID}, flags...)...)
}
