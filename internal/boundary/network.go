package boundary

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/broker"
	"github.com/caisson-dev/caisson/internal/egress"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/task"
)

// The kinds of grants about the network, of which all but the mode have one
// value each.
const (
	grantNet    = "net"    // the mode
	grantAllow  = "allow"  // HOST:PORT of --allow
	grantRemote = "remote" // a host of the repository's remotes, with --net registries or --phase install
	grantPhase  = "phase"  // "install": dependencies may be installed in a boundary of their own
)

// proxyPort is where programs inside find the proxy, unless somebody else has it.
const proxyPort = 61080

// maxCaught is the most ports at which programs are caught that know no proxy.
const maxCaught = 64

// usualPorts are caught where every port may be reached. Those are not among them
// at which servers under development listen: a task cannot listen where it is
// caught.
var usualPorts = []uint16{22, 1433, 3306, 5432, 5672, 6379, 8443, 9092, 9200, 9418, 11211, 27017}

// netMode is how much of the network a request asks for.
func netMode(q *task.Request) policy.NetMode {
	switch {
	case q.Net != "":
		return policy.NetMode(q.Net)
	case len(q.Allow) > 0:
		return policy.NetAllowlist
	}
	return policy.NetNone
}

// checkNet reads what a request asks for of the network.
func checkNet(q *task.Request) error {
	var m policy.NetMode
	if q.Net != "" && m.UnmarshalText([]byte(q.Net)) != nil {
		return task.Errorf(task.CodeUsage, "plan", "--net does not know %q", q.Net).WithHint("it takes none, registries, allowlist or open")
	}
	if netMode(q) == policy.NetNone && len(q.Allow) > 0 {
		return task.Errorf(task.CodeUsage, "plan", "--allow %s and --net none contradict each other", q.Allow[0]).WithHint("leave one of the two out")
	}
	if q.Phase != "" && q.Phase != phaseInstall {
		return task.Errorf(task.CodeUsage, "plan", "--phase does not know %q", q.Phase).WithHint("it takes install")
	}
	for _, s := range q.Allow {
		if _, err := policy.ParseAllow(s); err != nil {
			return task.Errorf(task.CodeUsage, "plan", "--allow %v", err).WithHint("for example --allow example.com:443, --allow '*.example.com:443' or --allow 127.0.0.1:5432")
		}
	}
	return nil
}

// places is what a request allows beside the policy, by what.
func (d *decided) places() (out []policy.Granted) {
	add := func(via string, es ...policy.Egress) {
		for i := range es {
			out = append(out, policy.Granted{Item: policy.Item{Egress: &es[i]}, Via: via, From: policy.Origin{Source: task.SourceFlag}})
		}
	}
	for _, s := range d.req.Allow {
		if e, err := policy.ParseAllow(s); err == nil { // checkNet has seen it
			add("--allow", e)
		}
	}
	switch mode := netMode(&d.req); mode {
	case policy.NetRegistries:
		out = append(out, d.usual("--net registries")...)
	case policy.NetOpen:
		add("--net open", policy.Everywhere()...)
	}
	return out
}

// usual are the registries and the repository's remotes.
func (d *decided) usual(via string) (out []policy.Granted) {
	es := policy.UsualPlaces(d.remotes())
	for i := range es {
		out = append(out, policy.Granted{Item: policy.Item{Egress: &es[i]}, Via: via, From: policy.Origin{Source: task.SourceFlag}})
	}
	return out
}

