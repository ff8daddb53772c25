package detect

import (
	"sync"

	"github.com/caisson-dev/caisson/internal/task"
)

// Detector is one rule of this package. Its id is stable: an operator
// suppresses a rule by it.
type Detector struct {
	ID    string
	What  task.Characteristic
	Value string // that it finds; several are separated by a blank
	Looks string // at which files, or at which commands
	Doc   string // what it found when it found something, without the full stop
}

// Detectors lists every rule, in the order of docs/detectors.md. The caller may
// change the list.
func Detectors() []Detector {
	var out []Detector
	for _, r := range effectRules {
		out = append(out, Detector{"CMD-" + r.num, r.what, r.value, "the command, and the script that it names", r.doc})
	}
	for _, r := range effectRules {
		out = append(out, Detector{"SCR-" + r.num, r.what, r.value, scriptFiles, r.doc})
	}
	return append(out, scanRules...)
}

const scriptFiles = "scripts of package.json, composer.json, Makefile, justfile, Taskfile, Procfile, Dockerfile, CI, git hooks"

var byID = sync.OnceValue(func() map[string]*Detector {
	m := map[string]*Detector{}
	all := Detectors()
	for i := range all {
		m[all[i].ID] = &all[i]
	}
	return m
})

func detectorOf(id string) *Detector { return byID()[id] }

