package detect

import (
	"bytes"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/caisson-dev/caisson/internal/task"
)

// lifecycle scripts run by themselves when something is installed, packed or
// published.
var lifecycle = lazyWords(`preinstall install postinstall prepublish preprepare prepare postprepare dependencies
 pre-install-cmd post-install-cmd pre-update-cmd post-update-cmd post-autoload-dump pre-autoload-dump post-root-package-install post-create-project-cmd`)

// json parses a file, or says that it cannot.
func (s *scan) json(f *file, rule string) *node {
	n, err := parseJSON(f.b)
	if err != nil {
		s.note(f.path, "%v", err)
		s.unknown(rule, f.path, 0)
		return nil
	}
	return n
}

func (s *scan) packageJSON(f *file) {
	n := s.json(f, "INS-02")
	if n == nil {
		return
	}
	deps := 0
	for _, key := range []string{"dependencies", "devDependencies", "optionalDependencies", "peerDependencies"} {
		d := n.get(key)
		if d == nil {
			continue
		}
		if deps += len(d.keys); len(d.keys) > 0 && deps == len(d.keys) {
			s.found("INS-02", "yes", "", f.path, d.line, task.Certain)
		}
		for i, name := range d.keys {
			s.dependency("npm", name, f.path, d.kids[i].line)
		}
	}
	n.get("scripts").each(func(name string, v *node) {
		if v.kind != 's' {
			return
		}
		if lifecycle()[name] {
			s.found("INS-03", "repo-defined", name, f.path, v.line, task.Certain)
		}
		s.script(v.str, name, f.path, v.line)
	})
	for _, p := range [][]string{{"pnpm", "onlyBuiltDependencies"}, {"pnpm", "neverBuiltDependencies"}, {"pnpm", "allowBuilds"}, {"trustedDependencies"}, {"allowScripts"}, {"lavamoat", "allowScripts"}, {"dependenciesMeta"}} {
		if l := n.get(p...); l != nil && len(l.kids) > 0 {
			s.found("INS-04", "repo-defined", strings.Join(p, "."), f.path, l.line, task.Certain)
		}
	}
	for _, p := range []string{"husky", "simple-git-hooks", "pre-commit", "gitHooks", "lint-staged"} {
		if l := n.get(p); l != nil {
			s.found("HST-03", "repo-defined", p, f.path, l.line, task.Likely)
		}
	}
	if l := n.get("prisma", "seed"); l != nil {
		s.script(l.str, "prisma.seed", f.path, l.line)
	}
	if l := n.get("gypfile"); l != nil {
		s.found("INS-05", "repo-defined", "gypfile", f.path, l.line, task.Certain)
	}
}

func (s *scan) composerJSON(f *file) {
	n := s.json(f, "INS-02")
	if n == nil {
		return
	}
	for _, key := range []string{"require", "require-dev"} {
		d := n.get(key)
		if d == nil || len(d.keys) == 0 {
			continue
		}
		s.found("INS-02", "yes", "", f.path, d.line, task.Certain)
		for i, name := range d.keys {
			s.dependency("composer", name, f.path, d.kids[i].line)
		}
	}
	n.get("scripts").each(func(name string, v *node) {
		if lifecycle()[name] {
			s.found("INS-03", "repo-defined", name, f.path, v.line, task.Certain)
		}
		for _, c := range v.scalars() {
			if !strings.HasPrefix(c.str, "@") && !strings.Contains(c.str, "::") {
				s.script(c.str, name, f.path, c.line)
			}
		}
	})
	if l := n.get("config", "allow-plugins"); l != nil {
		s.found("INS-04", "repo-defined", "allow-plugins", f.path, l.line, task.Certain)
	}
}