// remotes are the hosts of the repository's remotes, as they were when the task
// was first decided about.
func (d *decided) remotes() []string {
	if d.again {
		return d.remoteHosts
	}
	var out []string
	for _, r := range d.repo.Remotes() {
		if h := source.RemoteHost(r); h != "" && !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}

// network holds what was asked for of the network against the policy.
func (e *enforcing) network() error {
	q, most := &e.d.req, e.r.Net
	mode := netMode(q)
	if most.Value != "" && !mode.Within(most.Value) {
		flag := "--net"
		if q.Net == "" { // --allow alone asks for an allowlist
			flag = "--allow, for which --net"
		}
		return e.above(flag, string(mode), string(most.Value), most.From)
	}
	if (most.From != policy.Origin{}) {
		e.set("net", most.From)
	}
	list := e.d.places()
	if q.Phase == phaseInstall {
		if most.Value != "" && !policy.NetRegistries.Within(most.Value) {
			return e.above("--phase", phaseInstall+", which reaches "+string(policy.NetRegistries)+",", string(most.Value), most.From)
		}
		list = append(list, e.d.usual("--phase install")...)
	}
	for _, g := range list {
		flag := g.Via
		if flag == "--allow" {
			flag += " " + g.Item.String()
		} else if e.r.Denies(g.Item) {
			continue // of a list that nobody typed; the gate refuses it
		}
		if err := e.wish(flag, g.Item); err != nil {
			return err
		}
	}
	return nil
}

// wayOut drafts the way out of a boundary: what of the rules counts for it, what
// listens inside, and what a reader of the plan should know.
func (d *decided) wayOut() (*backend.Way, []task.Finding) {
	for _, s := range d.req.Publish {
		d.grants = append(d.grants, task.Grant{Kind: grantPublish, Value: s, Source: "flag"})
	}
	mode := netMode(&d.req)
	if mode == policy.NetRegistries || d.req.Phase == phaseInstall {
		for _, h := range d.remotes() {
			d.grants = append(d.grants, task.Grant{Kind: grantRemote, Value: h, Source: "flag"})
		}
	}
	if d.req.Phase == phaseInstall {
		d.grants = append(d.grants, task.Grant{Kind: grantPhase, Value: phaseInstall, Source: "flag"})
	}
	if mode == policy.NetNone {
		return nil, nil
	}
	d.grants = append(d.grants, task.Grant{Kind: grantNet, Value: string(mode), Source: "flag"})
	for _, s := range d.req.Allow {
		d.grants = append(d.grants, task.Grant{Kind: grantAllow, Value: s, Source: "flag"})
	}
	d.leaving = d.rules.Rules.Leaving(mode, append(d.places(), d.added()...))
	w, all, local := listen(d.leaving)
	var findings []task.Finding
	if mode == policy.NetOpen {
		findings = append(findings, task.Finding{ID: "net-open", Axis: task.NET, Cap: 1,
			Text: "every public address may be reached, by --net open: whatever the task can read can leave it", Fix: "name what it needs with --allow HOST:PORT"})
	}
	for _, at := range local {
		findings = append(findings, task.Finding{ID: "host-service", Axis: task.NET, Cap: 2, Location: at, Text: "a service of this machine can be reached from inside"})
	}
	if !all {
		findings = append(findings, task.Finding{ID: "net-proxy-only", Axis: task.NET, Cap: 2,
			Text: fmt.Sprintf("more than %d ports are allowed; some of them only programs reach that use the proxy", maxCaught)})
	}
	return w, findings
}

// connects refuses, by its name, the first wish that needs a connection which the
// backend of d cannot have cross the boundary.
func (d *decided) connects() error {
	var out []string
	if mode := netMode(&d.req); mode != policy.NetNone {
		out = append(out, "--net "+string(mode))
	}
	if d.req.Phase == phaseInstall {
		out = append(out, "--phase install")
	}
	for _, g := range d.grants {
		if g.Kind == grantLend || g.Kind == grantLendProd {
			out = append(out, "the credential "+g.Value+" that is lent")
		}
	}
	var in []string
	for _, p := range d.req.Publish {
		in = append(in, "--publish "+p)
	}
	for _, w := range []struct {
		by []string
		v  backend.Variant
	}{{out, d.caps.Way}, {in, d.caps.Inward}} {
		if len(w.by) > 0 && d.caps.Usable && w.v.Why != "" {
			return task.Errorf(task.CodeUnsupported, "plan", "%s: %s", w.by[0], w.v.Why).WithHint("%s", w.v.Fix)
		}
	}
	return nil
}

// readTLS finds out what of the TLS of a task is read on the host, and says so.
func (d *decided) readTLS() []task.Finding {
	d.read = d.leaving.ReadPlaces()
	for _, l := range d.lent {
		for _, to := range l.Handle.To {
			at := net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port)))
			if d.leaving != nil && l.Handle.As != broker.SSH && to.Port != 80 && !slices.Contains(d.read, at) {
				d.read = append(d.read, at)
			}
		}
	}
	if len(d.read) == 0 {
		return nil
	}
	return []task.Finding{{ID: "tls-read", Axis: task.NET, Cap: task.MaxLevel(task.NET), Location: short(strings.Join(d.read, "; "), 500),
		Text: "TLS ends at the gate on the host for these, because rules about them name methods or paths or a credential is lent there: each request is read there, and what the task sends them is in that program's memory"}}
}

// certify makes the certificate of a boundary whose TLS is read in part, and shows it
// inside; nil: nothing is.
func certify(s *backend.Spec, read []string) (*egress.CA, error) {
	s.Trust = ""
	if len(read) == 0 || s.Way == nil {
		return nil, nil
	}
	ca, err := egress.NewCA(string(s.Task))
	if err != nil {
		return nil, err
	}
	s.Trust = string(ca.PEM())
	return ca, nil
}

// trusting are the variables of programs that look for certificates elsewhere than
// the system does.
func trusting(read []string) map[string]string {
	if len(read) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, name := range []string{
		"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
		"npm_config_cafile", "YARN_HTTPS_CA_FILE_PATH", "DENO_CERT", "BUNDLE_SSL_CA_CERT", "HTTPLIB2_CA_CERTS", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "NIX_SSL_CERT_FILE",
	} {
		out[name] = backend.TrustFile
	}
	return out
}

