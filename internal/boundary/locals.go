package boundary

import (
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/approval"
	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/broker"
	"github.com/caisson-dev/caisson/internal/broker/gitcred"
	"github.com/caisson-dev/caisson/internal/broker/sshagent"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/task"
)

// The Unix sockets inside at which programs ask for what was lent.
const (
	localSSH = "ssh" // SSH's agent
	localGit = "git" // git, for a name and a password
)

// locals answers at those sockets.
type locals struct {
	agent  *sshagent.Filter
	creds  *gitcred.Server
	served sync.WaitGroup
}

// end ends every conversation there; of nil there is none.
func (x *locals) end() {
	if x == nil {
		return
	}
	if x.agent != nil {
		x.agent.Close()
	}
	if x.creds != nil {
		x.creds.Close()
	}
	x.served.Wait()
}

// localsOf says which sockets a boundary has with these handles.
func localsOf(hs []broker.Handle) (out []string) {
	for _, of := range []struct {
		as   broker.Manner
		name string
	}{{broker.SSH, localSSH}, {broker.Git, localGit}} {
		if slices.ContainsFunc(hs, func(h broker.Handle) bool { return h.As == of.as }) {
			out = append(out, of.name)
		}
	}
	return out
}

// localEnv is how programs inside find the sockets: SSH's agent by its variable,
// and git by settings that stand in variables, whatever configuration it reads.
func localEnv(w *backend.Way, lent []broker.Lent) map[string]string {
	out := map[string]string{}
	if w == nil {
		return out // nothing is lent to what has no way out
	}
	if slices.ContainsFunc(lent, func(l broker.Lent) bool { return l.Handle.As == broker.SSH }) {
		out["SSH_AUTH_SOCK"] = filepath.Join(backend.LocalDir, localSSH)
	}
	settings := gitcred.Settings(gitLoans(lent), filepath.Join(backend.LocalDir, localGit))
	for i, kv := range settings {
		n := strconv.Itoa(i)
		out["GIT_CONFIG_KEY_"+n], out["GIT_CONFIG_VALUE_"+n] = kv[0], kv[1]
	}
	if len(settings) > 0 {
		out["GIT_CONFIG_COUNT"] = strconv.Itoa(len(settings))
	}
	return out
}

// gitLoans is what git may be told.
func gitLoans(lent []broker.Lent) (out []gitcred.Loan) {
	for _, l := range lent {
		if l.Handle.As != broker.Git {
			continue
		}
		for _, d := range l.Handle.To {
			host := d.Host
			if strings.Contains(host, ":") {
				host = "[" + host + "]"
			}
			if d.Port != 443 {
				host += ":" + strconv.Itoa(int(d.Port))
			}
			out = append(out, gitcred.Loan{Host: host, Path: strings.Trim(d.Path, "/"), User: l.Handle.User, Password: l.Placeholder.Value})
		}
	}
	return out
}

// sshHosts are the destinations of a handle with their public keys: those that it
// says, else those that the person knows. missing are those without any.
func (m *Manager) sshHosts(h *broker.Handle) (hosts []sshagent.Host, missing []string, err error) {
	for _, d := range h.To {
		x := sshagent.Host{Name: d.Host, Port: d.Port}
		for _, text := range h.HostKeys {
			k, err := sshagent.HostKey(text)
			if err != nil {
				return nil, nil, task.Errorf(task.CodePolicy, "lend", "the credential %s: host_keys: %v", h.Name, err).WithHint("ssh-keyscan -t ed25519 %s prints one; compare it with what the host's owner says", d.Host)
			}
			x.Keys = append(x.Keys, k)
		}
		for _, name := range []string{filepath.Join(m.cfg.Identity.Home, ".ssh/known_hosts"), "/etc/ssh/ssh_known_hosts"} {
			if len(h.HostKeys) > 0 {
				break
			}
			f, err := os.Open(name)
			if err != nil {
				continue // none there, or none that may be read: nothing is known by it
			}
			ks, err := sshagent.KnownKeys(f, x)
			_ = f.Close()
			if err != nil {
				return nil, nil, task.Errorf(task.CodeUnavailable, "lend", "%s: %v", name, err)
			}
			x.Keys = append(x.Keys, ks...)
		}
		if len(x.Keys) == 0 {
			missing = append(missing, x.String())
		}
		hosts = append(hosts, x)
	}
	return hosts, missing, nil
}

