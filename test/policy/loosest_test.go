//go:build linux

package policy

import (
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// tight is what the operator says in these tests, by the key that says it: one
// file each, so that one can be replaced.
var tight = map[string]string{
	"floors": "floors: {NET: 4, FS: 2, PRC: 3}", "raise": "raise: {CPL: 2, EVD: 2}", "base": "base: {env: [LANG]}", "delegation": "delegation: none",
	"delegate": "delegate: {user: {mode: auto, env: [ALLOWED], egress: [{host: in.example}]}, agent: {mode: auto, egress: [{host: in.example}]}, project: {mode: auto, egress: [{host: in.example}]}, task: {mode: ask, egress: [{host: in.example}]}, model: {mode: ask, egress: [{host: in.example}]}}",
	"deny":     "deny: {egress: [{cidr: 10.0.0.0/8}], mounts: [/srv/secret], env: [\"AWS_*\"], credentials: [prod], grants: [userns], commands: [{argv: [git, push]}]}",

	"characteristics": "characteristics: {installs_deps: true}", "allow_trust": "allow_trust: false",
	"acceptance.max_ttl": "acceptance: {max_ttl: 1h}", "acceptance.min_assurance": "acceptance: {min_assurance: {default: os-auth, NET: hardware}}", "acceptance.delegable": "acceptance: {delegable: [FS]}",
	"decision_hook": "decision_hook: {exec: [/bin/false], timeout: 1s}",
	"tools.default": "tools: {default: ask}", "tools.deny": "tools: {deny: [{tool: publish_artifact}]}", "tools.ask": "tools: {ask: [{tool: shell}]}", "tools.frozen": "tools: {frozen: true}", "tools.wait": "tools: {wait: 1m}",
	"backends.prefer": "backends: {prefer: [linux]}", "backends.allowed": "backends: {allowed: [linux]}",
	"limits.memory": "limits: {memory: 512m}", "limits.cpus": "limits: {cpus: 0.5}", "limits.pids": "limits: {pids: 200}", "limits.disk": "limits: {disk: 64m}", "limits.timeout": "limits: {timeout: 10m}", "limits.net_bytes": "limits: {net_bytes: 1m}", "limits.net_connections": "limits: {net_connections: 5}", "limits.net_rate": "limits: {net_rate: 5}",
	"budget.tasks": "budget: {tasks: 3}", "budget.memory": "budget: {memory: 4g}", "budget.cpus": "budget: {cpus: 4}", "budget.disk": "budget: {disk: 1g}", "budget.when_full": "budget: {when_full: refuse}",
	"retention.evidence": "retention: {evidence: 365d}", "retention.environments": "retention: {environments: 1h}",
	"unattended": "unattended: true", "unwatched_after": "unwatched_after: 30m", "net": "net: none",
	"outward.verdict": "outward: {verdict: deny}", "outward.ask": "outward: {ask: [{host: pay.example}]}", "outward.read": "outward: {read: [api.example]}",
	"checks": "checks: [{name: unit, run: [make]}]", "risky_files": "risky_files: [\"x\"]",
}

const everything = `{egress: [{host: "**", ports: [1-65535]}, {host: "**", methods: [GET, POST], path: /}, {cidr: 0.0.0.0/0}, {cidr: "::/0"}], mounts: [{path: /, mode: rw}], env: ["*"], credentials: ["*"], grants: [ptrace, userns]}`

// all is a ceiling that holds everything.
var all = "{mode: auto, " + strings.TrimPrefix(everything, "{")

// callable is a rule about calls with every part that it can have.
const callable = `[{tool: "*", command: ["true"], reason: x}, {path: /, reason: x}]`

const longest = "36500d"

// loosest is the most that a source can say for each key that is joined by
// itself. With no line here, a new key fails TestNothingLoosens by its name.
var loosest = map[string]string{
	"floors": "floors: {SRC: 0, PRC: 0, FS: 0, NET: 0, RES: 0, KRN: 0, CPL: 0, CHN: 0, SVC: 0, CRD: 0, APR: 0, VER: 0, EVD: 0, CLN: 0}",
	"raise":  "raise: {SRC: 0, PRC: 0, FS: 0, NET: 0, RES: 0, KRN: 0, CPL: 0, CHN: 0, SVC: 0, CRD: 0, APR: 0, VER: 0, EVD: 0, CLN: 0}",
	"base":   "base: " + everything, "request": "request: " + everything, "deny": "deny: " + strings.TrimSuffix(strings.NewReplacer(`"**"`, "z.example", "0.0.0.0/0", "192.0.2.0/24", "::/0", "2001:db8::/32", "path: /,", "path: /srv/other,", `"*"`, "OTHER", "ptrace, ", "").Replace(everything), "}") + ", commands: [{argv: [hg]}]}",
	"delegation": "delegation: ceilings", "delegate": "delegate: {" + strings.Join([]string{"user: " + all, "agent: " + all, "project: " + all, "task: " + all, "model: " + all}, ", ") + "}",
	"characteristics": "characteristics: {" + lowestValues() + "}",
	"lower":           "lower: [{characteristic: installs_deps, value: no, repo: \"{repo}\", ref: refs/heads/main" + end + "]",
	"trust":           "trust: [{repo: \"{repo}\", ref: refs/heads/main" + end + "]", "allow_trust": "allow_trust: true",
	"trusted_checks": "trusted_checks: [{argv: [sh], executes: none, sha256: \"" + strings.Repeat("0", 64) + "\"}, {argv: [sh], executes: none}]",
	"suppress":       "suppress: [{rule: CMD-04, repo: \"{repo}\", reason: x}]",

	"acceptance.max_ttl": "acceptance: {max_ttl: " + longest + "}", "acceptance.min_assurance": "acceptance: {min_assurance: {default: none, NET: none, KRN: none}}",
	"acceptance.delegable": "acceptance: {delegable: [SRC, PRC, FS, NET, RES, KRN, CPL, CHN, SVC, CRD, APR, VER, EVD, CLN]}",
	"acceptances":          "acceptances: [{axis: KRN, level: 0, repo: \"{repo}\", ref: refs/heads/main" + end + "]",
	"decision_hook":        "decision_hook: {exec: [/bin/true], timeout: 1m}", "decision_hook ": "decision_hook: {http: \"http://127.0.0.1:1/\", timeout: 1m}",
	"tools.default": "tools: {default: allow}", "tools.deny": "tools: {deny: " + callable + "}", "tools.ask": "tools: {ask: " + callable + "}", "tools.allow": "tools: {allow: " + callable + "}",
	"tools.frozen": "tools: {frozen: false}", "tools.wait": "tools: {wait: " + longest + "}",
	"backends.prefer": "backends: {prefer: [host, docker]}", "backends.allowed": "backends: {allowed: [linux, host, docker]}",
	"limits.memory": "limits: {memory: 4096t}", "limits.cpus": "limits: {cpus: 65536}", "limits.pids": "limits: {pids: 4194304}", "limits.disk": "limits: {disk: 4096t}", "limits.timeout": "limits: {timeout: " + longest + "}", "limits.net_bytes": "limits: {net_bytes: 4096t}", "limits.net_connections": "limits: {net_connections: 4194304}", "limits.net_rate": "limits: {net_rate: 4194304}",
	"budget.tasks": "budget: {tasks: 4194304}", "budget.memory": "budget: {memory: 4096t}", "budget.cpus": "budget: {cpus: 65536}", "budget.disk": "budget: {disk: 4096t}", "budget.when_full": "budget: {when_full: wait}",
	"retention.evidence": "retention: {evidence: 1s}", "retention.environments": "retention: {environments: " + longest + "}",
	"unattended": "unattended: false", "unwatched_after": "unwatched_after: " + longest, "net": "net: open",
	"outward.verdict": "outward: {verdict: allow}", "outward.ask": "outward: {ask: [{host: z.example, cidr: 192.0.2.0/24, ports: [1], methods: [GET], path: /z}]}", "outward.read": "outward: {read: [z.example]}",
	"credentials": "credentials: {any: {from: {command: [/bin/true]}, as: bearer, class: dev, to: [{host: z.example, methods: [GET], path: /z}], env: [Z], set: {Y: z}, form: z, inject: always, approve: never, lifetime: 24h, uses: 4194304}, " +
		"b: {from: {env: Z}, as: basic, class: dev, user: z, to: [{host: z.example}], env: [Z]}, c: {from: {file: /z}, as: header, class: dev, header: X-Z, to: [{host: z.example}], env: [Z]}, d: {from: {keyring: {z: z}}, as: sigv4, class: dev, region: z, service: z, to: [{host: z.example}]}, " +
		"e: {from: {agent: true}, as: ssh, class: dev, keys: [z], host_keys: [ssh-ed25519 AAAA], sign: [z], to: [{host: z.example}]}}",
	"services": "services: {db: {driver: compose, file: c.yaml, service: s, kind: postgres, version: \"17\", migrate: [a], seed: b, env: {A: b}, port: 1, depends_on: {q: {condition: started}}, ready: {exec: [a], period: 1s, timeout: 1s, failures: 1}}, q: {driver: native, ready: {http: \"http://x/\"}}, r: {driver: native, ready: {tcp: 1}}, s: {driver: native, ready: {log: x}}, t: {driver: native, ready: {protocol: x}}}",
	"checks":   "checks: [{name: unit, run: [\"true\"]}]", "risky_files": "risky_files: [\"z\"]",
	"tests": "tests: [{name: x, egress: \"a.example:1\", expect: allow}, {mount: {path: /, mode: rw}, expect: allow}, {env: X, expect: allow}, {credential: x, expect: allow}, {grant: ptrace, expect: allow}, {command: [a], expect: allow}, {tool: read_file, path: /, expect: allow}]",
}

// lowestValues are the least risky statements about everything.
func lowestValues() string {
	var out []string
	for _, c := range task.Characteristics {
		out = append(out, string(c)+": "+c.Values()[0])
	}
	return strings.Join(out, ", ")
}
