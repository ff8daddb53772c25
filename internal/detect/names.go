package detect

import (
	"path"
	"strings"
	"sync"

	"github.com/caisson-dev/caisson/internal/task"
)

const (
	modeLink    = 0o120000
	modeGitlink = 0o160000
)

// lockFiles mean that dependencies are installed.
var lockFiles = lazyWords(`package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb deno.lock go.sum cargo.lock poetry.lock uv.lock pipfile.lock pdm.lock pylock.toml conda-lock.yml pixi.lock
 gemfile.lock composer.lock mix.lock rebar.lock pubspec.lock packages.lock.json paket.lock gradle.lockfile podfile.lock cartfile.resolved package.resolved flake.lock conan.lock stack.yaml.lock cabal.project.freeze shard.lock manifest.toml dub.selections.json`)

// codeFiles run as code when a repository is built, installed or tested.
var codeFiles = lazyWords(`setup.py build.rs binding.gyp conftest.py extconf.rb build.gradle build.gradle.kts settings.gradle settings.gradle.kts build.sbt mix.exs rakefile gruntfile.js gulpfile.js sconstruct wscript noxfile.py tasks.py fabfile.py
 build.zig meson.build cmakelists.txt configure configure.ac makefile.pl build.pl build.xml project.clj build.clj setup.hs metro.config.js webpack.config.js vite.config.ts vite.config.js jest.config.js jest.config.ts babel.config.js .eslintrc.js eslint.config.js eslint.config.mjs build.fsx build.cake sitecustomize.py usercustomize.py flake.nix shell.nix default.nix`)

// manifests name dependencies and are read.
var manifests = sync.OnceValue(func() map[string]func(*scan, *file) {
	return map[string]func(*scan, *file){
		"package.json": (*scan).packageJSON, "composer.json": (*scan).composerJSON,
		"go.mod": (*scan).libraries, "requirements.txt": (*scan).libraries, "pyproject.toml": (*scan).libraries, "setup.cfg": (*scan).libraries, "pipfile": (*scan).libraries, "gemfile": (*scan).libraries, "cargo.toml": (*scan).libraries,
		"pom.xml": (*scan).libraries, "build.gradle": (*scan).libraries, "build.gradle.kts": (*scan).libraries, "libs.versions.toml": (*scan).libraries, "mix.exs": (*scan).libraries, "environment.yml": (*scan).libraries, "setup.py": (*scan).libraries, "build.sbt": (*scan).libraries, "deno.json": (*scan).libraries, "directory.packages.props": (*scan).libraries,
	}
})

// looks are the other files that are read, by their name in small letters.
var looks = sync.OnceValue(func() map[string]struct {
	rank int
	rule string
	look func(*scan, *file)
} {
	return map[string]struct {
		rank int
		rule string
		look func(*scan, *file)
	}{
		".npmrc": {2, "INS-04", (*scan).npmrc}, "pnpm-workspace.yaml": {2, "INS-04", (*scan).pnpmWorkspace}, "bunfig.toml": {3, "INS-04", (*scan).npmrc},
		".pypirc": {3, "INS-06", (*scan).npmrc}, "pip.conf": {3, "INS-07", (*scan).npmrc}, "nuget.config": {3, "INS-07", (*scan).npmrc}, ".yarnrc.yml": {3, "INS-06", (*scan).npmrc}, ".yarnrc": {3, "INS-06", (*scan).npmrc},
		"makefile": {2, "SCR-02", (*scan).makefile}, "gnumakefile": {2, "SCR-02", (*scan).makefile}, "justfile": {2, "SCR-02", (*scan).justfile}, ".justfile": {2, "SCR-02", (*scan).justfile},
		"taskfile.yml": {2, "SCR-02", (*scan).taskfile}, "taskfile.yaml": {2, "SCR-02", (*scan).taskfile}, "procfile": {2, "PRC-01", (*scan).procfile}, "procfile.dev": {2, "PRC-01", (*scan).procfile},
		"devcontainer.json": {1, "HST-01", (*scan).devcontainer}, ".devcontainer.json": {1, "HST-01", (*scan).devcontainer},
		".gitlab-ci.yml": {2, "SVC-02", (*scan).gitlab}, "azure-pipelines.yml": {3, "SVC-02", (*scan).genericCI}, "bitbucket-pipelines.yml": {3, "SVC-02", (*scan).genericCI}, ".travis.yml": {3, "SVC-02", (*scan).genericCI}, ".drone.yml": {3, "SVC-02", (*scan).genericCI}, ".woodpecker.yml": {3, "SVC-02", (*scan).genericCI}, ".cirrus.yml": {3, "SVC-02", (*scan).genericCI},
		".envrc": {2, "HST-02", (*scan).envrc}, "mise.toml": {3, "HST-02", (*scan).mise}, ".mise.toml": {3, "HST-02", (*scan).mise},
		".gitattributes": {3, "HST-04", (*scan).gitattributes}, ".gitmodules": {3, "HST-05", (*scan).gitmodules},
		"firebase.json": {3, "SVC-06", (*scan).firebase},
	}
})

