package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

const whole = `# the operator's
version: 1
floors: {CPL: 2, EVD: 2}
raise: {NET: 2}
base:
  egress:
    - {host: "**.packages.example.internal", ports: [443, 8000-8100], methods: [GET, HEAD], path: /pool}
  mounts: [~/go/pkg/mod, {path: /srv/data, mode: rw}]
  env: [LANG, "LC_*"]
  credentials: ["npm-read"]
  grants: [ptrace]
delegation: ceilings
delegate:
  project: {mode: ask, egress: [{host: npm.example.com, ports: [443]}]}
deny: {egress: [{cidr: 169.254.0.0/16}], mounts: ["~/.ssh"],
  commands: [{argv: [git, push]}]}
characteristics: {migrations: schema, starts_processes: true, mutable_state: [db, queue]}
lower: [{characteristic: supervision, value: supervised, repo: github.com/acme/*, expires: 2027-03-01, reason: reviewed}]
trust: [{repo: /home/me/shop, ref: refs/heads/main, expires: 2027-03-01T12:00:00Z, reason: ours}]
allow_trust: false
trusted_checks: [{argv: ["gofmt", "-l"], executes: none}]
suppress: [{rule: MIG-02, reason: generated}]
acceptance: {max_ttl: 8h, min_assurance: {default: tty, KRN: os-auth, CRD: hardware}, delegable: [FS, NET]}
acceptances: [{axis: KRN, level: 1, repo: github.com/acme/shop, expires: 2027-01-01, reason: no vm yet}]
decision_hook: {exec: [/usr/bin/opa-ask], timeout: 2s}
tools: {default: ask, deny: [{tool: shell, command: [git, push]}], ask: [{path: /etc}], allow: [{tool: read_file}], frozen: true, wait: 5m}
backends: {prefer: [vm, linux], allowed: [linux, vm]}
limits: {memory: 2g, cpus: 1.5, pids: 512, disk: 10g, timeout: 2h}
budget: {tasks: 8, memory: 16g, cpus: 6, disk: 100g, when_full: refuse}
retention: {evidence: 90d, environments: 72h}
unattended: true
unwatched_after: 60m
net: allowlist
outward: {verdict: deny, ask: [{host: pay.example.com, methods: [POST]}], read: [pay.example.com]}
credentials: {npm-read: {from: {file: ~/.config/npm-token}, as: bearer, class: dev, to: [{host: "npm.example.com", path: /acme}], env: [NPM_TOKEN]}}
services: {db: {driver: native, kind: postgres, version: "17", migrate: [make, migrate], seed: db/seed.sql, ready: {tcp: 5432}}}
checks: [{name: unit, run: [go, test, ./...]}]
risky_files: ["internal/auth/**"]
tests: [{egress: "npm.example.com:443", expect: ask}]
`

func TestDecodeWhole(t *testing.T) {
	doc, lines, err := Decode("p.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	// Every key of the syntax stands in the text above.
	v := reflect.ValueOf(doc).Elem()
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "Request" {
			t.Errorf("%s was not read", name)
		}
	}
	if got := doc.Limits.Memory; got != 2<<30 {
		t.Errorf("memory is %d", got)
	}
	if got := time.Duration(doc.Retention.Evidence); got != 90*24*time.Hour {
		t.Errorf("evidence stays %v", got)
	}
	if got := doc.Base.Egress[0].Ports; !reflect.DeepEqual(got, []policy.Port{{Low: 443, High: 443}, {Low: 8000, High: 8100}}) {
		t.Errorf("ports are %v", got)
	}
	if got := doc.Characteristics[task.StartsProcesses]; !reflect.DeepEqual(got, policy.Values{"yes"}) {
		t.Errorf("true is read as %v", got)
	}
	for path, want := range map[string]int{"version": 2, "floors.CPL": 3, "base.egress[0]": 7, "deny.mounts[0]": 15, "tests[0]": 39} {
		if lines[path] != want {
			t.Errorf("%s is in line %d, want %d", path, lines[path], want)
		}
	}
}

