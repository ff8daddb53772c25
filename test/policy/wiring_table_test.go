//go:build linux

package policy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/test/harness"
)

// refusedKey marks keys that no policy may have in this version: their effect is
// an error that says so.
const refusedKey = "would never match"

const grantsNothing = "commands are denied and never granted"

// narrow leaves a person almost nothing to ask for, so that what else grants
// shows.
const narrow = "delegate: {user: {mode: auto, env: [NOTHING]}}\n"

// wide lets the repository ask for everything that it asks for here.
const wide = "delegate: {user: {mode: auto, env: [NOTHING]}, project: {mode: auto, egress: [{host: \"**\"}, {cidr: 0.0.0.0/0}], mounts: [{path: /, mode: rw}], env: [\"*\"], credentials: [\"*\"], grants: [ptrace, userns]}}"

const end = ", expires: 2099-01-01, reason: known}"

// wiredReach has what may be reached, in the four places where that stands.
var wiredReach = []wired{
	{keys: "base.egress[].host", set: "base: {egress: [{host: a.example}]}", not: "base: {egress: [{host: b.example}]}", do: says("policy explain egress a.example:443"), want: "allow:"},
	{keys: "base.egress[].host", set: "base: {egress: [{host: a.example}]}", not: "", do: says("plan -- true"), want: "this task has no network, which --net allowlist gives it: a.example"},
	{keys: "base.egress[].cidr", set: "base: {egress: [{cidr: 192.0.2.0/24}]}", not: "base: {egress: [{cidr: 198.51.100.0/24}]}", do: says("policy explain egress 192.0.2.1:443"), want: "allow:"},
	{keys: "base.egress[].ports", set: "base: {egress: [{host: a.example, ports: [80]}]}", not: "base: {egress: [{host: a.example}]}", do: says("policy explain egress a.example:443"), want: "deny:"},
	{keys: "base.egress[].methods", set: "base: {egress: [{host: a.example, methods: [GET]}]}", not: "base: {egress: [{host: a.example}]}", do: says("policy explain egress POST·https://a.example/"), want: "deny:"},
	{keys: "base.egress[].path", set: "base: {egress: [{host: a.example, path: /x}]}", not: "base: {egress: [{host: a.example}]}", do: says("policy explain egress GET·https://a.example/y"), want: "deny:"},
	{keys: "base.mounts[].path", set: narrow + "base: {mounts: [{path: \"{tmp}\"}]}", not: narrow + "base: {mounts: [{path: /nowhere}]}", do: says("plan --ro {tmp} -- true"), want: "exit 0"},
	{keys: "base.mounts[].mode", set: "base: {mounts: [{path: /srv, mode: rw}]}", not: "base: {mounts: [{path: /srv}]}", do: says("policy explain mount /srv rw"), want: "allow:"},
	{keys: "base.env", set: narrow + "base: {env: [X]}", not: narrow, do: says("plan --env X=1 -- true"), want: "exit 0"},
	{keys: "base.credentials", set: npm + "base: {credentials: [npm]}", not: npm, do: says("plan -- true"), want: "granted: lend npm"},
	{keys: "base.grants", set: narrow + "base: {grants: [ptrace]}", not: narrow, do: says("plan --grant ptrace -- true"), want: "exit 0"},
	{keys: "base.commands[].argv", set: "base: {commands: [{argv: [git]}]}", not: "", do: says("plan -- true"), want: "base.commands: " + grantsNothing},

	{keys: "request.egress[].host", project: "p", user: wide, set: "request: {egress: [{host: a.example}]}", not: "request: {egress: [{host: b.example}]}", do: says("policy explain egress a.example:443"), want: "allow:"},
	{keys: "request.egress[].host", project: "p", user: wide, set: "request: {egress: [{host: a.example}]}", not: "raise: {NET: 1}", do: says("plan -- true"), want: "this task has no network, which --net allowlist gives it: a.example (request"},
	{keys: "request.egress[].host", project: "p", user: "", set: "request: {egress: [{host: " + string(policy.Registries[0]) + ", ports: [443]}]}", not: "request: {egress: [{host: a.example}]}", do: says("plan -- true"), want: "counts when a person agreed as it is used"},
	{keys: "request.egress[].host", project: "p", user: "", set: "request: {egress: [{host: a.example}]}", not: "raise: {NET: 1}", do: says("plan -- true"), want: "not given: a.example: it is not inside what a project may ask for"},
	{keys: "request.egress[].cidr", project: "p", user: wide, set: "request: {egress: [{cidr: 192.0.2.0/24}]}", not: "request: {egress: [{cidr: 198.51.100.0/24}]}", do: says("policy explain egress 192.0.2.1:443"), want: "allow:"},
	{keys: "request.egress[].ports", project: "p", user: wide, set: "request: {egress: [{host: a.example, ports: [80]}]}", not: "request: {egress: [{host: a.example}]}", do: says("policy explain egress a.example:443"), want: "deny:"},
	{keys: "request.egress[].methods", project: "p", user: wide, set: "request: {egress: [{host: a.example, methods: [GET]}]}", not: "request: {egress: [{host: a.example}]}", do: says("policy explain egress POST·https://a.example/"), want: "deny:"},
	{keys: "request.egress[].path", project: "p", user: wide, set: "request: {egress: [{host: a.example, path: /x}]}", not: "request: {egress: [{host: a.example}]}", do: says("policy explain egress GET·https://a.example/y"), want: "deny:"},
	{keys: "request.mounts[].path", project: "p", user: wide, set: "request: {mounts: [{path: \"{tmp}\"}]}", not: "request: {mounts: [{path: /nowhere}]}", do: says("plan --ro {tmp} -- true"), want: "exit 0"},
	{keys: "request.mounts[].mode", project: "p", user: wide, set: "request: {mounts: [{path: /srv, mode: rw}]}", not: "request: {mounts: [{path: /srv}]}", do: says("policy explain mount /srv rw"), want: "allow:"},
	{keys: "request.env", project: "p", user: wide, set: "request: {env: [X]}", not: "request: {env: [Y]}", do: says("plan --env X=1 -- true"), want: "exit 0"},
	{keys: "request.credentials", project: "p", user: npm + wide, set: "request: {credentials: [npm]}", not: "request: {credentials: [other]}", do: says("plan -- true"), want: "granted: lend npm"},
	{keys: "request.grants", project: "p", user: wide, set: "request: {grants: [ptrace]}", not: "request: {grants: [userns]}", do: says("plan --grant ptrace -- true"), want: "exit 0"},
	{keys: "request.commands[].argv", set: "request: {commands: [{argv: [git]}]}", not: "", do: says("plan -- true"), want: "request.commands: " + grantsNothing},

	{keys: "delegate.{}.egress[].host", set: "delegate: {user: {mode: auto, egress: [{host: a.example}]}}\nrequest: {egress: [{host: a.example}]}", not: "delegate: {user: {mode: auto, egress: [{host: b.example}]}}\nrequest: {egress: [{host: a.example}]}", do: says("policy explain egress a.example:443"), want: "allow:"},
	{keys: "delegate.{}.egress[].cidr", set: "delegate: {user: {mode: auto, egress: [{cidr: 192.0.2.0/24}]}}\nrequest: {egress: [{cidr: 192.0.2.1/32}]}", not: "delegate: {user: {mode: auto, egress: [{cidr: 198.51.100.0/24}]}}\nrequest: {egress: [{cidr: 192.0.2.1/32}]}", do: says("policy explain egress 192.0.2.1:443"), want: "allow:"},
	{keys: "delegate.{}.egress[].ports", set: "delegate: {user: {mode: auto, egress: [{host: a.example, ports: [80]}]}}\nrequest: {egress: [{host: a.example}]}", not: "delegate: {user: {mode: auto, egress: [{host: a.example}]}}\nrequest: {egress: [{host: a.example}]}", do: says("plan -- true"), want: "not inside what a user may ask for"},
	{keys: "delegate.{}.egress[].methods", set: "delegate: {user: {mode: auto, egress: [{host: a.example, methods: [GET]}]}}\nrequest: {egress: [{host: a.example}]}", not: "delegate: {user: {mode: auto, egress: [{host: a.example}]}}\nrequest: {egress: [{host: a.example}]}", do: says("plan -- true"), want: "not inside what a user may ask for"},
	{keys: "delegate.{}.egress[].path", set: "delegate: {user: {mode: auto, egress: [{host: a.example, path: /x}]}}\nrequest: {egress: [{host: a.example}]}", not: "delegate: {user: {mode: auto, egress: [{host: a.example}]}}\nrequest: {egress: [{host: a.example}]}", do: says("plan -- true"), want: "not inside what a user may ask for"},
	{keys: "delegate.{}.mounts[].path", set: "delegate: {user: {mode: auto, mounts: [{path: \"{tmp}\"}]}}", not: "delegate: {user: {mode: auto, mounts: [{path: /nowhere}]}}", do: says("plan --ro {tmp} -- true"), want: "exit 0"},
	{keys: "delegate.{}.mounts[].mode", set: "delegate: {user: {mode: auto, mounts: [{path: /srv, mode: rw}]}}\nrequest: {mounts: [{path: /srv, mode: rw}]}", not: "delegate: {user: {mode: auto, mounts: [{path: /srv}]}}\nrequest: {mounts: [{path: /srv, mode: rw}]}", do: says("policy explain mount /srv rw"), want: "allow:"},
	{keys: "delegate.{}.env", set: "delegate: {user: {mode: auto, env: [X]}}", not: narrow, do: says("plan --env X=1 -- true"), want: "exit 0"},
	{keys: "delegate.{}.credentials", set: npm + "delegate: {user: {mode: auto, credentials: [npm]}}", not: npm + narrow, do: says("plan --lend npm -- true"), want: "granted: lend npm"},
	{keys: "delegate.{}.grants", set: "delegate: {user: {mode: auto, grants: [ptrace]}}", not: narrow, do: says("plan --grant ptrace -- true"), want: "exit 0"},
	{keys: "delegate.{}.mode", set: "delegate: {user: {mode: ask, env: [X]}}\nrequest: {env: [X]}", not: "delegate: {user: {mode: auto, env: [X]}}\nrequest: {env: [X]}", do: says("policy explain env X"), want: "ask:"},
	{keys: "delegate.{}.commands[].argv", set: "delegate: {project: {commands: [{argv: [git]}]}}", not: "", do: says("plan -- true"), want: "delegate.project.commands: " + grantsNothing},
	{keys: "delegation", project: "", set: strings.Replace(wide, "delegate:", "delegation: none\ndelegate:", 1), not: "delegation: ceilings", do: says("policy show"), want: "none"},

	{keys: "deny.egress[].host", set: "base: {egress: [{host: a.example}]}\ndeny: {egress: [{host: a.example}]}", not: "base: {egress: [{host: a.example}]}\ndeny: {egress: [{host: b.example}]}", do: says("policy explain egress a.example:443"), want: "deny:"},
	{keys: "deny.egress[].cidr", set: "base: {egress: [{cidr: 192.0.2.0/24}]}\ndeny: {egress: [{cidr: 192.0.2.1/32}]}", not: "base: {egress: [{cidr: 192.0.2.0/24}]}\ndeny: {egress: [{cidr: 192.0.2.2/32}]}", do: says("policy explain egress 192.0.2.1:443"), want: "deny:"},
	{keys: "deny.egress[].ports", set: "base: {egress: [{host: a.example}]}\ndeny: {egress: [{host: a.example, ports: [80]}]}", not: "base: {egress: [{host: a.example}]}\ndeny: {egress: [{host: a.example}]}", do: says("policy explain egress a.example:443"), want: "allow:"},
	{keys: "deny.egress[].methods", set: "base: {egress: [{host: a.example}]}\ndeny: {egress: [{host: a.example, methods: [POST]}]}", not: "base: {egress: [{host: a.example}]}\ndeny: {egress: [{host: a.example}]}", do: says("policy explain egress GET·https://a.example/"), want: "allow:"},
	{keys: "deny.egress[].path", set: "base: {egress: [{host: a.example}]}\ndeny: {egress: [{host: a.example, path: /x}]}", not: "base: {egress: [{host: a.example}]}\ndeny: {egress: [{host: a.example}]}", do: says("policy explain egress GET·https://a.example/y"), want: "allow:"},
	{keys: "deny.mounts[].path", set: "deny: {mounts: [{path: \"{tmp}\"}]}", not: "deny: {mounts: [{path: /nowhere}]}", do: says("plan --ro {tmp} -- true"), want: "denied: mounts {tmp}"},
	{keys: "deny.mounts[].mode", set: "deny: {mounts: [{path: \"{tmp}\", mode: rw}]}", not: "deny: {mounts: [{path: \"{tmp}\"}]}", do: says("plan --ro {tmp} -- true"), want: "exit 0"},
	{keys: "deny.env", set: "deny: {env: [X]}", not: "deny: {env: [Y]}", do: says("plan --env X=1 -- true"), want: "denied: env X"},
	{keys: "deny.credentials", set: "base: {credentials: [npm]}\ndeny: {credentials: [npm]}", not: "base: {credentials: [npm]}", do: says("plan -- true"), want: "not given: npm: it is denied"},
	{keys: "deny.credentials", set: npm + "deny: {credentials: [npm]}", not: npm, do: says("plan --lend npm -- true"), want: "denied: credentials npm"},
	{keys: "deny.grants", set: "deny: {grants: [ptrace]}", not: "deny: {grants: [userns]}", do: says("plan --grant ptrace -- true"), want: "denied: grants ptrace"},
	{keys: "deny.commands[].argv", set: "deny: {commands: [{argv: [git, push]}]}", not: "deny: {commands: [{argv: [git, pull]}]}", do: says("plan -- git push"), want: "the policy denies it"},
}