// migrationFolders hold migrations whatever they are written in.
var migrationFolders = []string{"migrations", "migration", "migrate", "alembic", "flyway", "liquibase", "changelog-db", "goose"}

// migrationFiles are settings of migration tools.
var migrationFiles = lazyWords(`alembic.ini schema.prisma atlas.hcl flyway.conf flyway.toml liquibase.properties knexfile.js knexfile.ts diesel.toml .sequelizerc ormconfig.json ormconfig.js ormconfig.ts drizzle.config.ts drizzle.config.js mikro-orm.config.ts dbconfig.yml sqitch.conf sqitch.plan
 goose.yaml tern.conf phinx.php phinx.yml doctrine.yaml schema.rb structure.sql .dbmate.yml database.dbml skeema.toml yoyo.ini`)

// deployFiles make something visible to others.
var deployFiles = lazyWords(`vercel.json netlify.toml fly.toml wrangler.toml wrangler.jsonc wrangler.json app.yaml render.yaml railway.json railway.toml heroku.yml app.json .goreleaser.yml .goreleaser.yaml .releaserc .releaserc.json release.config.js dokku.json now.json amplify.yml buildspec.yml apprunner.yaml cloudbuild.yaml
 captain-definition appspec.yml .semaphore/semaphore.yml dist-workspace.toml eas.json fastfile supabase.toml apphosting.yaml`)

// infraFiles are infrastructure as code.
var infraFiles = lazyWords(`pulumi.yaml pulumi.yml cdk.json cdktf.json serverless.yml serverless.yaml serverless.ts sst.config.ts template.yaml samconfig.toml chart.yaml helmfile.yaml kustomization.yaml kustomization.yml skaffold.yaml tiltfile terragrunt.hcl ansible.cfg galaxy.yml nomad.hcl zappa_settings.json chalice.json
 terraform.tfstate bicepconfig.json azure.yaml playbook.yml site.yml garden.yml werf.yaml deploy.rb`)

// kernelFiles are of a kernel module, a virtual machine or a device.
var kernelFiles = lazyWords(`kbuild kconfig dkms.conf vagrantfile platformio.ini sdkconfig west.yml openocd.cfg .config-kernel bpf.h vmlinux.h packer.json cuttlefish.json`)

// secretFiles hold a credential by their name.
var secretFiles = lazyWords(`id_rsa id_dsa id_ecdsa id_ed25519 .netrc _netrc .pgpass .my.cnf credentials credentials.json client_secret.json service-account.json serviceaccount.json google-services.json .htpasswd kubeconfig .dockercfg .git-credentials secrets.yml secrets.yaml secrets.json secrets.toml .vault_pass .vault-token master.key .aws-credentials
 terraform.tfvars wallet.dat keystore.jks .s3cfg .boto rclone.conf`)