func TestDecodeJSON(t *testing.T) {
	doc, lines, err := Decode("p.json", []byte("{\n\t\"version\": 1,\n\t\"floors\": {\"NET\": 2},\n\t\"limits\": {\"cpus\": 2, \"memory\": \"1g\"}\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if doc.Floors[task.NET] != 2 || doc.Limits.CPUs != 2 || lines["floors.NET"] != 3 {
		t.Errorf("read as %+v, floors.NET in line %d", doc, lines["floors.NET"])
	}
}

func TestDecodeRefuses(t *testing.T) {
	long := "version: 1\nrisky_files: [" + strings.Repeat("a", MaxFile) + "]\n"
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                {"", "p.yaml: the file holds nothing"},
		"only a comment":         {"# nothing\n", "the file holds nothing"},
		"null":                   {"~\n", "the file has no value"},
		"no version":             {"floors: {NET: 1}\n", "p.yaml: the version is missing"},
		"another version":        {"version: 2\n", "p.yaml:1: version 2 is not one"},
		"version as text":        {"version: \"1\"\n", "p.yaml:1: version is the text \"1\", not a whole number"},
		"version with zeros":     {"version: 01\n", "not a whole number"},
		"unknown key":            {"version: 1\nflors: {NET: 1}\n", "p.yaml:2: there is no key \"flors\"; did you mean floors?"},
		"unknown key below":      {"version: 1\nbase:\n  egres: []\n", "p.yaml:3: there is no key \"egres\" in base; did you mean egress?"},
		"unknown embedded":       {"version: 1\ndelegate:\n  project: {modes: ask}\n", "p.yaml:3: there is no key \"modes\" in delegate.project; did you mean mode?"},
		"duplicate key":          {"version: 1\nfloors: {NET: 1}\nfloors: {NET: 2}\n", "p.yaml:3: the key \"floors\" stands here a second time; the first is in line 2"},
		"duplicate axis":         {"version: 1\nfloors: {NET: 1, NET: 2}\n", "the key \"NET\" stands here a second time"},
		"duplicate by quotes":    {"version: 1\nfloors: {NET: 1, \"NET\": 2}\n", "a second time"},
		"anchor":                 {"version: 1\nfloors: &a {NET: 1}\n", "p.yaml:2: the anchor \"a\""},
		"alias":                  {"version: 1\nfloors: &a {NET: 1}\nraise: *a\n", "p.yaml:3: the alias \"a\""},
		"merge key":              {"version: 1\nfloors:\n  <<: {NET: 1}\n", "p.yaml:3: the merge key <<"},
		"custom tag":             {"version: 1\nfloors: !x {NET: 1}\n", "p.yaml:2: the tag \"!x\""},
		"known tag":              {"version: !!int \"1\"\n", "the tag \"!!int\""},
		"two documents":          {"version: 1\n---\nversion: 1\n", "the file holds more than one document"},
		"bytes":                  {"version: 1\n# \xff\n", "p.yaml:2: the text is not UTF-8"},
		"utf-16":                 {"\xff\xfev\x00e\x00", "not UTF-8"},
		"byte order mark":        {"\xef\xbb\xbfversion: 1\n", "p.yaml:1: the file begins with a byte order mark"},
		"long":                   {long, "longer than 1024 KiB"},
		"deep lists":             {"version: 1\nbase: " + strings.Repeat("[", 5000), "p.yaml:2: lists and mappings lie too deep"},
		"many values":            {"version: 1\nrisky_files: [" + strings.Repeat("a,", maxValues) + "a]\n", "holds more than 50000 values"},
		"deep blocks":            {"version: 1\nbase:\n" + deepBlocks(100), "lie too deep"},
		"a granted command":      {"version: 1\nbase:\n  env: [A]\n  commands: [{argv: [git]}]\n", "p.yaml:4: base.commands: commands are denied and never granted"},
		"a requested command":    {"version: 1\nrequest: {commands: [{argv: [git]}]}\n", "p.yaml:2: request.commands: commands are denied"},
		"a command in a ceiling": {"version: 1\ndelegate: {project: {commands: [{argv: [git]}]}}\n", "p.yaml:2: delegate.project.commands: commands are denied"},
		"path and command":       {"version: 1\ntools: {deny: [{path: /etc, command: [cat]}]}\n", "p.yaml:2: tools.deny[0]: path, command: no tool is given both"},
		"a host in a rule":       {"version: 1\ntools: {deny: [{tool: shell, host: a.example}]}\n", "p.yaml:2: tools.deny[0]: host, methods: they are about fetch, request_access alone"},
		"bomb":                   {"version: 1\na: &a [x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n", "p.yaml:2: the anchor \"a\""},
		"not yaml":               {"version: 1\nfloors: {NET: 1\n", "not YAML"},
		"tab":                    {"version: 1\nfloors:\n\tNET: 1\n", "p.yaml:3: not YAML"},
		"a list":                 {"- version: 1\n", "p.yaml:1: the file is a list, not a mapping"},
		"list key":               {"version: 1\n? [a]\n: b\n", "a key is a list or a mapping"},
		"empty value":            {"version: 1\nfloors:\n", "p.yaml:2: floors has no value"},
		"null in list":           {"version: 1\nrisky_files: [~]\n", "risky_files[0] has no value"},
		"wrong axis":             {"version: 1\nfloors: {NTE: 1}\n", "p.yaml:2: floors: there is no axis \"NTE\""},
		"level too high":         {"version: 1\nfloors: {NET: 9}\n", "p.yaml:2: floors: levels of NET go from 0 to 4"},
		"level below zero":       {"version: 1\nfloors: {NET: -1}\n", "levels of NET go from 0 to 4"},
		"characteristic":         {"version: 1\ncharacteristics: {migration: schema}\n", "did you mean migrations?"},
		"its value":              {"version: 1\ncharacteristics: {migrations: schemas}\n", "p.yaml:2: characteristics: migrations: \"schemas\" is none of none, data, schema, roles"},
		"several of one":         {"version: 1\ncharacteristics: {migrations: [data, schema]}\n", "takes one value"},
		"bool for text":          {"version: 1\nsuppress: [{rule: yes-1, reason: true}]\n", "suppress[0].reason is the truth value true, not a text: write it in quotes"},
		"number for text":        {"version: 1\nservices: {db: {driver: native, version: 17}}\n", "services.db.version is the number 17, not a text: write it in quotes"},
		"text for bool":          {"version: 1\nunattended: yes\n", "unattended is the text \"yes\", not true or false"},
		"word":                   {"version: 1\nnet: registrie\n", "did you mean registries?"},
		"scalar for list":        {"version: 1\nrisky_files: a\n", "risky_files is the text \"a\", not a list"},
		"duration":               {"version: 1\nlimits: {timeout: 90}\n", "has no unit"},
		"size":                   {"version: 1\nlimits: {memory: 2x}\n", "is no size above zero"},
		"zero size":              {"version: 1\nlimits: {memory: 0}\n", "is no size above zero"},
		"cpus":                   {"version: 1\nlimits: {cpus: .inf}\n", "is no number above 0"},
		"host with port":         {"version: 1\nbase: {egress: [{host: \"a.example:443\"}]}\n", "without port or scheme"},
		"host address":           {"version: 1\nbase: {egress: [{host: 10.0.0.1}]}\n", "write cidr"},
		"host hex":               {"version: 1\nbase: {egress: [{host: 0x7f.1}]}\n", "write cidr"},
		"star inside":            {"version: 1\nbase: {egress: [{host: \"a.*.example\"}]}\n", "a * stands only at the front"},
		"star alone":             {"version: 1\nbase: {egress: [{host: \"*\"}]}\n", "write ** for every host"},
		"neither":                {"version: 1\nbase: {egress: [{ports: [443]}]}\n", "base.egress[0]: it names neither host nor cidr"},
		"cidr bits":              {"version: 1\ndeny: {egress: [{cidr: 10.0.0.1/8}]}\n", "write 10.0.0.0/8"},
		"mapped cidr":            {"version: 1\ndeny: {egress: [{cidr: \"::ffff:10.0.0.0/104\"}]}\n", "write it as IPv4"},
		"port":                   {"version: 1\nbase: {egress: [{host: a.example, ports: [0]}]}\n", "is no port"},
		"relative mount":         {"version: 1\nbase: {mounts: [go/pkg]}\n", "is no absolute path"},
		"another home":           {"version: 1\nbase: {mounts: [~root/.ssh]}\n", "and of nobody else"},
		"dots":                   {"version: 1\nbase: {mounts: [/srv/../etc]}\n", "not in its plain form: write /etc"},
		"url path":               {"version: 1\nbase: {egress: [{host: a.example, path: /a%2fb}]}\n", "is no path of a URL"},
		"repo as url":            {"version: 1\ntrust: [{repo: \"https://github.com/acme/shop.git\", expires: 2027-01-01, reason: x}]\n", "as github.com/acme/shop"},
		"expiry":                 {"version: 1\ntrust: [{repo: github.com/acme/shop, reason: x}]\n", "trust[0]: it says no day on which it ends"},
		"reason":                 {"version: 1\ntrust: [{repo: github.com/acme/shop, expires: 2027-01-01}]\n", "trust[0]: it gives no reason"},
		"empty rule":             {"version: 1\ntools: {deny: [{}]}\n", "tools.deny[0]: it names nothing"},
		"hook both":              {"version: 1\ndecision_hook: {exec: [/bin/true], http: \"https://a.example\"}\n", "exec or http"},
		"hook relative":          {"version: 1\ndecision_hook: {exec: [opa]}\n", "absolute path"},
		"hook plain http":        {"version: 1\ndecision_hook: {http: \"http://a.example\"}\n", "without TLS"},
		"lower trust":            {"version: 1\nlower: [{characteristic: code_trust, value: trusted, repo: a.example/b, expires: 2027-01-01, reason: x}]\n", "write it in trust"},
		"lower concurrency":      {"version: 1\nlower: [{characteristic: concurrency, value: single, repo: a.example/b, expires: 2027-01-01, reason: x}]\n", "is computed"},
		"driver":                 {"version: 1\nservices: {db: {driver: docker}}\n", "services.db: driver \"docker\" is none of native"},
		"expect":                 {"version: 1\ntests: [{env: A, expect: yes}]\n", "tests[0]: expect"},
		"two questions":          {"version: 1\ntests: [{env: A, credential: b, expect: deny}]\n", "one question"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Decode("p.yaml", []byte(c.text))
			if err == nil {
				t.Fatal("it was read")
			}
			if task.CodeOf(err) != task.CodePolicy || task.CodeOf(err).ExitStatus() != 6 || task.HintOf(err) == "" {
				t.Errorf("code %s, hint %q", task.CodeOf(err), task.HintOf(err))
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %s\nwant %s", err, c.want)
			}
		})
	}
}

