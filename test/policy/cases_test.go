//go:build linux

package policy

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

var update = flag.Bool("update", false, "write the part of docs/policy.md that is made from the tables")

// ambiguous is one question to which a reader could give two answers. What is
// decided for a command is held against the real program where a plan shows it;
// elsewhere says which test holds the answer, or what does not exist yet.
type ambiguous struct {
	n                int
	question, answer string
	files            string   // NAME=TEXT of the repository; for most none
	user             string   // the user's policy
	args             []string // of plan; nil: elsewhere
	rows             string   // that count, beside others
	need             string   // AXIS=LEVEL … as required
	exit             int
	elsewhere        string
}

var ambiguities = []ambiguous{
	{1, "Who says that a command is trusted?", "`trusted_checks` of the operator, by program, first words and digest. Every other command can be anything: row R3.", "", "", []string{"--", "gofmt", "-l", "."}, "R3", "FS=2 KRN=1", 0, ""},
	{2, "Are tests after an agent's edits trusted?", "No: they run generated code. R3.", "", "", []string{"--", "go", "test", "./..."}, "R3", "PRC=2", 0, ""},
	{3, "Is a linter a check?", "Only one that loads no code of the repository, and only when the operator lists it. R3 otherwise.", "", "", []string{"--", "npx", "eslint", "."}, "R3", "PRC=2", 0, ""},
	{4, "May host git read a task's repository?", "With hooks, filters, monitors and pagers off, and never inside a `.git` that the task can write.", "", "", nil, "", "", 0, "test/results, TestPlanted"},
	{5, "Is an install without scripts harmless?", "No: R3. The network stays closed until a registry is granted.", "", "", []string{"--", "npm", "ci", "--ignore-scripts"}, "R3", "NET=1", 0, ""},
	{6, "Does reading from a cloud count?", "Yes: R6, credentials that end and are for the task. What changes something there is asked about besides.", "", "version: 1\ncharacteristics: {external_access: [read], credentials: [dev]}\n", []string{"--", "true"}, "R6", "CRD=2 NET=2", 0, ""},
	{7, "Two rows on different axes: which is stronger?", "Neither: per axis the higher level counts.", "", "version: 1\ncharacteristics: {mutable_state: [db], external_access: [read]}\n", []string{"--", "true"}, "R3 R4 R6", "SVC=1 CRD=2 NET=2 PRC=2", 3, ""},
	{8, "An automatic run over night, on one's own repository?", "By the letter R5. Who decides may accept KRN 1 for the repository beforehand, under `acceptances`, with an end.", "", "version: 1\ncharacteristics: {supervision: broad-unsupervised}\n", []string{"--unattended", "--", "true"}, "R5", "KRN=3", 3, ""},
	{9, "When is a task unwatched for long?", "When it is declared, or when nobody is asked and no person did anything for `unwatched_after`. A missing terminal alone is asynchronous: R2.", "", "", []string{"--", "true"}, "R2 R3", "KRN=1", 0, ""},
	{10, "A machine of its own is needed and there is none?", "Stop. A container is not taken instead.", "", "", []string{"--need", "KRN=3", "--", "true"}, "R3", "KRN=3", 3, ""},
	{11, "The developer works in the same checkout?", "That overlaps. The checkout itself is given to one task only, and only when it is trusted, watched and short.", "", "", []string{"--source", "checkout", "--", "true"}, "R3", "SRC=1", 3, ""},
	{12, "A worktree whose common git folder is mounted?", "SRC 1. Masked, as the strategy `worktree` does it, SRC 2.", "", "", []string{"--source", "worktree", "--", "true"}, "R3", "SRC=1", 0, ""},
	{13, "Is an SQLite file a service?", "Not in the task's own files.", "a.db=x", "", []string{"--", "true"}, "R3", "PRC=2", 0, ""},
	{14, "Reading from a shared database?", "SVC 1, and none without a role that only reads. Personal data besides: R6.", "", "version: 1\ncharacteristics: {mutable_state: [db], personal_data: true}\n", []string{"--", "true"}, "R4 R6", "SVC=1", 3, "services with roles do not exist yet"},
	{15, "A schema per task on a shared server?", "SVC 1, if the role owns nothing else and is no superuser; what is not probed is 0.", "", "version: 1\ncharacteristics: {mutable_state: [db]}\n", []string{"--", "true"}, "R4", "SVC=1", 3, "services do not exist yet: the level is 0"},
	{16, "A cache that is shared?", "For reading it is allowed with `--ro` and listed. For writing there is no way.", "", "", []string{"--ro", "TMP", "--", "true"}, "R3", "FS=2", 0, ""},
	{17, "docker build inside a task?", "R3, and never the socket. The host's own verbs for it do not exist yet.", "", "", []string{"--", "docker", "build", "."}, "R3", "CPL=2", 0, "the verbs do not exist yet"},
	{18, "A rootless container socket?", "It is authority all the same: CPL 0. It stays away.", "", "", []string{"--", "podman", "ps"}, "R3", "CPL=2", 0, "the audit of others' containers does not exist yet"},
	{19, "Docker Desktop's machine?", "KRN 3 against the host and 1 between tasks; the socket is CPL 0 as ever.", "", "", nil, "", "", 0, "no such backend yet"},
	{20, "The model's interface?", "A key lent by the host is CRD 3. A key passed with `--env` is CRD 1 and a finding.", "", "", []string{"--env", "KEY=v", "--", "true"}, "R3", "CRD=1", 0, ""},
	{21, "Tools of the harness that run outside?", "They are listed as not isolated, in every plan.", "", "", nil, "", "", 0, "TestPlanTells"},
	{22, "Subagents?", "A child has at least its parent's levels and at most its grants, or is refused.", "", "", nil, "", "", 0, "internal/policy, TestWithin, TestChildRefused"},
	{23, "A task is resumed and the policy has changed?", "It is decided anew; what is missing then refuses the resume.", "", "", nil, "", "", 0, "internal/boundary decides with each resume"},
	{24, "A detector contradicts a declaration?", "Both count. Who decides may switch a rule off by its id, with a reason.", "", "version: 1\ncharacteristics: {migrations: none}\n", []string{"--", "npx", "prisma", "migrate", "deploy"}, "R4 R4/schema", "SVC=2", 3, ""},
	{25, "What cannot be measured?", "Is level 0, and said to be unmeasured.", "", "", nil, "", "", 0, "internal/policy, TestMeet"},
	{26, "A sandbox elsewhere?", "KRN 4, and the source leaves the machine: R6 for private code.", "", "version: 1\ncharacteristics: {externally_visible: true}\n", []string{"--", "true"}, "R6 R6/mutation", "CRD=2", 0, "no such backend yet"},
	{27, "A dev container's initializeCommand?", "Never run: it is code of the repository on the host.", `.devcontainer/devcontainer.json={"initializeCommand":"sh canary.sh"}`, "", []string{"--", "true"}, "R3", "PRC=2", 0, "the audit does not exist yet"},
	{28, "A debugger?", "`--grant ptrace` and no more: PRC 2 stays.", "", "", []string{"--grant", "ptrace", "--", "true"}, "R3", "PRC=2", 0, ""},
	{29, "A port for people?", "Published on the loopback address by the host; on all addresses it would be a finding.", "", "", nil, "", "", 0, "publishing does not exist yet"},
	{30, "A record that is written inside?", "EVD 1 at best. Only the host's counts, which is EVD 2.", "", "", []string{"--", "true"}, "R3", "EVD=2", 0, ""},
	{31, "CI needs an acceptance?", "An entry under `acceptances` of who decides, with an end. Nobody can accept at that moment.", "", "version: 1\nacceptances: [{axis: KRN, level: 1, repo: REPO, expires: 2099-01-01, reason: CI}]\n", []string{"--unattended", "--need", "KRN=3", "--", "true"}, "R3", "KRN=3", 0, ""},
	{32, "An agent edits the policy file?", "The file of the base commit counts; the changed one can only tighten, and trust ends.", ".caisson.yaml=version: 1\nraise: {NET: 2}\n", "", []string{"--", "true"}, "R3", "NET=2", 0, "TestNobodyLoosens"},
	{33, "A kept task whose server still runs?", "Its processes end; its files stay.", "", "", nil, "", "", 0, "test/lifecycle"},
	{34, "Time limits while somebody debugs?", "Raising one is for the person who opens the task, never for the agent.", "", "", []string{"--timeout", "1h", "--", "true"}, "R3", "RES=1", 0, "pausing does not exist yet"},
}