// agentFolders hold settings of agents; the files in them that can start
// something are read.
var agentFolders = []string{".claude", ".cursor", ".codex", ".gemini", ".qwen", ".windsurf", ".continue", ".roo", ".kiro", ".opencode", ".amazonq", ".github/copilot", ".zed", ".agents", ".junie"}

// folder is what the folders on the way to a file say. Paths come sorted, so
// most ask for the folder of the one before.
type folder struct {
	dir       string
	known     bool
	vendored  bool   // others' code that was checked in
	migration string // the folder of migrations, by the name in migrationFolders
	agent     bool
	cluster   bool // manifests may be there
}

func (s *scan) folderOf(dir string) *folder {
	if s.last.known && s.last.dir == dir {
		return &s.last
	}
	in := dir + "/"
	s.last = folder{dir: dir, known: true, vendored: vendored(in)}
	low := strings.ToLower(in)
	for _, d := range migrationFolders {
		if hasFolder(low, d) {
			s.last.migration = d
			break
		}
	}
	for _, d := range agentFolders {
		s.last.agent = s.last.agent || hasFolder(in, d)
	}
	for _, d := range []string{"k8s", "kubernetes", "manifests", "deploy"} {
		s.last.cluster = s.last.cluster || hasFolder(in, d)
	}
	return &s.last
}

// name looks at the name of one file.
func (s *scan) name(p string, mode uint32) {
	if mode == modeGitlink {
		s.found("HST-05", "read", p, p, 0, task.Certain)
		return
	}
	slash := strings.LastIndexByte(p, '/')
	base := p[slash+1:]
	low := strings.ToLower(base)
	dir := ""
	if slash > 0 {
		dir = p[:slash]
	}
	in := s.folderOf(dir)
	if mode == modeLink {
		s.linkName(p, low)
		return
	}
	if in.vendored {
		return
	}
	if lockFiles()[low] {
		s.found("INS-01", "yes", "", p, 0, task.Certain)
	}
	if f := manifests()[low]; f != nil || strings.HasPrefix(low, "requirements") && strings.HasSuffix(low, ".txt") {
		if f == nil {
			f = (*scan).libraries
		}
		s.want(0, p, "INS-02", f)
	}
	if l, ok := looks()[low]; ok {
		s.want(l.rank, p, l.rule, l.look)
	}
	if codeFiles()[low] && s.once("INS-05", low) {
		s.found("INS-05", "repo-defined", base, p, 0, task.Certain)
	}
	s.named(p, low, in)
	s.kinds(p, low, in)
}