// npmrc reads settings in lines: .npmrc, pip.conf, .pypirc, nuget.config.
// Values of credentials are never kept.
func (s *scan) npmrc(f *file) {
	for i, line := range lines(f.b) {
		t := strings.TrimSpace(line)
		low := strings.ToLower(t)
		if t == "" || t[0] == '#' || t[0] == ';' {
			continue
		}
		compact := strings.ReplaceAll(low, " ", "")
		switch {
		case strings.HasPrefix(compact, "ignore-scripts=false"), strings.HasPrefix(compact, "unsafe-perm=true"), strings.HasPrefix(compact, "trusteddependencies="), strings.HasPrefix(compact, "enable-pre-post-scripts=true"), strings.HasPrefix(compact, "enablescripts:true"), strings.HasPrefix(compact, "dangerously-allow-all-builds=true"):
			s.found("INS-04", "repo-defined", settingName(t), f.path, i+1, task.Certain)
		case strings.HasPrefix(compact, "script-shell="), strings.HasPrefix(compact, "node-options="), strings.HasPrefix(compact, "git="), strings.HasPrefix(compact, "yarnpath:"), strings.HasPrefix(compact, "yarn-path"):
			s.found("INS-04", "repo-defined", settingName(t), f.path, i+1, task.Certain)
		case strings.HasPrefix(compact, "ignore-scripts=true"):
			s.note(f.path, "install scripts are switched off; it counts for nothing, because a command can switch them on again")
		case strings.Contains(low, "_authtoken") || strings.Contains(low, "_password") || strings.Contains(low, "_auth") || strings.HasPrefix(compact, "password") || strings.Contains(low, "npmauthtoken") || strings.Contains(low, "cleartextpassword"):
			s.found("INS-06", "dev", settingName(t), f.path, i+1, task.Certain)
		case strings.Contains(low, "registry") || strings.Contains(low, "index-url") || strings.Contains(low, "<add key=") && strings.Contains(low, "http"):
			if h := urlHost(t); h != "" {
				s.found("INS-07", "read", h, f.path, i+1, task.Certain)
			}
		}
	}
}

// settingName is what stands before the value of a line.
func settingName(line string) string {
	if i := strings.IndexAny(line, "=:"); i > 0 {
		if j := strings.LastIndexAny(line, "=:"); strings.HasPrefix(line, "//") {
			if k := strings.Index(line, ":_"); k > 0 {
				return strings.TrimSpace(line[:min(len(line), k+strings.IndexAny(line[k+1:]+"=", "= ")+1)])
			}
			i = j
		}
		return strings.TrimSpace(line[:i])
	}
	return "setting"
}

func (s *scan) pnpmWorkspace(f *file) {
	docs := s.yaml(f, "INS-04")
	for _, n := range docs {
		for _, k := range []string{"onlyBuiltDependencies", "allowBuilds", "dangerouslyAllowAllBuilds", "neverBuiltDependencies"} {
			if l := n.get(k); l != nil {
				s.found("INS-04", "repo-defined", k, f.path, l.line, task.Certain)
			}
		}
	}
}

// yaml parses a file, or says that it cannot. What came before the fault counts.
func (s *scan) yaml(f *file, rule string) []*node {
	if len(f.b) > maxYAML {
		s.note(f.path, "is too large to be parsed (%d bytes)", len(f.b))
		s.unknown(rule, f.path, 0)
		return nil
	}
	docs, err := parseYAML(f.b)
	if err != nil {
		s.note(f.path, "%v", err)
		s.unknown(rule, f.path, 0)
	}
	return docs
}

// lines splits a text; a bare carriage return ends one too.
func lines(b []byte) []string {
	return strings.Split(strings.ReplaceAll(string(b), "\r\n", "\n"), "\n")
}

// libraryRule says what a library is for.
type libraryRule struct {
	kind  effect // SVC-04
	rule  string // or a rule of its own
	names []string
}

