package detect

import (
	"strings"
	"testing"
)

// detectorCases are, for each rule, trees in which it must find something, as
// "VALUE PLACE", and trees in which it must find nothing.
var detectorCases = []struct {
	rule string
	tree files
	want string // empty: the rule finds nothing
}{
	{"INS-01", files{"web/pnpm-lock.yaml": ""}, "yes web/pnpm-lock.yaml"},
	{"INS-01", files{"vendor/x/go.sum": "", "lock.txt": ""}, ""},
	{"INS-02", files{"package.json": "{\n \"dependencies\": {\"left-pad\": \"1\"}}"}, "yes package.json:2"},
	{"INS-02", files{"package.json": "{\n// a comment\n\"devDependencies\": {\"left-pad\": \"1\",},}"}, "yes package.json:3"},
	{"INS-02", files{"package.json": `{"name":"x","dependencies":{}}`}, ""},
	{"INS-02", files{"go.mod": "module x\n\nrequire example.org/y v1.0.0\n"}, "yes go.mod:3"},
	{"INS-02", files{"go.mod": "module x\n\ngo 1.26\n"}, ""},
	{"INS-02", files{"requirements-dev.txt": "# none\n-r other.txt\nflask==2\n"}, "yes requirements-dev.txt:3"},
	{"INS-02", files{"Gemfile": "source 'x'\ngem 'rails'\n"}, "yes Gemfile:2"},
	{"INS-02", files{"pom.xml": "<project>\n<dependencies>\n<dependency>"}, "yes pom.xml:3"},
	{"INS-02", files{"composer.json": `{"require":{"a/b":"1"}}`}, "yes composer.json:1"},
	{"INS-02", files{"package.json": "-> ../x"}, "unknown package.json"},
	{"INS-02", files{"package.json": "{"}, "unknown package.json"},
	{"INS-02", files{"package.json": "\xff\xfe"}, "unknown package.json"},
	{"INS-02", files{"package.json": strings.Repeat(" ", maxFile+1)}, "unknown package.json"},
	{"INS-03", files{"package.json": "{\"scripts\":{\n\"postinstall\": \"node x.js\"}}"}, "repo-defined package.json:2"},
	{"INS-03", files{"composer.json": "{\"scripts\":{\"post-install-cmd\":[\n\"./x\"]}}"}, "repo-defined composer.json:1"},
	{"INS-03", files{"package.json": `{"scripts":{"test":"x"}}`}, ""},
	{"INS-04", files{"package.json": "{\"pnpm\":{\n\"onlyBuiltDependencies\":[\"esbuild\"]}}"}, "repo-defined package.json:2"},
	{"INS-04", files{"pnpm-workspace.yaml": "packages: []\nonlyBuiltDependencies:\n  - sharp\n"}, "repo-defined pnpm-workspace.yaml:3"},
	{"INS-04", files{".npmrc": "# x\nignore-scripts = false\n"}, "repo-defined .npmrc:2"},
	{"INS-04", files{".npmrc": "ignore-scripts=true\nsave-exact=true\n"}, ""},
	{"INS-05", files{"a/setup.py": "", "b/setup.py": ""}, "repo-defined a/setup.py; repo-defined b/setup.py"},
	{"INS-05", files{"build.rs": ""}, "repo-defined build.rs"},
	{"INS-05", files{"tests/conftest.py": ""}, "repo-defined tests/conftest.py"},
	{"INS-05", files{"src/build.go": "", "setup.cfg": ""}, ""},
	{"INS-06", files{".npmrc": "//registry.example.org/:_authToken=npm_hunter2\n"}, "dev .npmrc:1"},
	{"INS-06", files{".pypirc": "[pypi]\npassword: hunter2\n"}, "dev .pypirc:2"},
	{"INS-06", files{".npmrc": "fund=false\n"}, ""},
	{"INS-07", files{".npmrc": "registry=https://npm.example.org/\n"}, "read .npmrc:1"},
	{"INS-07", files{".npmrc": "registry=\n"}, ""},

	{"SVC-01", files{"compose.yaml": "services:\n  db:\n    image: postgres:16\n"}, "db compose.yaml:3"},
	{"SVC-01", files{"docker-compose.dev.yml": "redis:\n  image: redis\n"}, "cache docker-compose.dev.yml:2"},
	{"SVC-01", files{"compose.yaml": "x-i: &i {image: 'rabbitmq:3'}\nservices:\n  q:\n    <<: *i\n"}, "queue compose.yaml:1"},
	{"SVC-01", files{"compose.yaml": "services:\n  s3:\n    image: quay.io/minio/minio\n"}, "bucket compose.yaml:3"},
	{"SVC-01", files{"compose.yaml": "services:\n  a:\n    image: ${IMG:-localstack/localstack:3}\n"}, "emulator compose.yaml:3"},
	{"SVC-01", files{"compose.yaml": "services:\n  a:\n    image: x\n    extends: {file: b.yaml}\n"}, "unknown compose.yaml:3"},
	{"SVC-01", files{"compose.yaml": "a: b: c"}, "unknown compose.yaml"},
	{"SVC-01", files{"compose.yaml": "-> /etc/compose.yaml"}, "unknown compose.yaml"},
	{"SVC-01", files{"compose.yaml": "services:\n  web:\n    image: nginx\n", "composer.yaml": "a: 1"}, ""},
	{"SVC-02", files{".github/workflows/ci.yml": "jobs:\n  t:\n    services:\n      pg:\n        image: postgres\n"}, "db .github/workflows/ci.yml:5"},
	{"SVC-02", files{".gitlab-ci.yml": "test:\n  services:\n    - name: redis:7\n    - mysql:8\n"}, "cache .gitlab-ci.yml:3; db .gitlab-ci.yml:4"},
	{"SVC-02", files{".circleci/config.yml": "jobs:\n  a:\n    docker:\n      - image: cimg/go\n      - image: circleci/postgres:9\n"}, "db .circleci/config.yml:5"},
	{"SVC-02", files{".travis.yml": "services:\n  - mongodb\n"}, "db .travis.yml:2"},
	{"SVC-02", files{".github/workflows/ci.yml": "jobs:\n  t:\n    steps: []\n", "workflows/x.yml": "services: {pg: {image: postgres}}"}, ""},
	{"SVC-03", files{".env": "A=1\nDATABASE_URL=postgres://u:hunter2@localhost:5432/dev\n"}, "db .env:2"},
	{"SVC-03", files{".env.production": "DATABASE_URL=postgres://u:hunter2@db.example.org/x\n"}, "db .env.production:1; external .env.production:1"},
	{"SVC-03", files{".env.example": "REDIS_HOST=cache\n"}, "cache .env.example:1"},
	{"SVC-03", files{"config/database.yml": "production:\n  url: mysql2://u:p@10.0.0.5/x\n"}, "db config/database.yml:2; external config/database.yml:2"},
	{"SVC-03", files{".env": "PORT=3000\nNAME=x\n"}, ""},
	{"SVC-04", files{"package.json": "{\"dependencies\":{\n\"pg\":\"8\"}}"}, "db package.json:2"},
	{"SVC-04", files{"go.mod": "module x\nrequire (\n\tgithub.com/jackc/pgx/v5 v5.1.0\n)"}, "db go.mod:3"},
	{"SVC-04", files{"pyproject.toml": "dependencies = [\n \"redis>=5\",\n]"}, "cache pyproject.toml:2"},
	{"SVC-04", files{"Cargo.toml": "[dependencies]\nsqlx = \"0.7\"\n"}, "db Cargo.toml:2"},
	{"SVC-04", files{"package.json": `{"dependencies":{"pgp":"8"}}`, "go.mod": "module example.org/redisx\n"}, ""},
	{"SVC-05", files{"db/dev.sqlite3": ""}, "db db/dev.sqlite3"},
	{"SVC-05", files{"Thumbs.db": ""}, ""},
	{"SVC-06", files{"firebase.json": "{\n\"emulators\":{}}"}, "emulator firebase.json:2"},
	{"SVC-06", files{"supabase/config.toml": ""}, "emulator supabase/config.toml"},
	{"SVC-06", files{"firebase.json": `{"hosting":{}}`}, ""},
	{"SVC-07", files{"compose.yaml": "services: {}\nvolumes:\n  data: {}\n"}, "yes compose.yaml:3"},
	{"SVC-07", files{"compose.yaml": "services: {}\n"}, ""},

	{"MIG-01", files{"db/migrate/20240101_x.rb": "", "db/migrate/20240102_y.rb": ""}, "schema db/migrate/20240101_x.rb"},
	{"MIG-01", files{"app/migrations/0001_initial.py": ""}, "schema app/migrations/0001_initial.py"},
	{"MIG-01", files{"alembic/versions/ab12_x.py": ""}, "schema alembic/versions/ab12_x.py"},
	{"MIG-01", files{"sql/migration/V1__init.sql": "\nCREATE ROLE app;\n"}, "schema sql/migration/V1__init.sql; roles sql/migration/V1__init.sql:2"},
	{"MIG-01", files{"prisma/migrations/20240101_init/migration.sql": "", "src/migrations/1690-Add.ts": ""}, "schema prisma/migrations/20240101_init/migration.sql; schema src/migrations/1690-Add.ts"},
	{"MIG-01", files{"lib/migrations/Loader.js": "", "app/migrations/__init__.py": ""}, ""},
	{"MIG-01", files{"internal/migrate/migrate.go": "", "migrations.md": ""}, ""},
	{"MIG-02", files{"prisma/schema.prisma": ""}, "schema prisma/schema.prisma"},
	{"MIG-02", files{"alembic.ini": ""}, "schema alembic.ini"},
	{"MIG-02", files{"knex.md": ""}, ""},
	{"MIG-03", files{"init.sql": "-- x\nCREATE TABLE a (b int);\nCREATE EXTENSION pgcrypto;\nINSERT INTO a VALUES (1);\n"}, "data init.sql:4; schema init.sql:2; roles init.sql:3"},
	{"MIG-03", files{"q.sql": "SELECT 1;\n"}, ""},

	{"CON-01", files{"Dockerfile": "FROM x\n"}, "yes Dockerfile"},
	{"CON-01", files{"build/app.Dockerfile": "FROM x\n"}, "yes build/app.Dockerfile"},
	{"CON-01", files{"file.docker.txt": ""}, ""},
	{"CON-02", files{"go.mod": "require github.com/testcontainers/testcontainers-go v0.3\n"}, "yes go.mod:1"},
	{"CON-02", files{"package.json": `{"devDependencies":{"dockerode":"1"}}`}, "yes package.json:1"},
	{"CON-02", files{"pom.xml": "<dependency>\n<artifactId>testcontainers</artifactId>"}, "yes pom.xml:2"},
	{"CON-02", files{"package.json": `{"devDependencies":{"jest":"1"}}`}, ""},
	{"CON-03", files{"compose.yaml": "services:\n  a:\n    image: x\n    volumes:\n      - /var/run/docker.sock:/var/run/docker.sock\n"}, "yes compose.yaml:5"},
	{"CON-03", files{".gitlab-ci.yml": "services: ['docker:24-dind']\n"}, "yes .gitlab-ci.yml:1"},
	{"CON-03", files{".devcontainer/devcontainer.json": `{"features":{"ghcr.io/devcontainers/features/docker-in-docker:2":{}}}`}, "yes .devcontainer/devcontainer.json:1"},
	{"CON-03", files{"compose.yaml": "services:\n  a:\n    volumes: ['./data:/data']\n"}, ""},

	{"KRN-01", files{"compose.yaml": "services:\n  a:\n    privileged: true\n"}, "yes compose.yaml:3"},
	{"KRN-01", files{"compose.yaml": "services:\n  a:\n    network_mode: host\n"}, "yes compose.yaml:3"},
	{"KRN-01", files{"compose.yaml": "services:\n  a:\n    volumes:\n      - {type: bind, source: /dev/bus/usb, target: /x}\n"}, "yes compose.yaml:4"},
	{"KRN-01", files{".devcontainer.json": "{\"runArgs\":[\n\"--privileged\"]}"}, "yes .devcontainer.json:2"},
	{"KRN-01", files{"k8s/d.yaml": "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - securityContext: {privileged: true}\n"}, "yes k8s/d.yaml:5"},
	{"KRN-01", files{"compose.yaml": "services:\n  a:\n    privileged: false\n    network_mode: bridge\n"}, ""},
	{"KRN-02", files{"src/trace.bpf.c": ""}, "yes src/trace.bpf.c"},
	{"KRN-02", files{"Vagrantfile": ""}, "yes Vagrantfile"},
	{"KRN-02", files{"drivers/Kbuild": ""}, "yes drivers/Kbuild"},
	{"KRN-02", files{"src/trace.c": ""}, ""},
	{"KRN-03", files{"go.mod": "require github.com/cilium/ebpf v0.1\n"}, "yes go.mod:1"},
	{"KRN-03", files{"go.mod": "require example.org/ebpf v0.1\n"}, ""},

	{"PRC-01", files{"Procfile": "web: bin/x\n"}, "yes Procfile:1"},
	{"PRC-01", files{"Procfile": "# web: x\n"}, ""},
	{"PRC-02", files{"compose.yaml": "services:\n  a:\n    ports: ['80:80']\n"}, "yes compose.yaml:3"},
	{"PRC-02", files{"Dockerfile": "FROM x\nEXPOSE 80\n"}, "yes Dockerfile:2"},
	{"PRC-02", files{"Dockerfile": "FROM x\n# EXPOSE 80\n"}, ""},

	{"EXT-01", files{".env": "DATABASE_URL=postgres://u:S@prod-db.example.org/x\n"}, "mutate .env:1"},
	{"EXT-01", files{".env": "API_URL=https://api.example.org/v1\n"}, "read .env:1"},
	{"EXT-01", files{".env": "API_URL=http://localhost:3000\nREDIS_URL=redis://127.0.0.1\n"}, ""},
	{"EXT-02", files{"infra/main.tf": "", "infra/vars.tf": ""}, "mutate infra/main.tf"},
	{"EXT-02", files{"chart/Chart.yaml": ""}, "mutate chart/Chart.yaml"},
	{"EXT-02", files{"deploy/x.yaml": "apiVersion: apps/v1\nkind: Deployment\n"}, "mutate deploy/x.yaml:1"},
	{"EXT-02", files{"serverless.yml": ""}, "mutate serverless.yml"},
	{"EXT-02", files{"deploy/x.yaml": "a: 1\n"}, ""},
	{"EXT-03", files{"vercel.json": "{}"}, "yes vercel.json"},
	{"EXT-03", files{"versel.json": "{}"}, ""},

	{"CRD-01", files{".env": "AWS_SECRET_ACCESS_KEY=hunter2\n"}, "dev .env:1"},
	{"CRD-01", files{".env.production": "STRIPE_SECRET_KEY=hunter2\n"}, "prod .env.production:1"},
	{"CRD-01", files{".env": "STRIPE_SECRET_KEY=sk_live_hunter2\n"}, "prod .env:1"},
	{"CRD-01", files{".env.example": "API_TOKEN=\nNAME=x\n"}, ""},
	{"CRD-02", files{"certs/server.key": ""}, "dev certs/server.key"},
	{"CRD-02", files{"prod/id_rsa": ""}, "prod prod/id_rsa"},
	{"CRD-02", files{"certs/readme": ""}, ""},

	{"HST-01", files{".devcontainer/devcontainer.json": "{\n\"initializeCommand\": \"docker ps\"}"}, "repo-defined .devcontainer/devcontainer.json:2"},
	{"HST-01", files{".devcontainer/devcontainer.json": `{"postCreateCommand": "x"}`}, ""},
	{"HST-02", files{".envrc": "use flake\n"}, "repo-defined .envrc"},
	{"HST-02", files{"mise.toml": "[tools]\nnode = \"20\"\n[hooks]\nenter = 'x'\n"}, "repo-defined mise.toml:3"},
	{"HST-02", files{"mise.toml": "[tools]\nnode = \"20\"\n"}, ""},
	{"HST-02", files{".autoenv": ""}, "repo-defined .autoenv"},
	{"HST-03", files{".husky/pre-commit": "npm test\n"}, "repo-defined .husky/pre-commit"},
	{"HST-03", files{".pre-commit-config.yaml": ""}, "repo-defined .pre-commit-config.yaml"},
	{"HST-03", files{"husky.md": ""}, ""},
	{"HST-04", files{".gitattributes": "* text=auto\n*.bin filter=lfs diff=lfs\n"}, "repo-defined .gitattributes:2; repo-defined .gitattributes:2"},
	{"HST-04", files{".gitattributes": "*.go diff=golang\n* text=auto\n"}, ""},
	{"HST-05", files{".gitmodules": "[submodule \"x\"]\n\turl = https://u:hunter2@git.example.org/x\n"}, "read .gitmodules:2"},
	{"HST-05", files{"lib/x": "<commit>"}, "read lib/x"},
	{"HST-05", files{".gitmodules": ""}, ""},
	{"HST-06", files{".mcp.json": "{\"mcpServers\":{\"a\":{\n\"command\":\"npx\",\"args\":[\"-y\",\"x\"]}}}"}, "repo-defined .mcp.json:2"},
	{"HST-06", files{".claude/settings.json": "{\n\"hooks\":{}}"}, "repo-defined .claude/settings.json:2"},
	{"HST-06", files{".codex/config.toml": "[mcp_servers.x]\n"}, "repo-defined .codex/config.toml:1"},
	{"HST-06", files{".aider.conf.yml": ""}, "repo-defined .aider.conf.yml"},
	{"HST-06", files{".mcp.json": `{"mcpServers":{"a":{"url":"https://x.example.org"}}}`}, ""},
	{"HST-07", files{".vscode/tasks.json": "{\"tasks\":[{\"runOptions\":{\n\"runOn\":\"folderOpen\"}}]}"}, "repo-defined .vscode/tasks.json:2"},
	{"HST-07", files{".idea/runConfigurations/x.xml": ""}, "repo-defined .idea/runConfigurations/x.xml"},
	{"HST-07", files{".vscode/settings.json": `{"editor.tabSize":2}`}, ""},

	{"PII-01", files{"data/customers.csv": ""}, "yes data/customers.csv"},
	{"PII-01", files{"backup/prod.sql.gz": ""}, "yes backup/prod.sql.gz"},
	{"PII-01", files{"data/points.csv": ""}, ""},

	// Scripts in files, through the analysis of commands.
	{"SCR-15", files{"package.json": "{\"scripts\":{\n\"db:migrate\": \"prisma migrate deploy\"}}"}, "schema package.json:2"},
	{"SCR-15", files{"Makefile": "up:\n\t@cd x && \\\n\t  alembic upgrade head\n"}, "schema Makefile:3"},
	{"SCR-17", files{"Makefile": "D ?= $(X)\nX = docker # x\nup:\n\t$(D) build .\n"}, "yes Makefile:4"},
	{"SCR-17", files{"Makefile": "A = $(B)$(B)$(B)\nB = $(C)$(C)$(C)\nC = $(A)$(A)$(A) docker build\nup:\n\t$(A)\n"}, ""},
	{"SCR-17", files{"justfile": "up:\n    docker compose up -d {{ x }}\n"}, "yes justfile:2"},
	{"SCR-21", files{"Taskfile.yml": "tasks:\n  push:\n    cmds:\n      - git push origin main\n"}, "mutate Taskfile.yml:4"},
	{"SCR-17", files{".github/workflows/x.yml": "jobs:\n  a:\n    steps:\n      - run: |\n          echo ${{ x }}\n          docker build .\n"}, "yes .github/workflows/x.yml:6"},
	{"SCR-04", files{"Dockerfile": "FROM x\nRUN set -e; \\\n  apt-get install -y y\n"}, "yes Dockerfile:2"},
	{"SCR-08", files{".husky/pre-push": "#!/bin/sh\n\npsql -c 'select 1'\n"}, "db .husky/pre-push:3"},
	{"SCR-06", files{"Procfile": "web: bundle exec puma\n"}, "yes Procfile:1"},
	{"SCR-17", files{"package.json": `{"scripts":{"x":"dockerize"}}`}, ""},
}

func TestDetectors(t *testing.T) {
	met := map[string]int{}
	for _, c := range detectorCases {
		if c.want == "" {
			met[c.rule] |= 1
		} else {
			met[c.rule] |= 2
		}
		facts, _ := scanOf(t, c.tree)
		var got []string
		for _, f := range facts {
			if f.Rule == c.rule {
				got = append(got, f.Value+" "+f.Evidence)
			}
			if strings.Contains(f.Subject+f.Evidence, "hunter2") {
				t.Errorf("%s shows a secret: %+v", c.rule, f)
			}
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s on %v\n got %q\nwant %q", c.rule, keys(c.tree), text, c.want)
		}
	}
	for _, d := range scanRules {
		if met[d.ID] != 3 && d.ID != "GEN-01" {
			t.Errorf("%s has no case in which it finds something, or none in which it does not", d.ID)
		}
	}
}