// npm is a handle, without the end of its line.
const npm = "credentials: {npm: {from: {env: T}, as: bearer, class: dev, to: [{host: a.example}], env: [NPM_TOKEN]}}\n"

// handle is a credential that says more or something else than npm does.
func handle(parts ...string) string {
	m := []string{"from: {env: T}", "as: bearer", "class: dev", "to: [{host: a.example}]", "env: [NPM_TOKEN]"}
	for _, p := range parts {
		key, _, _ := strings.Cut(p, ":")
		m = slices.DeleteFunc(m, func(o string) bool { return strings.HasPrefix(o, key+":") })
		if !strings.HasSuffix(p, ":") {
			m = append(m, p)
		}
	}
	return "credentials: {npm: {" + strings.Join(m, ", ") + "}}\n"
}

// wiredLoans has what a handle says. What requests are given, and which are not,
// is seen where there are servers: test/credentials.
var wiredLoans = []wired{
	{keys: "credentials.{}.to[].host", set: handle("to: [{host: b.example}]"), not: npm, do: says("plan --lend npm --allow a.example:443 -- true"), want: "which the task may not reach"},
	{keys: "credentials.{}.to[].path", set: handle("to: [{host: a.example, path: /x}]"), not: npm, do: says("policy show"), want: "bearer to a.example/x"},
	{keys: "credentials.{}.to[].methods", set: handle("to: [{host: a.example, methods: [GET, POST]}]"), not: npm, do: says("policy show"), want: "GET,POST a.example"},
	{keys: "credentials.{}.class", set: handle("class: prod"), not: npm, do: says("plan --lend npm -- true"), want: "row R6/production"},
	{keys: "credentials.{}.env", set: handle("env: [OTHER]"), not: npm, do: says("run --lend npm -- sh -c echo·${OTHER:+it·is·there}"), want: "it is there"},
	{keys: "credentials.{}.form", set: handle("form: npm_"), not: npm, do: says("run --lend npm -- sh -c echo·token·$NPM_TOKEN"), want: "token npm_"},
	{keys: "credentials.{}.set.{}", set: handle("set: {WHERE: \"https://a.example/v1\"}"), not: npm, do: says("run --lend npm -- sh -c echo·where·$WHERE"), want: "where https://a.example/v1"},
	{keys: "credentials.{}.as", set: handle("as: anthropic", "to:", "env:"), not: npm, do: says("run --lend npm -- sh -c echo·$ANTHROPIC_API_KEY"), want: "sk-ant-"},
	{keys: "credentials.{}.inject", set: handle("inject: always", "env:"), not: npm, do: says("policy show"), want: "always, for 1h"},
	{keys: "credentials.{}.header", set: handle("as: header", "header: X-Key"), not: npm, do: says("policy show"), want: "header X-Key"},
	{keys: "credentials.{}.user", set: handle("as: basic", "user: me"), not: npm, do: says("policy show"), want: "basic me to"},
	{keys: "credentials.{}.region credentials.{}.service", set: handle("as: sigv4", "region: eu-x", "service: s3", "env:"), not: npm, do: says("policy show"), want: "sigv4 eu-x s3"},
	{keys: "credentials.{}.lifetime", set: handle("lifetime: 5m"), not: npm, do: says("policy show"), want: "for 5m"},
	{keys: "credentials.{}.uses", set: handle("uses: 7"), not: npm, do: says("policy show"), want: "7 uses"},
	{keys: "credentials.{}.approve", set: handle("approve: once"), not: npm, do: says("policy show"), want: "asked once"},
	{keys: "credentials.{}.from.env", set: handle("from: {env: SECOND}"), not: npm, do: says("policy show"), want: "from the variable SECOND"},
	{keys: "credentials.{}.from.file", set: handle("from: {file: ~/token}"), not: npm, do: says("policy show"), want: "from the file {home}/token"},
	{keys: "credentials.{}.from.command", set: handle("from: {command: [/bin/print, it]}"), not: npm, do: says("policy show"), want: "from the command /bin/print"},
	{keys: "credentials.{}.from.keyring.{}", set: handle("from: {keyring: {service: npm}}"), not: npm, do: says("policy show"), want: "from the keyring service"},
	{keys: "credentials.{}.from.agent credentials.{}.keys", set: handle("from: {agent: true}", "as: ssh", "keys: [\"SHA256:abc\"]", "env:"), not: npm, do: says("policy show"), want: "keys SHA256:abc"},
	{keys: "credentials.{}.host_keys", set: handle("as: ssh", "host_keys: [ssh-ed25519 AAAA]", "env:"), not: npm, do: says("policy show"), want: "host_keys ssh-ed25519 AAAA"},
	{keys: "credentials.{}.sign", set: handle("as: ssh", "sign: [git]", "env:"), not: npm, do: says("policy show"), want: "sign git"},
}

