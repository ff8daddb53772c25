package detect

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// Starter writes a first .caisson.yaml from what Scan found. All of it but the
// version is commented out: a person takes away the # of what is true.
func Starter(facts []task.Fact) []byte {
	var b bytes.Buffer
	b.WriteString(`# What tasks in this repository need. caisson reads this file at the commit a task starts from.
# It can only ask for more protection, and request what an operator's or a user's policy lets it
# have; it never loosens anything. Lines that begin with "#" have no effect: take the sign away
# where a line is true for every task here. "caisson plan" shows what comes of it.
version: 1
`)
	b.WriteString("\n# What is true of a task here. Each line only adds risk, so each can ask for a stronger boundary.\n# characteristics:\n")
	any := false
	for _, c := range task.Characteristics {
		var best *task.Fact
		var kinds []string
		for i := range facts {
			f := &facts[i]
			if f.What != c || f.Value == task.Unknown || c.Risk(f.Value) <= 0 || !slices.Contains(c.Values(), f.Value) {
				continue
			}
			if !slices.Contains(kinds, f.Value) {
				kinds = append(kinds, f.Value)
			}
			if best == nil || c.Risk(f.Value) > c.Risk(best.Value) {
				best = f
			}
		}
		if best == nil {
			continue
		}
		any = true
		value := best.Value
		if c == task.MutableState {
			slices.SortFunc(kinds, func(a, b string) int { return c.Risk(a) - c.Risk(b) })
			value = "[" + strings.Join(kinds, ", ") + "]"
		}
		fmt.Fprintf(&b, "#   %s: %s   # %s (%s)\n", c, value, comment(best.Evidence), best.Rule)
	}
	if !any {
		b.WriteString("#   executes: repo-defined\n")
	}
	if s := starterServices(facts); s != "" {
		b.WriteString("\n# Services that each task gets for itself, instead of sharing one.\n# services:\n" + s)
	}
	if s := starterChecks(facts); s != "" {
		b.WriteString("\n# Commands that verify a result, by name: caisson check TASK NAME.\n# checks:\n" + s)
	}
	b.WriteString(`
# Hosts that a task may reach, where the policy above this file allows to ask for them.
# request:
#   egress:
#     - {host: registry.example.org, ports: [443]}

# Files that a reviewer must see before a change of them reaches a checkout.
# risky_files: ["deploy/**", "internal/auth/**"]
`)
	return b.Bytes()
}

// comment makes a text safe behind a #: one line, without control characters.
func comment(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 {
			return '?'
		}
		return r
	}, s)
}

// starterKinds are the kinds of services by what an image's name contains.
var starterKinds = [][2]string{{"postgis", "postgres"}, {"postgres", "postgres"}, {"mariadb", "mysql"}, {"mysql", "mysql"}, {"valkey", "redis"}, {"redis", "redis"}, {"minio", "s3"}, {"mailhog", "smtp"}, {"mailpit", "smtp"}, {"nats", "nats"}}

// starterServices proposes a service for each image of a known kind.
func starterServices(facts []task.Fact) string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, f := range facts {
		if f.Rule != "SVC-01" && f.Rule != "SVC-02" {
			continue
		}
		image := f.Subject
		if i := strings.IndexByte(image, '('); i >= 0 {
			image = strings.TrimSuffix(image[i+1:], ")")
		} else if i := strings.LastIndexByte(image, ' '); i >= 0 {
			image = image[i+1:]
		}
		base, version, _ := strings.Cut(path.Base(image), ":")
		for _, k := range starterKinds {
			if !strings.Contains(strings.ToLower(base), k[0]) || seen[k[1]] {
				continue
			}
			seen[k[1]] = true
			v := ""
			if n := strings.IndexFunc(version, func(r rune) bool { return (r < '0' || r > '9') && r != '.' }); n > 0 {
				version = version[:n]
			} else if n == 0 {
				version = ""
			}
			if version = strings.Trim(version, "."); version != "" {
				v = fmt.Sprintf(", version: %q", version)
			}
			fmt.Fprintf(&b, "#   %s: {driver: native, kind: %s%s}   # %s\n", k[1], k[1], v, comment(f.Evidence))
			break
		}
	}
	return b.String()
}

// starterChecks proposes the usual command of each language's tests.
func starterChecks(facts []task.Fact) string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, f := range facts {
		if f.Rule != "INS-01" && f.Rule != "INS-02" {
			continue
		}
		file, _, _ := strings.Cut(f.Evidence, ":")
		for _, c := range []struct{ file, name, run string }{
			{"go.mod", "go", "[go, test, ./...]"}, {"go.sum", "go", "[go, test, ./...]"}, {"package.json", "npm", "[npm, test]"}, {"Cargo.toml", "cargo", "[cargo, test]"}, {"Cargo.lock", "cargo", "[cargo, test]"},
			{"pyproject.toml", "python", "[python3, -m, pytest]"}, {"requirements.txt", "python", "[python3, -m, pytest]"}, {"Gemfile", "ruby", "[bundle, exec, rake, test]"}, {"pom.xml", "maven", "[mvn, -B, verify]"}, {"build.gradle", "gradle", "[./gradlew, check]"}, {"mix.exs", "elixir", "[mix, test]"}, {"composer.json", "php", "[vendor/bin/phpunit]"},
		} {
			if file == c.file && !seen[c.name] {
				seen[c.name] = true
				fmt.Fprintf(&b, "#   - {name: %s, run: %s}\n", c.name, c.run)
			}
		}
	}
	return b.String()
}

// AgentsMark begins the section that Agents writes, so that it is found again.
const AgentsMark = "<!-- caisson: boundaries -->"

// Agents is the section for AGENTS.md. It asks; the boundary enforces.
func Agents() []byte {
	return []byte(AgentsMark + `
## Boundaries

Before you run anything, say which of these hold for the task, and work behind the smallest boundary that covers all of them. The text asks you to stop; it holds nobody back: what
enforces is the boundary that caisson makes and measures.

| When | Work in |
|---|---|
| short, watched, one task at a time, own code, easy to undo | the checkout |
| nobody watches, or several tasks touch the same files | a branch and a worktree, or a clone, of its own |
| code of the repository or written by you runs, servers start, dependencies differ, state is kept while it runs | that, and a task boundary of its own: processes, files, network |
| a database, a queue, a bucket or a cache is changed, or a schema is migrated | that, and services of the task's own |
| unknown or hostile code, the kernel, a device, or long work that nobody watches | a virtual machine, or a machine elsewhere, with as little of this one as possible |
| accounts, credentials, personal data, something others see, something that cannot be undone | whatever is needed above, with credentials for this task alone and a person's yes to each such action |

- Several rows add up. More than one can hold, and none of them lifts another.
- ` + "`caisson plan -- COMMAND`" + ` says what a command needs and what is missing. When something is missing, stop and report it: the boundary, why, and what stays shared. Do not look for a way around.
- Never reach for a runtime's socket, a credential of the person, or a shared service because it is there.
- A choice is no permission: installing, publishing, pushing, migrating and deleting outside the task are asked for, each time.
- Leave what you did to be looked at: the change, the output of the tests, what was approved. Clean up only what this task made.
<!-- caisson: end -->
`)
}