// knownHosts is the text of the hosts that SSH knows inside.
func (m *Manager) knownHosts(hs []broker.Handle) (text string, missing []string, err error) {
	var all []sshagent.Host
	for i := range hs {
		if hs[i].As != broker.SSH {
			continue
		}
		hosts, none, err := m.sshHosts(&hs[i])
		if err != nil {
			return "", nil, err
		}
		all, missing = append(all, hosts...), append(missing, none...)
	}
	return sshagent.KnownHosts(all), missing, nil
}

// furnishLocals has a boundary get the sockets for what the task is lent, and the hosts
// that SSH knows. A host of which no key is known is one where no key is used.
func (m *Manager) furnishLocals(d *decided, s *backend.Spec) (findings []task.Finding, err error) {
	hs := make([]broker.Handle, 0, len(d.lent))
	for _, l := range d.lent {
		hs = append(hs, l.Handle)
	}
	if s.Way == nil {
		return nil, nil // nothing is lent to what has no way out
	}
	s.Local = localsOf(hs)
	var missing []string
	if s.KnownHosts, missing, err = m.knownHosts(hs); err != nil {
		return nil, err
	}
	for _, at := range missing {
		findings = append(findings, task.Finding{ID: "loan-unknown-host", Axis: task.CRD, Cap: 3, Location: at,
			Text: "no public key of " + at + " is known, so no key of SSH is used there", Fix: "connect to it once by hand, or name its keys in host_keys of the credential"})
	}
	return findings, nil
}

// openLocals has the sockets inside answered; nil: there are none. The caller ends
// it with end.
func (m *Manager) openLocals(l *live, inst backend.Instance, p *passage) (*locals, error) {
	if len(l.spec.Local) == 0 || p.lender == nil {
		return nil, nil
	}
	from, ok := inst.(backend.Locals)
	if !ok {
		return nil, task.Errorf(task.CodeUnsupported, "lend", "a boundary of the backend %s has no sockets at which keys of SSH and passwords of git are asked for", l.driver).WithHint("lend neither, or take another backend")
	}
	socks, err := from.LocalSockets()
	if err != nil {
		return nil, err
	}
	told := &tellings{m: m, l: l}
	x := &locals{}
	x.agent, err = sshagent.New(sshagent.Config{Loans: func() []sshagent.Loan { return p.sshLoans() }, Refused: told.refused})
	if err == nil {
		x.creds, err = gitcred.New(gitcred.Config{Loans: func() []gitcred.Loan { return gitLoans(p.lender.desk.Lent()) }, Refused: told.refused})
	}
	if err != nil {
		for _, s := range socks {
			_ = s.Close()
		}
		x.end()
		return nil, task.Errorf(task.CodeInternal, "lend", "what was lent cannot be asked for inside: %w", err)
	}
	for name, s := range socks {
		serve := x.agent.Serve
		if name == localGit {
			serve = x.creds.Serve
		}
		x.served.Go(func() {
			if err := serve(s); err != nil {
				m.cfg.Log("task " + string(l.id) + ": what was lent is not answered inside any more: " + err.Error())
			}
		})
	}
	return x, nil
}