// TestAmbiguous holds each answer against the program.
func TestAmbiguous(t *testing.T) {
	id := harness.NewIdentity(t, "user", harness.UserOf())
	for i, c := range ambiguities {
		if c.n != i+1 {
			t.Fatalf("case %d stands at %d", c.n, i+1)
		}
		if c.args == nil {
			if c.elsewhere == "" {
				t.Errorf("case %d is tested nowhere", c.n)
			}
			continue
		}
		t.Run(fmt.Sprint(c.n), func(t *testing.T) {
			files := map[string]string{}
			if name, text, ok := strings.Cut(c.files, "="); ok {
				files[name] = text
			}
			p := newPlace(t, id, files)
			p.userPolicy(strings.ReplaceAll(c.user, "REPO", p.repo))
			defer p.userPolicy("")
			args := slices.Clone(c.args)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "TMP", p.Tmp)
			}
			if r := p.run(append([]string{"plan"}, args...)...); r.Exit != c.exit {
				t.Errorf("want %d: %v", c.exit, r)
			}
			got := p.planned(args...)
			for _, row := range strings.Fields(c.rows) {
				if !slices.Contains(got.Rows, row) {
					t.Errorf("row %s does not count: %v, %v", row, got.Rows, got.Facts)
				}
			}
			for _, need := range strings.Fields(c.need) {
				axis, level, _ := strings.Cut(need, "=")
				if have := fmt.Sprint(got.required(axis)); have != level {
					t.Errorf("needs %s=%s, want %s", axis, have, level)
				}
			}
			p.quiet("a plan")
		})
	}
}