// libraryRules match the name of a dependency as a whole word, in small
// letters, in whatever manifest it stands.
var libraryRules = sync.OnceValue(func() []libraryRule {
	return []libraryRule{
		{effDB, "", strings.Fields(`pg postgres postgresql pg-promise psycopg psycopg2 psycopg2-binary psycopg-binary asyncpg pg8000 mysql mysql2 mysqlclient pymysql mysql-connector-python mysql-connector-java mysql-connector-j mongodb mongoose pymongo motor mongoengine sequelize typeorm knex prisma @prisma/client drizzle-orm mikro-orm
 objection sqlalchemy sqlmodel tortoise-orm peewee django-environ activerecord sequel diesel sqlx sea-orm tokio-postgres gorm.io/gorm github.com/jackc/pgx github.com/jackc/pgx/v4 github.com/jackc/pgx/v5 github.com/lib/pq github.com/go-sql-driver/mysql go.mongodb.org/mongo-driver github.com/jmoiron/sqlx entgo.io/ent
 cassandra-driver neo4j elasticsearch @elastic/elasticsearch opensearch-py clickhouse-driver influxdb-client spring-boot-starter-data-jpa spring-boot-starter-jdbc hibernate-core ecto_sql postgrex myxql npgsql entityframework microsoft.entityframeworkcore doctrine/orm doctrine/dbal illuminate/database mssql tedious pyodbc oracledb cx-oracle`)},
		{effQueue, "", strings.Fields(`amqplib amqp pika aio-pika kombu celery bunny sneakers kafkajs kafka-python confluent-kafka aiokafka rdkafka node-rdkafka ruby-kafka github.com/segmentio/kafka-go github.com/confluentinc/confluent-kafka-go github.com/rabbitmq/amqp091-go github.com/streadway/amqp github.com/nats-io/nats.go nats nats-py
 spring-kafka spring-rabbit spring-boot-starter-amqp mqtt paho-mqtt lapin rumqttc bullmq bull bee-queue sidekiq resque broadway @aws-sdk/client-sqs temporalio go.temporal.io/sdk stomp.py`)},
		{effCache, "", strings.Fields(`redis ioredis redis-py aioredis hiredis node-redis memcached pymemcache python-memcached dalli github.com/redis/go-redis/v9 github.com/go-redis/redis github.com/go-redis/redis/v8 github.com/gomodule/redigo github.com/bradfitz/gomemcache jedis lettuce-core spring-boot-starter-data-redis predis/predis django-redis redix deadpool-redis fred stackexchange.redis`)},
		{effBucket, "", strings.Fields(`@aws-sdk/client-s3 minio boto3-s3 s3fs gcsfs @google-cloud/storage google-cloud-storage azure-storage-blob @azure/storage-blob multer-s3 github.com/minio/minio-go/v7 github.com/aws/aws-sdk-go-v2/service/s3 cloud.google.com/go/storage aws-sdk-s3 rust-s3 shrine carrierwave-aws`)},
		{0, "CON-02", strings.Fields(`testcontainers @testcontainers/postgresql org.testcontainers github.com/testcontainers/testcontainers-go testcontainers-python testcontainers-modules dockerode docker docker-py podman bollard shiplift github.com/docker/docker github.com/moby/moby github.com/docker/docker/client github.com/docker/go-sdk github.com/moby/moby/client github.com/ory/dockertest
 github.com/ory/dockertest/v3 docker-java docker-api aiodocker pytest-docker pytest-docker-compose docker-compose dockertest testcontainers-ruby testcontainers-rs docker.dotnet testcontainers.postgresql k8s.io/client-go kubernetes @kubernetes/client-node kube sigs.k8s.io/controller-runtime fabric8 github.com/containers/podman/v5 github.com/fsouza/go-dockerclient spotify/docker-client spring-boot-docker-compose spring-boot-testcontainers`)},
		{0, "KRN-03", strings.Fields(`github.com/cilium/ebpf github.com/aquasecurity/libbpfgo libbpf-rs aya bcc pyroute2 kvm-ioctls vmm github.com/firecracker-microvm/firecracker-go-sdk usb pyusb libusb libusb1 rusb nusb serialport pyserial tokio-serial python-can smbus smbus2 gpiozero rpi.gpio i2cdev spidev node-hid hidapi evdev uinput github.com/google/gopacket scapy pcap cap
 github.com/vishvananda/netlink nix-ptrace fuse fuse3 fuser fusepy github.com/hanwen/go-fuse/v2 bazil.org/fuse tun-tap wintun github.com/songgao/water pyudev v4l2 v4l cuda cupy cudarc`)},
		{0, "EXT-02", strings.Fields(`aws-cdk-lib aws-cdk cdktf @pulumi/pulumi pulumi serverless @serverless/framework sst zappa chalice troposphere kubernetes-asyncio ansible fabric apache-libcloud`)},
		{0, "CRD-01", strings.Fields(`boto3 aws-sdk @aws-sdk/client-sts @aws-sdk/client-secrets-manager google-auth google-cloud-secret-manager azure-identity @azure/identity github.com/aws/aws-sdk-go-v2 github.com/aws/aws-sdk-go cloud.google.com/go hvac stripe twilio sendgrid @sendgrid/mail openai anthropic @anthropic-ai/sdk firebase-admin aws-sdk-core aws-config`)},
	}
})