// wiredFacts has what is known of a task, and what who decides says about it.
var wiredFacts = []wired{
	{keys: "lower[].characteristic", set: "characteristics: {migrations: schema}\nlower: [{characteristic: migrations, value: none, repo: \"{repo}\"" + end + "]", not: "characteristics: {migrations: schema}\nlower: [{characteristic: destructive, value: no, repo: \"{repo}\"" + end + "]", do: levels("--", "true"), want: "rows base R2 R3\n"},
	{keys: "lower[].value", set: "characteristics: {migrations: schema}\nlower: [{characteristic: migrations, value: none, repo: \"{repo}\"" + end + "]", not: "characteristics: {migrations: schema}\nlower: [{characteristic: migrations, value: data, repo: \"{repo}\"" + end + "]", do: levels("--", "true"), want: "rows base R2 R3\n"},
	{keys: "lower[].repo", set: "characteristics: {migrations: schema}\nlower: [{characteristic: migrations, value: none, repo: \"{repo}\"" + end + "]", not: "characteristics: {migrations: schema}\nlower: [{characteristic: migrations, value: none, repo: /other" + end + "]", do: levels("--", "true"), want: "rows base R2 R3\n"},
	{keys: "lower[].ref", set: "characteristics: {migrations: schema}\nlower: [{characteristic: migrations, value: none, repo: \"{repo}\", ref: refs/heads/main" + end + "]", not: "characteristics: {migrations: schema}\nlower: [{characteristic: migrations, value: none, repo: \"{repo}\", ref: refs/heads/other" + end + "]", do: levels("--", "true"), want: "rows base R2 R3\n"},
	{keys: "lower[].expires", set: "characteristics: {migrations: schema}\nlower: [{characteristic: migrations, value: none, repo: \"{repo}\"" + end + "]", not: "characteristics: {migrations: schema}\nlower: [{characteristic: migrations, value: none, repo: \"{repo}\", expires: 2020-01-01, reason: known}]", do: levels("--", "true"), want: "rows base R2 R3\n"},
	{keys: "lower[].reason", set: "characteristics: {migrations: schema}\nlower: [{characteristic: migrations, value: none, repo: \"{repo}\"" + end + "]", not: "characteristics: {migrations: schema}\nlower: [{characteristic: migrations, value: none, repo: \"{repo}\", expires: 2099-01-01, reason: other}]", do: says("plan --json -- true"), want: ": known"},
	{keys: "trust[].repo", set: "characteristics: {code_trust: hostile}\ntrust: [{repo: \"{repo}\"" + end + "]", not: "characteristics: {code_trust: hostile}\ntrust: [{repo: /other" + end + "]", do: levels("--", "true"), want: "rows base R2 R3\n"},
	{keys: "trust[].ref", set: "characteristics: {code_trust: hostile}\ntrust: [{repo: \"{repo}\", ref: refs/heads/main" + end + "]", not: "characteristics: {code_trust: hostile}\ntrust: [{repo: \"{repo}\", ref: refs/heads/other" + end + "]", do: levels("--", "true"), want: "rows base R2 R3\n"},
	{keys: "trust[].expires", set: "characteristics: {code_trust: hostile}\ntrust: [{repo: \"{repo}\"" + end + "]", not: "characteristics: {code_trust: hostile}\ntrust: [{repo: \"{repo}\", expires: 2020-01-01, reason: known}]", do: levels("--", "true"), want: "rows base R2 R3\n"},
	{keys: "trust[].reason", set: "characteristics: {code_trust: hostile}\ntrust: [{repo: \"{repo}\"" + end + "]", not: "characteristics: {code_trust: hostile}\ntrust: [{repo: \"{repo}\", expires: 2099-01-01, reason: other}]", do: says("plan --json -- true"), want: ": known"},
	{keys: "allow_trust", set: "allow_trust: false", not: "allow_trust: true", do: says("plan --trust -- true"), want: "allow_trust is false"},
	{keys: "trusted_checks[].argv", set: "trusted_checks: [{argv: [cat], executes: checks}]", not: "trusted_checks: [{argv: [wc], executes: checks}]", do: levels("--", "cat", "f"), want: "executes=checks"},
	{keys: "trusted_checks[].executes", set: "trusted_checks: [{argv: [cat], executes: none}]", not: "trusted_checks: [{argv: [cat], executes: checks}]", do: levels("--", "cat", "f"), want: "executes=none"},
	{keys: "trusted_checks[].sha256", set: "trusted_checks: [{argv: [cat], executes: none, sha256: \"" + strings.Repeat("0", 64) + "\"}]", not: "trusted_checks: [{argv: [cat], executes: none}]", do: says("plan -- cat f"), want: "has another digest"},
	{keys: "suppress[].rule", set: "suppress: [{rule: CMD-15, reason: known}]", not: "suppress: [{rule: MIG-99, reason: known}]", do: says("plan -- npx prisma migrate deploy"), want: "does not count"},
	{keys: "suppress[].repo", set: "suppress: [{rule: CMD-15, repo: \"{repo}\", reason: known}]", not: "suppress: [{rule: CMD-15, repo: /other, reason: known}]", do: says("plan -- npx prisma migrate deploy"), want: "does not count"},
	{keys: "suppress[].reason", set: "suppress: [{rule: CMD-15, reason: known}]", not: "suppress: [{rule: CMD-15, reason: other}]", do: says("plan -- npx prisma migrate deploy"), want: "does not count: known"},

	{keys: "acceptances[].axis", set: "raise: {KRN: 3}\nacceptances: [{axis: KRN, level: 1, repo: \"{repo}\"" + end + "]", not: "raise: {KRN: 3}\nacceptances: [{axis: FS, level: 1, repo: \"{repo}\"" + end + "]", do: says("plan --unattended -- true"), want: "exit 0"},
	{keys: "acceptances[].level", set: "raise: {KRN: 3}\nacceptances: [{axis: KRN, level: 1, repo: \"{repo}\"" + end + "]", not: "raise: {KRN: 3}\nacceptances: [{axis: KRN, level: 2, repo: \"{repo}\"" + end + "]", do: says("plan --unattended -- true"), want: "exit 0"},
	{keys: "acceptances[].repo", set: "raise: {KRN: 3}\nacceptances: [{axis: KRN, level: 1, repo: \"{repo}\"" + end + "]", not: "raise: {KRN: 3}\nacceptances: [{axis: KRN, level: 1, repo: /other" + end + "]", do: says("plan --unattended -- true"), want: "exit 0"},
	{keys: "acceptances[].ref", set: "raise: {KRN: 3}\nacceptances: [{axis: KRN, level: 1, repo: \"{repo}\", ref: refs/heads/main" + end + "]", not: "raise: {KRN: 3}\nacceptances: [{axis: KRN, level: 1, repo: \"{repo}\", ref: refs/heads/other" + end + "]", do: says("plan --unattended -- true"), want: "exit 0"},
	{keys: "acceptances[].expires", set: "raise: {KRN: 3}\nacceptances: [{axis: KRN, level: 1, repo: \"{repo}\"" + end + "]", not: "raise: {KRN: 3}\nacceptances: [{axis: KRN, level: 1, repo: \"{repo}\", expires: 2020-01-01, reason: known}]", do: says("plan --unattended -- true"), want: "exit 0"},
	{keys: "acceptances[].reason", set: "raise: {KRN: 3}\nacceptances: [{axis: KRN, level: 1, repo: \"{repo}\"" + end + "]", not: "raise: {KRN: 3}\nacceptances: [{axis: KRN, level: 1, repo: \"{repo}\", expires: 2099-01-01, reason: other}]", do: says("plan --json -- true"), want: `"reason": "known"`},
	{keys: "acceptance.max_ttl", set: "raise: {KRN: 3}\nacceptance: {max_ttl: 1h}", not: "raise: {KRN: 3}\nacceptance: {max_ttl: 30h}", do: accepting("--for", "2h"), want: "longer than the 1h0m0s that are allowed"},
	{keys: "acceptance.min_assurance.{}", set: "raise: {KRN: 3}\nacceptance: {min_assurance: {KRN: hardware}}", not: "raise: {KRN: 3}\nacceptance: {min_assurance: {FS: hardware}}", do: accepting(), want: "KRN is accepted with hardware"},
}