// sshLoans is what the agent inside may do now.
func (p *passage) sshLoans() (out []sshagent.Loan) {
	d := p.lender
	for _, lent := range d.desk.Lent() {
		h := lent.Handle
		if h.As != broker.SSH {
			continue
		}
		x := sshagent.Loan{Handle: h.Name, Named: h.Keys, Namespaces: h.Sign}
		if len(x.Named) == 0 {
			x.Named = []string{h.Name} // as its only key is called
		}
		if h.User != "" {
			x.Users = []string{h.User}
		}
		for _, to := range h.To {
			host := sshagent.Host{Name: to.Host, Port: to.Port}
			// As it was when the boundary was made, and as it stands inside.
			if keys, err := sshagent.KnownKeys(strings.NewReader(d.l.spec.KnownHosts), host); err == nil {
				host.Keys = keys
			}
			x.Hosts = append(x.Hosts, host)
		}
		x.Keys = func(ctx context.Context) (keys sshagent.Keys, err error) {
			if err := p.lendsNow(); err != nil {
				return nil, err
			}
			err = d.desk.Peek(ctx, h.Name, func(secret []byte) (err error) {
				keys, err = d.keys(&h, secret)
				return err
			})
			return keys, err
		}
		x.Use = func(ctx context.Context, u sshagent.Use, sign func(sshagent.Keys) error) error {
			return p.sign(ctx, &h, u, sign)
		}
		out = append(out, x)
	}
	return out
}

// lendsNow says whether anything is lent at this moment, by the policy of now.
func (p *passage) lendsNow() error {
	if !p.open.Load() {
		return task.Errorf(task.CodeDenied, "lend", "the boundary is being measured")
	}
	return p.lender.rules()
}

// keys opens the keys of a handle.
func (d *lender) keys(h *broker.Handle, secret []byte) (sshagent.Keys, error) {
	if !h.From.Agent {
		return sshagent.FromPrivate(secret, h.Name)
	}
	socket := valueOf(d.m.cfg.Environ, "SSH_AUTH_SOCK")
	if !filepath.IsAbs(socket) {
		return nil, task.Errorf(task.CodeUnavailable, "lend", "whoever started the task has no SSH agent")
	}
	return sshagent.FromAgent(socket), nil
}

// sign has one signature made, when it is counted, agreed to and on record.
func (p *passage) sign(ctx context.Context, h *broker.Handle, u sshagent.Use, sign func(sshagent.Keys) error) error {
	if err := p.lendsNow(); err != nil {
		return err
	}
	d := p.lender
	ctx, stop := d.l.while(ctx)
	defer stop()
	// The digest makes each question one of its own: all of it, for what is signed is
	// chosen inside.
	what := u.String() + ", request " + hex.EncodeToString(u.Digest[:])
	return d.desk.Use(ctx, h.Name, broker.Question{Method: "sign", URL: what}, func(secret []byte) error {
		keys, err := d.keys(h, secret)
		if err != nil {
			return err
		}
		body := d.body(h)
		body["key"], body["digest"] = u.Fingerprint, hex.EncodeToString(u.Digest[:])
		for name, v := range map[string]string{"comment": u.Comment, "host": u.Host, "user": u.User, "namespace": u.Namespace} {
			if v != "" {
				body[name] = short(approval.Visible(v), 300)
			}
		}
		if _, err := d.l.log.Append(ctx, evidence.CredentialSigned, self, body); err != nil {
			return err
		}
		return sign(keys)
	})
}

// tellings puts on record what was refused at the sockets inside; what comes
// again and again is counted.
type tellings struct {
	m *Manager
	l *live

	mu    sync.Mutex
	seen  map[string]int
	since time.Time
}

// maxTellings is how many kinds of refusals are told in foldTime.
const maxTellings = 100

func (t *tellings) refused(what, why string) {
	what, why = short(approval.Visible(what), 300), short(approval.Visible(why), 300)
	key := what + "\x00" + why
	t.mu.Lock()
	now := time.Now()
	if now.Sub(t.since) > foldTime {
		t.seen, t.since = map[string]int{}, now
	}
	t.seen[key]++
	tell := t.seen[key] == 1 && len(t.seen) <= maxTellings
	if len(t.seen) > maxTellings {
		delete(t.seen, key)
	}
	t.mu.Unlock()
	if !tell {
		return
	}
	if _, err := t.l.log.AppendBulk(context.Background(), evidence.CredentialRefused, insider, map[string]any{"what": what, "why": why}); err != nil {
		t.m.cfg.Log("task " + string(t.l.id) + ": " + err.Error())
	}
}