// loud says what is never silent: that everything may be reached.
func loud(d *decided) (out []string) {
	for _, f := range d.plan.Plan.Findings {
		if f.ID == "net-open" {
			out = append(out, f.Text+"; "+f.Fix)
		}
	}
	return out
}

// listen says where sockets must be inside for what rules allow; all: none of it
// is left out. local are services of this machine.
//
// At an address of IPv6 only what a rule names one for is waited for: names have
// none inside, and localhost has. A server that may be reached at 127.0.0.1 is
// found there once ::1 refuses.
func listen(r *policy.Rules) (w *backend.Way, all bool, local []string) {
	ports, six, at := map[uint16]bool{80: true, 443: true}, map[uint16]bool{}, map[string]bool{}
	all = true
	for _, it := range reachable(r) {
		own := it.Host == "" && it.CIDR.IsValid() && it.CIDR.IsSingleIP() && it.CIDR.Addr().IsLoopback()
		also6 := !own && it.CIDR.IsValid() && it.CIDR.Addr().Is6()
		if len(it.Ports) == 0 {
			for _, p := range usualPorts {
				ports[p] = true
				six[p] = six[p] || also6
			}
			six[80], six[443] = six[80] || also6, six[443] || also6
		}
		for _, p := range it.Ports {
			for n := int(p.Low); n <= int(p.High); n++ {
				if len(ports)+len(at) >= maxCaught && !ports[uint16(n)] {
					all = false
					break
				}
				if own {
					at[netip.AddrPortFrom(it.CIDR.Addr(), uint16(n)).String()] = true
				} else {
					ports[uint16(n)] = true
					six[uint16(n)] = six[uint16(n)] || also6
				}
			}
		}
		if own {
			for _, p := range it.Ports {
				local = append(local, netip.AddrPortFrom(it.CIDR.Addr(), p.Low).String())
			}
		}
	}
	w = &backend.Way{Proxy: proxyPort}
	for p := range ports {
		w.Ports = append(w.Ports, p)
		v4 := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), p).String()
		if v6 := netip.AddrPortFrom(netip.IPv6Loopback(), p).String(); six[p] && (at[v6] || !at[v4]) {
			w.Six = append(w.Six, p)
		}
	}
	slices.Sort(w.Six)
	for s := range at {
		if a, err := netip.ParseAddrPort(s); err == nil && !(a.Addr().Is4() && ports[a.Port()] || slices.Contains(w.Six, a.Port())) {
			w.At = append(w.At, s)
		}
	}
	slices.Sort(w.Ports)
	sort.Strings(w.At)
	for taken(w, w.Proxy) {
		w.Proxy++
	}
	return w, all, local
}

func taken(w *backend.Way, port uint16) bool {
	return slices.Contains(w.Ports, port) || slices.ContainsFunc(w.At, func(s string) bool { return strings.HasSuffix(s, ":"+strconv.Itoa(int(port))) })
}

// reachable lists what rules allow, or may after a question.
func reachable(r *policy.Rules) (out []*policy.Egress) {
	for _, g := range r.Granted {
		out = append(out, g.Egress)
	}
	for _, a := range r.Asked {
		out = append(out, a.Egress)
	}
	return out
}

// proxied are the variables by which programs find the proxy, and the settings of
// those that look elsewhere.
func proxied(w *backend.Way) map[string]string {
	if w == nil {
		return nil
	}
	proxy := "http://127.0.0.1:" + strconv.Itoa(int(w.Proxy))
	const not = "localhost,127.0.0.1,::1"
	return map[string]string{
		"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "http_proxy": proxy, "https_proxy": proxy, "NO_PROXY": not, "no_proxy": not,
		// The same port speaks SOCKS 5, but a client of Python that reads socks5h
		// here and has no module for it ends at its start.
		"ALL_PROXY": proxy, "all_proxy": proxy,
		"NODE_USE_ENV_PROXY": "1", "npm_config_proxy": proxy, "npm_config_https_proxy": proxy, "npm_config_noproxy": not,
		"YARN_HTTP_PROXY": proxy, "YARN_HTTPS_PROXY": proxy, "PIP_PROXY": proxy, "CARGO_HTTP_PROXY": proxy,
	}
}

// mediated says what NET can be at most with a way out, and why.
func mediated(grants []task.Grant) (level int, how string, some bool) {
	for _, g := range grants {
		if g.Kind != grantNet {
			continue
		}
		if policy.NetMode(g.Value) == policy.NetOpen {
			return 1, "network namespace of its own; all that no rule denies may be reached through the gate on the host, which records it", true
		}
		return 2, "no route leaves the network namespace; what was allowed is reached through the gate on the host, which decides by name, resolves, dials and records", true
	}
	return 0, "", false
}