// delegable has an effect on a user beside an operator only.
var delegable = wired{keys: "acceptance.delegable", operator: true, set: "raise: {KRN: 3}\nacceptance: {delegable: [KRN]}", not: "raise: {KRN: 3}\nacceptance: {delegable: [FS]}", do: accepting(), want: "exit 0"}

// accepting is what is said of a person's acceptance of what a plan lacks.
func accepting(flags ...string) func(w *worker) string {
	return func(w *worker) string {
		report := w.planned("--", "true").Report
		s := harness.OnTerminal(w.t, w.cmd(append([]string{"accept", report, "--axis", "KRN=1", "--reason", "x"}, flags...)...), w.UID)
		s.Type("y\n")
		code := s.Wait()
		for _, l := range strings.Split(w.run("accept", "--list").Stdout, "\n") {
			if f := strings.Fields(l); len(f) > 0 && !strings.Contains(l, "taken back") {
				w.run("accept", "--revoke", f[0])
			}
		}
		return fmt.Sprintf("exit %d\n%s", code, strings.Join(strings.Fields(s.All()), " "))
	}
}

const shellRule = `{"command":"git push"}`

// wiredCalls has the rules about calls, and the programs that are asked.
func wiredCalls(t *testing.T, id *harness.Identity) []wired {
	t.Helper()
	hook := func(name, text string) string {
		name = id.Tmp + "/" + name
		id.Write(t, name, "#!/bin/sh\ncat >/dev/null\n"+text+"\n", 0o700)
		return name
	}
	denies, slow := hook("denies", `echo '{"verdict":"deny","reason":"by the hook"}'`), hook("slow", `sleep 1; echo '{"verdict":"none"}'`)
	for dir := id.Tmp; dir != "/" && len(dir) > 1 && strings.HasPrefix(dir, id.Dir); dir = dir[:strings.LastIndexByte(dir, '/')] {
		_ = os.Chmod(dir, 0o755) // the other workers start it too
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"verdict":"deny","reason":"by the server"}`)
	}))
	t.Cleanup(server.Close)
	out := []wired{
		{keys: "decision_hook.exec", set: "decision_hook: {exec: [" + denies + "], timeout: 1m}", not: "decision_hook: {exec: [" + slow + "], timeout: 1m}", do: says("run -- true"), want: "by the hook"},
		{keys: "decision_hook.http", set: "decision_hook: {http: \"" + server.URL + "\", timeout: 1m}", not: "", do: says("run -- true"), want: "by the server"},
		{keys: "decision_hook.timeout", set: "decision_hook: {exec: [" + slow + "], timeout: 50ms}", not: "decision_hook: {exec: [" + slow + "], timeout: 1m}", do: says("run -- true"), want: "gave no answer"},
		{keys: "tools.default", set: "tools: {default: deny}", not: "tools: {default: allow}", do: call("read_file", `{"path":"f"}`), want: "tools.default is deny"},
		{keys: "tools.frozen", set: "tools: {frozen: true}", not: "tools: {frozen: false}", do: opened(), want: `"frozen":"user `},
		{keys: "tools.wait", set: "tools: {wait: 1m}", not: "tools: {wait: 5m}", do: says("run --ask shell --ask-timeout 2m -- true"), want: "is more than the policy allows, 1m"},
		{keys: "tools.allow[].tool", set: "tools: {default: deny, allow: [{tool: read_file}]}", not: "tools: {default: deny, allow: [{tool: glob}]}", do: call("read_file", `{"path":"f"}`), want: "exit 0"},
		{keys: "tools.allow[].command", set: "tools: {default: deny, allow: [{command: [true]}]}", not: "tools: {default: deny, allow: [{command: [false]}]}", do: call("shell", `{"command":"true"}`), want: "exit 0"},
		{keys: "tools.allow[].path", set: "tools: {default: deny, allow: [{path: \"{repo}\"}]}", not: "tools: {default: deny, allow: [{path: /other}]}", do: call("read_file", `{"path":"f"}`), want: "exit 0"},
		{keys: "tools.allow[].reason", set: "tools: {allow: [{tool: read_file, reason: harmless}]}", not: "tools: {allow: [{tool: read_file, reason: other}]}", do: says("policy explain tool read_file"), want: "harmless"},
	}
	out[len(out)-3].set = strings.ReplaceAll(out[len(out)-3].set, "[true]", `["true"]`)
	out[len(out)-3].not = strings.ReplaceAll(out[len(out)-3].not, "[false]", `["false"]`)
	for list, said := range map[string]string{"deny": "deny ", "ask": "nobody is there to ask"} {
		rule := func(s string) string { return "tools: {" + list + ": [{" + s + "}]}" }
		out = append(out,
			wired{keys: "tools." + list + "[].tool", set: rule("tool: shell"), not: rule("tool: glob"), do: call("shell", `{"command":"true"}`), want: said},
			wired{keys: "tools." + list + "[].command", set: rule("command: [git, push]"), not: rule("command: [git, pull]"), do: call("shell", shellRule), want: said},
			wired{keys: "tools." + list + "[].host", set: rule("tool: fetch, host: a.example"), not: rule("tool: fetch, host: b.example"), do: call("fetch", `{"url":"http://a.example/"}`), want: said},
			wired{keys: "tools." + list + "[].methods", set: rule("tool: fetch, methods: [HEAD]"), not: rule("tool: fetch, methods: [GET]"), do: call("fetch", `{"url":"http://a.example/","method":"HEAD"}`), want: said},
			wired{keys: "tools." + list + "[].path", set: rule("path: \"{repo}/f\""), not: rule("path: \"{repo}/g\""), do: call("read_file", `{"path":"f"}`), want: said},
			wired{keys: "tools." + list + "[].reason", set: rule("tool: shell, reason: by hand"), not: rule("tool: shell, reason: other"), do: call("shell", shellRule), want: "by hand"})
	}
	for _, list := range []string{"deny", "ask", "allow"} {
		for part, value := range map[string]string{"host": "a.example, path: /etc", "methods": "[GET], tool: shell", "credential": "npm"} {
			out = append(out, wired{keys: "tools." + list + "[]." + part, set: fmt.Sprintf("tools: {%s: [{%s: %s}]}", list, part, value), not: "", do: says("plan -- true"), want: refusedKey})
		}
	}
	return out
}