// named knows files by a part of their name or their folder.
func (s *scan) named(p, low string, in *folder) {
	dir := in.dir
	yaml := strings.HasSuffix(low, ".yml") || strings.HasSuffix(low, ".yaml")
	switch {
	case composeName(low):
		s.want(1, p, "SVC-01", (*scan).compose)
	case strings.HasPrefix(low, "dockerfile") || strings.HasSuffix(low, ".dockerfile") || strings.HasPrefix(low, "containerfile"):
		s.want(3, p, "CON-01", (*scan).dockerfile)
	case strings.HasPrefix(low, ".env") && low != ".envrc" && !strings.HasSuffix(low, ".ts"), strings.HasSuffix(low, ".env"):
		s.want(1, p, "SVC-03", (*scan).dotenv)
	case yaml && strings.HasSuffix(dir, ".github/workflows"):
		s.want(2, p, "SVC-02", (*scan).actions)
	case yaml && (strings.HasSuffix(dir, ".circleci") || strings.HasSuffix(dir, ".buildkite") || strings.HasSuffix(dir, ".woodpecker")):
		s.want(2, p, "SVC-02", (*scan).genericCI)
	case low == "config.toml" && strings.HasSuffix(dir, "supabase"):
		s.found("SVC-06", "emulator", "supabase", p, 0, task.Likely)
	case configName(low):
		s.want(4, p, "SVC-03", (*scan).config)
	case strings.HasSuffix(low, ".just"):
		s.want(3, p, "SCR-02", (*scan).justfile)
	case strings.HasSuffix(low, ".mk"):
		s.want(5, p, "SCR-02", (*scan).makefile)
	case strings.HasPrefix(dir, ".husky") && !strings.Contains(dir, "_"), strings.HasPrefix(dir, ".githooks"), dir == "githooks", dir == ".hooks":
		s.want(3, p, "HST-03", (*scan).hook)
		if s.once("HST-03", dir) {
			s.found("HST-03", "repo-defined", dir, p, 0, task.Certain)
		}
	case low == "lefthook.yml", low == "lefthook.yaml", low == ".lefthook.yml", low == ".pre-commit-config.yaml", low == ".overcommit.yml", low == ".lintstagedrc":
		s.found("HST-03", "repo-defined", low, p, 0, task.Likely)
	case low == ".autoenv", low == ".autoenv.zsh":
		s.found("HST-02", "repo-defined", low, p, 0, task.Certain)
	case low == ".aider.conf.yml":
		s.found("HST-06", "repo-defined", low, p, 0, task.Likely)
	case strings.HasSuffix(low, ".xml") && (strings.HasSuffix(dir, ".idea/runConfigurations") || strings.HasSuffix(dir, ".run")):
		s.found("HST-07", "repo-defined", low, p, 0, task.Likely)
	case low == ".mcp.json" || low == "mcp.json", low == "mcp_settings.json":
		s.want(1, p, "HST-06", (*scan).agentJSON)
	case strings.HasSuffix(dir, ".vscode") && (low == "tasks.json" || low == "settings.json" || low == "launch.json"):
		s.want(2, p, "HST-07", (*scan).vscode)
	case yaml && in.cluster:
		s.want(5, p, "EXT-02", (*scan).kubernetes)
	case strings.HasSuffix(low, ".sql"):
		s.want(6, p, "MIG-03", (*scan).sql)
	}
	if in.agent && (strings.HasSuffix(low, ".json") || strings.HasSuffix(low, ".toml") || strings.HasSuffix(low, ".yaml")) && low != "mcp.json" && low != ".mcp.json" {
		s.want(1, p, "HST-06", (*scan).agentSettings)
	}
}

// linkName says that a file of a telling name is a link: its target is not
// followed.
func (s *scan) linkName(p, low string) {
	switch {
	case manifests()[low] != nil:
		s.linked("INS-02", p)
	case composeName(low):
		s.linked("SVC-01", p)
	case looks()[low].look != nil:
		s.linked(looks()[low].rule, p)
	case strings.HasPrefix(low, ".env"):
		s.linked("SVC-03", p)
	}
}

func (s *scan) linked(rule, p string) {
	s.note(p, "is a link, which is not followed")
	s.unknown(rule, p, 0)
}

func composeName(low string) bool {
	if !strings.HasSuffix(low, ".yml") && !strings.HasSuffix(low, ".yaml") {
		return false
	}
	return strings.HasPrefix(low, "compose.") || strings.HasPrefix(low, "docker-compose") || strings.HasPrefix(low, "compose-") || strings.HasPrefix(low, "podman-compose") || strings.HasPrefix(low, "docker-stack")
}

// configName is a file in which addresses of services are set.
func configName(low string) bool {
	switch low {
	case "database.yml", "database.yaml", "application.yml", "application.yaml", "application.properties", "appsettings.json", "settings.py", "config.yml", "config.yaml", "config.toml", "cable.yml", "storage.yml", "mongoid.yml", "sidekiq.yml", "application.conf", "persistence.xml", "hibernate.cfg.xml", "config.json", "default.json", "production.json", "alembic.ini", "ormconfig.json", "local.settings.json", "rocket.toml":
		return true
	}
	return strings.HasPrefix(low, "appsettings.") || strings.HasPrefix(low, "application-")
}