var scanRules = []Detector{
	{"GEN-01", task.Executes, "unknown", "the whole tree", "more files than are looked at"},

	{"INS-01", task.InstallsDeps, "yes", "package-lock.json yarn.lock pnpm-lock.yaml bun.lock go.sum Cargo.lock poetry.lock uv.lock Gemfile.lock composer.lock and other lock files", "dependencies are locked, so they are installed"},
	{"INS-02", task.InstallsDeps, "yes", "package.json requirements.txt pyproject.toml Gemfile composer.json build.gradle pom.xml and other manifests", "dependencies are named"},
	{"INS-03", task.Executes, "repo-defined", "package.json composer.json", "a script that an install runs by itself"},
	{"INS-04", task.Executes, "repo-defined", "package.json pnpm-workspace.yaml .npmrc bunfig.toml", "dependencies whose install scripts are allowed to run"},
	{"INS-05", task.Executes, "repo-defined", "setup.py build.rs binding.gyp conftest.py extconf.rb build.gradle build.sbt mix.exs Rakefile and other build files that are programs", "a file that building, installing or testing runs as code"},
	{"INS-06", task.Credentials, "dev", ".npmrc .pypirc pip.conf nuget.config .yarnrc.yml .cargo/credentials", "a registry's credential, by the name of its setting"},
	{"INS-07", task.ExternalAccess, "read", ".npmrc pip.conf nuget.config pyproject.toml", "a registry of its own"},

	{"SVC-01", task.MutableState, "db queue bucket cache emulator", "Compose files", "a service, by the name of its image"},
	{"SVC-02", task.MutableState, "db queue bucket cache emulator", "GitHub Actions, GitLab CI, CircleCI and other CI", "a service that CI starts beside the tests"},
	{"SVC-03", task.MutableState, "db queue bucket cache external", ".env files and configuration", "an address of a service, by the name of its setting and its host"},
	{"SVC-04", task.MutableState, "db queue bucket cache", "package.json go.mod requirements.txt pyproject.toml Gemfile Cargo.toml pom.xml build.gradle", "a client library of a service"},
	{"SVC-05", task.MutableState, "db", "*.sqlite *.sqlite3 *.db", "a database file in the repository"},
	{"SVC-06", task.MutableState, "emulator", "firebase.json supabase/config.toml", "an emulator's settings"},
	{"SVC-07", task.TaskRuntimeState, "yes", "Compose files", "a named volume keeps state between runs"},

	{"MIG-01", task.Migrations, "data schema roles", "numbered files in migrations/ db/migrate/ alembic/versions/ prisma/migrations/ and others, and their SQL", "migrations of a database"},
	{"MIG-02", task.Migrations, "schema", "alembic.ini schema.prisma atlas.hcl flyway.conf liquibase.properties knexfile.* diesel.toml dbmate and others", "settings of a migration tool"},
	{"MIG-03", task.Migrations, "data schema roles", "*.sql", "SQL that sets a database up"},

	{"CON-01", task.CreatesContainers, "yes", "Dockerfile Containerfile, Compose files, devcontainer.json, CI", "containers are built or started"},
	{"CON-02", task.NeedsRuntimeAPI, "yes", "package.json go.mod requirements.txt pyproject.toml Cargo.toml pom.xml build.gradle", "a library that talks to a container runtime: testcontainers, a Docker client"},
	{"CON-03", task.NeedsRuntimeAPI, "yes", "Compose files, devcontainer.json, CI", "the socket of a container runtime is mounted, or a runtime runs inside"},

	{"KRN-01", task.KernelOrDevice, "yes", "Compose files, devcontainer.json, CI", "privileged, a capability, a device, or a namespace of the host"},
	{"KRN-02", task.KernelOrDevice, "yes", "*.bpf.c Kbuild *.ko Vagrantfile *.rules dkms.conf and others", "files of a kernel module, eBPF, a virtual machine or a device"},
	{"KRN-03", task.KernelOrDevice, "yes", "manifests", "a library for the kernel or a device: eBPF, KVM, USB, FUSE, raw network and others"},

	{"PRC-01", task.StartsProcesses, "yes", "Compose files, Procfile, devcontainer.json", "processes that stay"},
	{"PRC-02", task.NeedsPorts, "yes", "Compose files, Dockerfile, devcontainer.json", "a port is published"},

	{"EXT-01", task.ExternalAccess, "read mutate", ".env files and configuration", "an address outside this machine, by its host"},
	{"EXT-02", task.ExternalAccess, "mutate", "*.tf Pulumi.yaml cdk.json serverless.yml Chart.yaml kustomization.yaml Kubernetes manifests ansible and others", "infrastructure as code"},
	{"EXT-03", task.ExternallyVisible, "yes", "vercel.json netlify.toml fly.toml wrangler.toml firebase.json app.yaml .goreleaser.yaml and others", "settings of a deployment or of publishing"},

	{"CRD-01", task.Credentials, "dev prod", ".env files, configuration and manifests", "a credential, by the name of its setting, or a client library of a service that needs one"},
	{"CRD-02", task.Credentials, "dev prod", "*.pem *.key *.p12 id_rsa credentials.json service-account*.json .netrc and others", "a file that holds a credential, by its name"},

	{"HST-01", task.Executes, "repo-defined", "devcontainer.json", "initializeCommand: code that runs on the host before there is a boundary"},
	{"HST-02", task.Executes, "repo-defined", ".envrc mise.toml .mise.toml .autoenv .autoenv.zsh", "code that runs when somebody steps into the folder"},
	{"HST-03", task.Executes, "repo-defined", ".husky/ .githooks/ lefthook.yml .pre-commit-config.yaml", "hooks of git"},
	{"HST-04", task.Executes, "repo-defined", ".gitattributes", "a filter, a merge or a diff driver: git runs what its name stands for"},
	{"HST-05", task.ExternalAccess, "read", ".gitmodules and submodules", "other repositories are fetched"},
	{"HST-06", task.Executes, "repo-defined", ".mcp.json .claude/ .cursor/ .codex/ .gemini/ .qwen/ .vscode/mcp.json .aider.conf.yml and others", "settings of an agent that start processes on the host"},
	{"HST-07", task.Executes, "repo-defined", ".vscode/tasks.json .vscode/settings.json .vscode/launch.json .idea/runConfigurations/ .run/", "settings of an editor that start processes on the host"},

	{"PII-01", task.PersonalData, "yes", "dumps and tables of data, by their names", "perhaps data of persons"},
}