// wiredRest has the others.
var wiredRest = []wired{
	{keys: "backends.prefer", set: "backends: {prefer: [linux]}", not: "backends: {prefer: [docker]}", do: opened(), want: `"backend":"user `},
	{keys: "backends.allowed", set: "backends: {allowed: [vm]}", not: "backends: {allowed: [vm, linux]}", do: says("plan -- true"), want: "the policy allows only the backends vm"},
	{keys: "limits.memory", set: "limits: {memory: 300m}", not: "limits: {memory: 301m}", do: says("plan --json -- true"), want: "314572800"},
	{keys: "limits.cpus", set: "limits: {cpus: 0.25}", not: "limits: {cpus: 0.5}", do: says("plan --json -- true"), want: `"cpus": 0.25`},
	{keys: "limits.pids", set: "limits: {pids: 333}", not: "limits: {pids: 334}", do: says("plan --json -- true"), want: `"pids": 333`},
	{keys: "limits.disk", set: "limits: {disk: 64m}", not: "limits: {disk: 65m}", do: says("plan --json -- true"), want: "67108864"},
	{keys: "limits.net_bytes", set: "limits: {net_bytes: 300m}", not: "limits: {net_bytes: 301m}", do: says("plan --json -- true"), want: `"net_bytes": 314572800`},
	{keys: "limits.net_connections", set: "limits: {net_connections: 17}", not: "limits: {net_connections: 18}", do: says("plan --json -- true"), want: `"net_connections": 17`},
	{keys: "limits.net_rate", set: "limits: {net_rate: 17}", not: "limits: {net_rate: 18}", do: says("plan --json -- true"), want: `"net_rate": 17`},
	{keys: "limits.timeout", set: "limits: {timeout: 11m}", not: "limits: {timeout: 12m}", do: says("plan --json -- true"), want: "660000000000"},
	{keys: "budget.tasks", set: "budget: {tasks: 1}", not: "budget: {tasks: 9}", do: beside("run", "--", "true"), want: "is full: tasks: it takes 1"},
	{keys: "budget.memory", set: "budget: {memory: 512m}", not: "budget: {memory: 1g}", do: says("run --memory 600m -- true"), want: "is smaller than this task: memory"},
	{keys: "budget.cpus", set: "budget: {cpus: 0.5}", not: "budget: {cpus: 1}", do: says("run --cpus 1 -- true"), want: "is smaller than this task: cpus"},
	{keys: "budget.disk", set: "budget: {disk: 100m}", not: "budget: {disk: 10g}", do: says("run --disk 200m -- true"), want: "is smaller than this task: disk"},
	{keys: "budget.when_full", set: "budget: {tasks: 1, when_full: wait}", not: "budget: {tasks: 1, when_full: refuse}", do: turn, want: "waited"},
	{keys: "retention.environments", set: "retention: {environments: 1h}", not: "retention: {environments: 2h}", do: opened(), want: `"keep_for_ns": 3600000000000`},
	{keys: "retention.evidence", set: "retention: {evidence: 90d}", not: "retention: {evidence: 91d}", do: says("policy show"), want: "90d"},
	{keys: "unattended", set: "unattended: true", not: "unattended: false", do: opened(), want: `"unattended":"user `},
	{keys: "unwatched_after", set: "unwatched_after: 1ms", not: "unwatched_after: 8h", do: unwatched, want: "supervision=broad-unsupervised"},
	{keys: "net", set: "base: {egress: [{host: a.example}]}\nnet: none", not: "base: {egress: [{host: a.example}]}\nnet: allowlist", do: says("policy explain egress a.example:443"), want: "net is none"},
	{keys: "net", set: "net: none", not: "", do: opened(), want: `"net":"user `},
	{keys: "outward.verdict", set: "base: {egress: [{host: a.example}]}\noutward: {verdict: deny}", not: "base: {egress: [{host: a.example}]}\noutward: {verdict: allow}", do: says("policy explain egress DELETE·https://a.example/x"), want: "deny:"},
	{keys: "outward.verdict", set: "base: {egress: [{host: a.example}]}\noutward: {verdict: ask}", not: "base: {egress: [{host: a.example}]}\noutward: {verdict: allow}", do: says("policy explain egress DELETE·https://a.example/x"), want: "ask:"},
	{keys: "outward.ask[].host outward.ask[].methods outward.ask[].path outward.ask[].ports", set: "base: {egress: [{host: a.example}]}\noutward: {ask: [{host: a.example, ports: [443], methods: [POST], path: /pay}]}", not: "base: {egress: [{host: a.example}]}", do: says("policy explain egress POST·https://a.example/pay/1"), want: "ask:"},
	{keys: "outward.ask[].cidr", set: "base: {egress: [{cidr: 192.0.2.0/24}]}\noutward: {ask: [{cidr: 192.0.2.1/32}]}", not: "base: {egress: [{cidr: 192.0.2.0/24}]}\noutward: {ask: [{cidr: 192.0.2.2/32}]}", do: says("policy explain egress 192.0.2.1:443"), want: "ask:"},
	{keys: "outward.ask[].host", set: "base: {egress: [{host: \"**\"}]}\noutward: {ask: [{host: a.example}]}", not: "base: {egress: [{host: \"**\"}]}\noutward: {ask: [{host: b.example}]}", do: says("policy explain egress a.example:443"), want: "ask:"},
	{keys: "outward.ask[].ports", set: "base: {egress: [{host: a.example}]}\noutward: {ask: [{host: a.example, ports: [443]}]}", not: "base: {egress: [{host: a.example}]}\noutward: {ask: [{host: a.example, ports: [80]}]}", do: says("policy explain egress a.example:443"), want: "ask:"},
	{keys: "outward.ask[].methods", set: "base: {egress: [{host: a.example}]}\noutward: {ask: [{host: a.example, methods: [POST]}]}", not: "base: {egress: [{host: a.example}]}\noutward: {ask: [{host: a.example, methods: [PUT]}]}", do: says("policy explain egress POST·https://a.example/"), want: "ask:"},
	{keys: "outward.ask[].path", set: "base: {egress: [{host: a.example}]}\noutward: {ask: [{host: a.example, path: /pay}]}", not: "base: {egress: [{host: a.example}]}\noutward: {ask: [{host: a.example, path: /x}]}", do: says("policy explain egress POST·https://a.example/pay"), want: "ask:"},
	{keys: "outward.read", set: "outward: {read: [a.example]}", not: "outward: {read: [b.example]}", do: says("plan --allow a.example:443 -- true"), want: "TLS to a.example"},
	{keys: "risky_files", set: "risky_files: [\"new*\"]", not: "risky_files: [\"old*\"]", do: opened("sh", "-c", "echo a >new.txt"), want: `"path": "new.txt",
      "rule"`},
	{keys: "checks[].name", set: "checks: [{name: unit, run: [test, -e, f]}]", not: "checks: [{name: lint, run: [test, -e, f]}]", do: verified("unit"), want: "exit 0"},
	{keys: "checks[].run", set: "checks: [{name: unit, run: [test, -e, f]}]", not: "checks: [{name: unit, run: [test, -e, g]}]", do: verified("unit"), want: "exit 0"},

	{keys: "tests[].name tests[].tool tests[].expect", set: "tests: [{name: a file, tool: read_file, expect: allow}]", not: "tests: [{name: a file, tool: read_file, expect: deny}]", do: says("policy test"), want: "exit 0"},
	{keys: "tests[].name", set: "tests: [{name: a file, tool: read_file, expect: allow}]", not: "tests: [{name: other, tool: read_file, expect: allow}]", do: says("policy test"), want: "a file"},
	{keys: "tests[].path", set: "tools: {deny: [{path: /x}]}\ntests: [{tool: read_file, path: /x, expect: deny}]", not: "tools: {deny: [{path: /x}]}\ntests: [{tool: read_file, path: /y, expect: deny}]", do: says("policy test"), want: "exit 0"},
	{keys: "tests[].command", set: "deny: {commands: [{argv: [git, push]}]}\ntests: [{command: [git, push], expect: deny}]", not: "deny: {commands: [{argv: [git, push]}]}\ntests: [{command: [git, pull], expect: deny}]", do: says("policy test"), want: "exit 0"},
	{keys: "tests[].credential", set: "base: {credentials: [npm]}\ntests: [{credential: npm, expect: allow}]", not: "base: {credentials: [npm]}\ntests: [{credential: other, expect: allow}]", do: says("policy test"), want: "exit 0"},
	{keys: "tests[].egress", set: "base: {egress: [{host: a.example}]}\ntests: [{egress: \"a.example:443\", expect: allow}]", not: "base: {egress: [{host: a.example}]}\ntests: [{egress: \"b.example:443\", expect: allow}]", do: says("policy test"), want: "exit 0"},
	{keys: "tests[].env", set: "base: {env: [X]}\ntests: [{env: X, expect: allow}]", not: "base: {env: [X]}\ntests: [{env: Y, expect: allow}]", do: says("policy test"), want: "exit 0"},
	{keys: "tests[].grant", set: "base: {grants: [ptrace]}\ntests: [{grant: ptrace, expect: allow}]", not: "base: {grants: [ptrace]}\ntests: [{grant: userns, expect: allow}]", do: says("policy test"), want: "exit 0"},
	{keys: "tests[].mount.path", set: "base: {mounts: [/srv]}\ntests: [{mount: {path: /srv}, expect: allow}]", not: "base: {mounts: [/srv]}\ntests: [{mount: {path: /opt}, expect: allow}]", do: says("policy test"), want: "exit 0"},
	{keys: "tests[].mount.mode", set: "base: {mounts: [/srv]}\ntests: [{mount: {path: /srv, mode: rw}, expect: deny}]", not: "base: {mounts: [/srv]}\ntests: [{mount: {path: /srv}, expect: deny}]", do: says("policy test"), want: "exit 0"},

	// No service is started in this version, which the plan says; what was declared is shown.
	{keys: "services.{}.driver", set: "services: {db: {driver: native}}", not: "", do: says("plan -- true"), want: "this version starts no service"},
	{keys: "services.{}.driver", set: "services: {db: {driver: builtin}}", not: "services: {db: {driver: native}}", do: says("policy show --json"), want: `"driver": "builtin"`},
	{keys: "services.{}.kind", set: "services: {db: {driver: native, kind: mysql}}", not: "services: {db: {driver: native, kind: redis}}", do: says("policy show --json"), want: `"kind": "mysql"`},
	{keys: "services.{}.version", set: "services: {db: {driver: native, version: \"17\"}}", not: "services: {db: {driver: native}}", do: says("policy show --json"), want: `"version": "17"`},
	{keys: "services.{}.file services.{}.service", set: "services: {db: {driver: compose, file: c.yaml, service: main}}", not: "services: {db: {driver: compose, file: d.yaml}}", do: says("policy show"), want: `"file":"c.yaml","name":"db","service":"main"`},
	{keys: "services.{}.migrate", set: "services: {db: {driver: native, migrate: [make, up]}}", not: "services: {db: {driver: native}}", do: says("policy show"), want: `"migrate":["make","up"]`},
	{keys: "services.{}.seed", set: "services: {db: {driver: native, seed: a.sql}}", not: "services: {db: {driver: native}}", do: says("policy show"), want: `"seed":"a.sql"`},
	{keys: "services.{}.env.{}", set: "services: {db: {driver: native, env: {URL: x}}}", not: "services: {db: {driver: native}}", do: says("policy show"), want: `"env":{"URL":"x"}`},
	{keys: "services.{}.port", set: "services: {db: {driver: native, port: 5432}}", not: "services: {db: {driver: native}}", do: says("policy show"), want: `"port":5432`},
	{keys: "services.{}.depends_on.{}.condition", set: "services: {db: {driver: native, depends_on: {q: {condition: healthy}}}}", not: "services: {db: {driver: native}}", do: says("policy show"), want: `"depends_on":{"q":{"condition":"healthy"}}`},
	{keys: "services.{}.ready.exec", set: "services: {db: {driver: native, ready: {exec: [a]}}}", not: "services: {db: {driver: native}}", do: says("policy show"), want: `"ready":{"exec":["a"]}`},
	{keys: "services.{}.ready.http", set: "services: {db: {driver: native, ready: {http: \"http://localhost/\"}}}", not: "services: {db: {driver: native}}", do: says("policy show"), want: `"ready":{"http":"http://localhost/"}`},
	{keys: "services.{}.ready.log", set: "services: {db: {driver: native, ready: {log: up}}}", not: "services: {db: {driver: native}}", do: says("policy show"), want: `"ready":{"log":"up"}`},
	{keys: "services.{}.ready.protocol", set: "services: {db: {driver: native, ready: {protocol: postgres}}}", not: "services: {db: {driver: native}}", do: says("policy show"), want: `"ready":{"protocol":"postgres"}`},
	{keys: "services.{}.ready.tcp services.{}.ready.failures", set: "services: {db: {driver: native, ready: {tcp: 1, failures: 3}}}", not: "services: {db: {driver: native}}", do: says("policy show"), want: `"ready":{"failures":3,"tcp":1}`},
	{keys: "services.{}.ready.period services.{}.ready.timeout", set: "services: {db: {driver: native, ready: {tcp: 1, period: 1s, timeout: 2s}}}", not: "services: {db: {driver: native}}", do: says("policy show"), want: `"ready":{"period":"1s","tcp":1,"timeout":"2s"}`},
}