// kinds knows files by a table of names, by their ending and their folder.
func (s *scan) kinds(p, low string, in *folder) {
	ext := path.Ext(low)
	switch {
	case deployFiles()[low]:
		s.found("EXT-03", "yes", low, p, 0, task.Likely)
	case infraFiles()[low], ext == ".tf", ext == ".tofu", ext == ".bicep", strings.HasSuffix(low, ".pkr.hcl"), strings.HasSuffix(low, ".tfvars"), strings.HasSuffix(low, ".nomad"):
		if s.once("EXT-02", path.Dir(p)) {
			s.found("EXT-02", "mutate", path.Dir(p), p, 0, task.Likely)
		}
	case kernelFiles()[low], strings.HasSuffix(low, ".bpf.c"), strings.HasSuffix(low, ".bt"), ext == ".ko", ext == ".dts", ext == ".dtsi", ext == ".rules" && hasFolder(p, "udev"), ext == ".qcow2", ext == ".cu", ext == ".ino":
		if s.once("KRN-02", path.Dir(p)+ext) {
			s.found("KRN-02", "yes", low, p, 0, task.Likely)
		}
	case ext == ".sqlite", ext == ".sqlite3", ext == ".db" && low != "thumbs.db", ext == ".db3", ext == ".duckdb", ext == ".mdb":
		s.found("SVC-05", "db", p, p, 0, task.Likely)
	case secretFiles()[low], ext == ".pem", ext == ".key", ext == ".p12", ext == ".pfx", ext == ".jks", ext == ".keystore", ext == ".kdbx", ext == ".ppk", ext == ".asc" && strings.Contains(low, "private"), strings.HasPrefix(low, "service-account") && ext == ".json", strings.HasPrefix(low, "service_account") && ext == ".json":
		s.found("CRD-02", credentialClass(p), p, p, 0, task.Likely)
	case dataName(low, ext):
		s.found("PII-01", "yes", p, p, 0, task.Guess)
	}
	if migrationFiles()[low] && s.once("MIG-02", p) {
		s.found("MIG-02", "schema", low, p, 0, task.Likely)
	}
	if d := in.migration; d != "" && codeExt()[ext] && numbered(p, low, ext) {
		if dir := folderOf(p, d); s.once("MIG-01", dir) {
			s.found("MIG-01", "schema", dir, p, 0, task.Likely)
		}
	}
}

// numbered tells a migration from the code of a tool: its name, or its folder's,
// begins with a number or a version, or it is SQL.
func numbered(p, low, ext string) bool {
	folder := path.Base(path.Dir(p))
	digit := func(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }
	return ext == ".sql" || digit(low) || digit(folder) || folder == "versions" || low[0] == 'v' && strings.Contains(low, "__") || strings.HasPrefix(low, "version") && digit(low[len("version"):]) || strings.Contains(low, "changelog")
}

// codeExt are the languages that migrations are written in.
var codeExt = lazyWords(`.sql .py .rb .js .ts .mjs .php .go .cs .java .kt .xml .yaml .yml .exs .rs .cql`)

// dataName is a dump or a table of data of persons, by its name.
func dataName(low, ext string) bool {
	switch ext {
	case ".csv", ".tsv", ".parquet", ".xlsx", ".jsonl", ".ndjson", ".mbox", ".vcf":
		for _, w := range []string{"user", "customer", "patient", "employee", "member", "contact", "person", "people", "email", "order", "subscriber", "applicant", "student", "payroll", "invoice", "lead"} {
			if strings.Contains(low, w) {
				return true
			}
		}
	case ".dump", ".bak", ".backup":
		return true
	case ".sql", ".gz", ".zst", ".xz":
		return (strings.Contains(low, "dump") || strings.Contains(low, "backup") || strings.Contains(low, "prod")) && strings.Contains(low, ".sql")
	}
	return false
}

// credentialClass is prod where a name says so.
func credentialClass(name string) string {
	if productionName(name) {
		return "prod"
	}
	return "dev"
}

// productionName reports whether a name has a word for production in it.
func productionName(s string) bool {
	for _, w := range strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return r < 'a' || r > 'z' }) {
		switch w {
		case "prod", "production", "prd", "live":
			return true
		}
	}
	return false
}