func deepBlocks(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i+1) + "a:\n")
	}
	return b.String()
}

// Several mistakes are told at once, but not all of a thousand.
func TestDecodeTellsSeveral(t *testing.T) {
	_, _, err := Decode("p.yaml", []byte("version: 1\nflors: {}\nfloors: {NET: 9}\nnet: all\n"))
	if err == nil || !strings.Contains(err.Error(), "p.yaml:2:") || !strings.Contains(err.Error(), "p.yaml:3:") || !strings.Contains(err.Error(), "p.yaml:4:") {
		t.Errorf("told: %v", err)
	}
	_, _, err = Decode("p.yaml", []byte("version: 1\n"+strings.Repeat("x", 1)+": 1\nbase: {mounts: ["+strings.Repeat("a,", 1000)+"a]}\n"))
	if err == nil || strings.Count(err.Error(), "\n") > maxProblems {
		t.Errorf("told: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("{\"version\": 1, \"floors\": {\"NET\": 2}}"))
	for _, s := range []string{"version: 1\nfloors: &a {NET: 1}\nraise: *a\n", "- a\n- b: [", "version: 1\n---\n", "? a\n: b\n", "%YAML 1.2\n---\nversion: 1\n", "\"\\u0000\": |\n  a\n", "<<: {}\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, lines, err := Decode("f", data)
		if (doc == nil) != (err != nil) {
			t.Fatalf("document %v, error %v", doc, err)
		}
		if err != nil {
			if task.CodeOf(err) != task.CodePolicy {
				t.Fatalf("code %s: %v", task.CodeOf(err), err)
			}
			return
		}
		if doc.Version != policy.Version {
			t.Fatalf("version %d was read", doc.Version)
		}
		for path, n := range lines {
			if n < 1 || n > 1+strings.Count(string(data), "\n")+strings.Count(string(data), "\r")+strings.Count(string(data), "\u2028")+strings.Count(string(data), "\u2029")+strings.Count(string(data), "\u0085") {
				t.Fatalf("%s is in line %d", path, n)
			}
		}
	})
}