const (
	casesBegin = "<!-- cases: made from test/policy/cases_test.go by `go test ./test/policy -run CasesDocument -update` -->\n"
	casesEnd   = "<!-- end of cases -->\n"
)

func TestCasesDocument(t *testing.T) {
	const doc = "../../docs/policy.md"
	b, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), casesBegin)
	_, after, ok2 := strings.Cut(rest, casesEnd)
	if !ok || !ok2 {
		t.Fatal("docs/policy.md has no place for the cases")
	}
	var s strings.Builder
	s.WriteString("\n| | question | answer |\n|---|---|---|\n")
	for _, c := range ambiguities {
		note := ""
		if strings.Contains(c.elsewhere, "yet") {
			note = " *Not whole: " + c.elsewhere + ".*"
		}
		fmt.Fprintf(&s, "| %d | %s | %s%s |\n", c.n, c.question, c.answer, note)
	}
	s.WriteString("\n")
	want := before + casesBegin + s.String() + casesEnd + after
	if *update {
		if err := os.WriteFile(doc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(b) {
		t.Error("docs/policy.md does not have the cases; look at the change, then: go test ./test/policy -run CasesDocument -update")
	}
}

// TestPlanTells: what stays outside of every boundary is said in every plan (case 21).
func TestPlanTells(t *testing.T) {
	id := harness.NewIdentity(t, "user", harness.UserOf())
	p := newPlace(t, id, nil)
	if out := p.OK(t, p.repo, "plan"); !strings.Contains(out, "programs outside the boundary: editor, agent, its servers and hooks") {
		t.Error(out)
	}
}

// TestNobodyLoosens: what a repository's file says is the repository's, at the
// base or lying in the checkout: it tightens, or it is an error, or nothing comes
// of it. The control is the same statement of who decides.
func TestNobodyLoosens(t *testing.T) {
	id := harness.NewIdentity(t, "user", harness.UserOf())
	p := newPlace(t, id, nil)
	defer p.userPolicy("")
	before := p.planned("--", "true")
	same := func(what string, r *plan) {
		t.Helper()
		for _, l := range before.Levels {
			if r.required(l.Axis) < l.Required {
				t.Errorf("%s: %s is %d, was %d", what, l.Axis, r.required(l.Axis), l.Required)
			}
		}
		if len(r.Grants) > len(before.Grants) || r.Limits.MemoryBytes > before.Limits.MemoryBytes {
			t.Errorf("%s: %+v", what, r)
		}
	}
	for _, c := range []struct {
		line string
		exit int // of a plan
	}{
		{"floors: {NET: 0}", 6}, {"base: {env: [A]}", 6}, {"backends: {allowed: [host]}", 6}, {"suppress: [{rule: MIG-01, reason: x}]", 6}, {"allow_trust: true", 6},
		{"lower: [{characteristic: executes, value: none, repo: REPO, expires: 2099-01-01, reason: x}]", 6}, {"trust: [{repo: REPO, expires: 2099-01-01, reason: x}]", 6},
		{"acceptances: [{axis: KRN, level: 0, repo: REPO, expires: 2099-01-01, reason: x}]", 6}, {"acceptance: {max_ttl: 900h}", 6}, {"unwatched_after: 100h", 6},
		{"trusted_checks: [{argv: [make], executes: none}]", 6}, {"decision_hook: {exec: [/bin/true]}", 6}, {"budget: {tasks: 1000}", 6}, {"tools: {allow: [{tool: \"*\"}]}", 6},
		{"characteristics: {executes: none, supervision: supervised}", 0}, {"raise: {NET: 0}", 0}, {"limits: {memory: 900g}", 0}, {"net: open", 0}, {"unattended: false", 0},
		{"request: {egress: [{host: \"**\"}], env: [\"*\"], mounts: [/]}", 0}, {"raise: {KRN: 3}", 3},
	} {
		text := "version: 1\n" + strings.ReplaceAll(c.line, "REPO", p.repo) + "\n"
		for _, at := range []string{"lying in the checkout", "at the base"} {
			p.Write(t, p.repo+"/.caisson.yaml", text, 0o644)
			if at == "at the base" {
				p.Git(t, p.repo, "add", "-A")
				p.Git(t, p.repo, "commit", "-q", "--allow-empty", "-m", c.line)
			}
			r := p.run("plan", "--", "true")
			if r.Exit != c.exit || c.exit == 6 && !(strings.Contains(r.Stderr, ".caisson.yaml:2: ") && strings.Contains(r.Stderr, "hint: ")) {
				t.Errorf("%s, %s: want %d: %v", c.line, at, c.exit, r)
			}
			if c.exit != 6 {
				same(c.line+", "+at, p.planned("--", "true"))
			}
		}
		p.Git(t, p.repo, "rm", "-q", ".caisson.yaml")
		p.Git(t, p.repo, "commit", "-q", "-m", "without")
	}
	// A file that tools load into the environment: alone nothing; with the variable set, a refusal.
	p.Write(t, p.repo+"/.env", "CAISSON_NEED=NET=0\nCAISSON_BACKEND=host\n", 0o644)
	same(".env", p.planned("--", "true"))
	if r := p.with([]string{"CAISSON_NEED=NET=1"}, "run", "--", "sh", "canary.sh"); r.Exit != 125 || !strings.Contains(r.Stderr, ".env also defines it") {
		t.Error(r)
	}
	p.quiet("a variable of the workspace")
	// Control.
	p.userPolicy("version: 1\nlower: [{characteristic: executes, value: none, repo: " + p.repo + ", expires: 2099-01-01, reason: x}]\n")
	if got := p.planned("--", "true"); slices.Contains(got.Rows, "R3") || got.required("FS") != 0 {
		t.Errorf("who decides lowered nothing: %v", got.Rows)
	}
}