// openFirst opens a task while no policy says anything, and nothing else is open.
func (w *worker) openFirst(flags ...string) (id string) {
	w.t.Helper()
	name := w.Home + "/.config/caisson/policy.yaml"
	text, err := os.ReadFile(name)
	if err != nil {
		w.t.Fatal(err)
	}
	w.userPolicy("")
	if w.task != "" {
		w.OK(w.t, w.repo, "close", "--discard", w.task)
		w.task = ""
	}
	id = w.Open(w.t, w.repo, flags...)
	w.userPolicy(string(text))
	return id
}

// closeAfter closes it whatever a policy says.
func (w *worker) closeAfter(id string) {
	w.t.Helper()
	w.userPolicy("")
	w.OK(w.t, w.repo, "close", "--discard", id)
}

// beside runs a command while another task of the same person is open.
func beside(args ...string) func(w *worker) string {
	return func(w *worker) string {
		id := w.openFirst()
		r := w.run(args...)
		w.closeAfter(id)
		return fmt.Sprintf("exit %d\n%s\n%s", r.Exit, r.Stdout, r.Stderr)
	}
}

// unwatched is what is said to a command in a task that nobody attends.
func unwatched(w *worker) string {
	id := w.openFirst("--unattended")
	r := w.run("exec", id, "--", "true")
	w.closeAfter(id)
	return r.String()
}

// turn starts a task for which nothing is left, and makes room for it when it is
// seen to wait.
func turn(w *worker) string {
	id := w.openFirst()
	cmd := w.cmd("run", "--", "true")
	over := make(chan harness.Result, 1)
	go func() { over <- harness.Run(w.t, cmd) }()
	var r *harness.Result
	waited := false
	harness.Eventually(w.t, "the task waits or is refused", func() bool {
		select {
		case got := <-over:
			r = &got
		default:
			waited = strings.Contains(w.run("ls", "--json").Stdout, `"waiting": 1`)
		}
		return r != nil || waited
	})
	w.OK(w.t, w.repo, "close", "--discard", id)
	if r == nil {
		got := <-over
		r = &got
	}
	if waited && r.Exit == 0 {
		return "waited"
	}
	return r.String()
}