// libraryIndex is libraryRules by name.
var libraryIndex = sync.OnceValue(func() map[string][]int {
	m := map[string][]int{}
	for i, r := range libraryRules() {
		for _, n := range r.names {
			m[n] = append(m[n], i)
		}
	}
	return m
})

// dependency looks one up by its name.
func (s *scan) dependency(_, name, p string, line int) {
	low := strings.ToLower(name)
	rules := libraryIndex()[low]
	for _, i := range rules {
		r := libraryRules()[i]
		if r.rule == "" {
			s.services("SVC-04", r.kind, low, p, line, task.Guess)
			continue
		}
		value, sure := "yes", task.Likely
		switch r.rule {
		case "EXT-02":
			value = "mutate"
		case "CRD-01":
			value, sure = "dev", task.Guess
		}
		s.found(r.rule, value, low, p, line, sure)
	}
	if strings.Contains(low, "testcontainers") && len(rules) == 0 {
		s.found("CON-02", "yes", low, p, line, task.Likely)
	}
}

// services gives one fact for each kind of service in an effect.
func (s *scan) services(rule string, kind effect, subject, p string, line int, sure task.Confidence) {
	for _, r := range effectRules {
		if kind&r.bit != 0 && r.what == task.MutableState {
			s.found(rule, r.value, subject, p, line, sure)
		}
	}
}

// libraries reads a manifest that is no JSON: the words of each line that is no
// comment, and a few settings.
func (s *scan) libraries(f *file) {
	base := strings.ToLower(path.Base(f.path))
	named := false
	for i, line := range lines(f.b) {
		t := strings.TrimSpace(line)
		if t == "" || strings.HasPrefix(t, "//") || strings.HasPrefix(t, "<!--") || t[0] == '#' && base != "conanfile.txt" || len(t) > 2000 {
			continue
		}
		var seen []string
		for _, w := range strings.FieldsFunc(t, func(r rune) bool { return strings.ContainsRune(" \t\"'()[]{},;:=<>~^!*", r) }) {
			if !slices.Contains(seen, w) && len(seen) < 30 {
				seen = append(seen, w)
				s.dependency(base, w, f.path, i+1)
			}
		}
		if !named {
			named = dependencyLine(base, t)
			if named {
				s.found("INS-02", "yes", "", f.path, i+1, task.Likely)
			}
		}
		if strings.Contains(t, "index-url") || strings.Contains(t, "[[tool.uv.index]]") || strings.Contains(t, "[[tool.poetry.source]]") {
			s.found("INS-07", "read", urlHost(t), f.path, i+1, task.Likely)
		}
		if strings.HasPrefix(t, "backend-path") || strings.HasPrefix(t, "build-backend") && !strings.Contains(t, "setuptools") && !strings.Contains(t, "hatchling") && !strings.Contains(t, "poetry") && !strings.Contains(t, "flit") && !strings.Contains(t, "pdm") && !strings.Contains(t, "maturin") {
			s.found("INS-05", "repo-defined", "build-backend", f.path, i+1, task.Likely)
		}
	}
	if base == "pom.xml" && bytes.Contains(f.b, []byte("<plugin>")) || strings.HasPrefix(base, "build.gradle") || base == "setup.py" || base == "mix.exs" {
		if s.once("INS-05", f.path) {
			s.found("INS-05", "repo-defined", base, f.path, 0, task.Certain)
		}
	}
}

// dependencyLine reports whether a line names a dependency.
func dependencyLine(base, t string) bool {
	switch base {
	case "go.mod":
		return strings.HasPrefix(t, "require")
	case "cargo.toml":
		return strings.Contains(t, "dependencies")
	case "pom.xml":
		return strings.HasPrefix(t, "<dependency")
	case "gemfile":
		return strings.HasPrefix(t, "gem ")
	case "build.gradle", "build.gradle.kts":
		return strings.Contains(t, "mplementation") || strings.HasPrefix(t, "dependencies")
	case "pyproject.toml", "setup.cfg", "setup.py", "pipfile", "mix.exs", "environment.yml", "libs.versions.toml", "directory.packages.props", "deno.json", "build.sbt":
		return strings.Contains(t, "dependencies") || strings.Contains(t, "packages") || strings.Contains(t, "install_requires") || strings.Contains(t, "imports") || strings.HasPrefix(t, "{:") || strings.Contains(t, "PackageVersion")
	}
	return strings.HasPrefix(base, "requirements") && t[0] != '-'
}
