package detect

import (
	"strings"
	"sync"

	"github.com/caisson-dev/caisson/internal/task"
)

// dotenv reads a file of NAME=VALUE. Of a value only the kind of service and
// the host of an address are kept, never the value.
func (s *scan) dotenv(f *file) {
	for i, line := range lines(f.b) {
		t := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "export "))
		if t == "" || t[0] == '#' {
			continue
		}
		k, v, ok := strings.Cut(t, "=")
		if ok {
			s.setting(strings.TrimSpace(k), strings.Trim(strings.TrimSpace(v), `"'`), f.path, i+1)
		}
	}
}

// config reads a configuration of any form for addresses and names.
func (s *scan) config(f *file) {
	for i, line := range lines(f.b) {
		t := strings.TrimSpace(line)
		if t == "" || t[0] == '#' || strings.HasPrefix(t, "//") || len(t) > 2000 {
			continue
		}
		j := strings.IndexAny(t, "=:")
		if j <= 0 {
			continue
		}
		k := strings.Trim(t[:j], `"' <>`)
		s.setting(k, strings.Trim(t[j+1:], `"', =`), f.path, i+1)
	}
}

// dsnSchemes are the schemes of addresses by the service they lead to.
var dsnSchemes = sync.OnceValue(func() map[string]effect {
	return map[string]effect{
		"postgres": effDB, "postgresql": effDB, "mysql": effDB, "mysql2": effDB, "mariadb": effDB, "mongodb": effDB, "mongodb+srv": effDB, "mssql": effDB, "sqlserver": effDB, "oracle": effDB, "cockroachdb": effDB, "clickhouse": effDB, "cassandra": effDB, "neo4j": effDB, "bolt": effDB, "postgis": effDB, "jdbc": effDB, "ecto": effDB, "influxdb": effDB, "libsql": effDB,
		"amqp": effQueue, "amqps": effQueue, "kafka": effQueue, "nats": effQueue, "mqtt": effQueue, "mqtts": effQueue, "stomp": effQueue, "pulsar": effQueue, "sqs": effQueue,
		"redis": effCache, "rediss": effCache, "valkey": effCache, "memcached": effCache, "memcache": effCache,
		"s3": effBucket, "gs": effBucket, "azblob": effBucket, "wasb": effBucket,
	}
})

// dsnNames are parts of names of settings that lead to a service by host and
// port.
var dsnNames = []struct {
	part string
	kind effect
}{
	{"DATABASE", effDB}, {"POSTGRES", effDB}, {"PGHOST", effDB}, {"MYSQL", effDB}, {"MARIADB", effDB}, {"MONGO", effDB}, {"DB_HOST", effDB}, {"DB_URL", effDB}, {"SQLALCHEMY", effDB}, {"ELASTIC", effDB}, {"OPENSEARCH", effDB}, {"CLICKHOUSE", effDB}, {"DATASOURCE", effDB},
	{"RABBIT", effQueue}, {"KAFKA", effQueue}, {"AMQP", effQueue}, {"NATS_", effQueue}, {"BROKER", effQueue}, {"CELERY", effQueue}, {"SQS", effQueue}, {"MQTT", effQueue},
	{"REDIS", effCache}, {"VALKEY", effCache}, {"MEMCACHE", effCache}, {"CACHE_URL", effCache},
	{"S3_", effBucket}, {"MINIO", effBucket}, {"BUCKET", effBucket}, {"AWS_ENDPOINT", effBucket}, {"GCS_", effBucket},
	{"LOCALSTACK", effEmulator}, {"EMULATOR", effEmulator},
}

// setting looks at one setting by its name, its scheme and its host.
func (s *scan) setting(name, value, p string, line int) {
	if name == "" || len(name) > 100 || strings.ContainsAny(name, " \t") && len(strings.Fields(name)) > 3 {
		return
	}
	up := strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
	scheme, host := dsn(value)
	kind := dsnSchemes()[scheme]
	if kind == 0 && value != "" {
		for _, d := range dsnNames {
			if strings.Contains(up, d.part) && (strings.HasSuffix(up, "HOST") || strings.HasSuffix(up, "URL") || strings.HasSuffix(up, "URI") || strings.HasSuffix(up, "DSN") || strings.HasSuffix(up, "ADDR") || strings.HasSuffix(up, "ADDRESS") || strings.HasSuffix(up, "SERVERS") || strings.HasSuffix(up, "ENDPOINT") || strings.HasSuffix(up, "BUCKET") || strings.HasSuffix(up, "SERVER")) {
				kind = d.kind
				if host == "" {
					host = plainHost(value)
				}
				break
			}
		}
	}
	subject := name
	if host != "" {
		subject += " at " + host
	}
	if kind != 0 && scheme != "sqlite" {
		s.services("SVC-03", kind, subject, p, line, task.Likely)
		switch {
		case host == "" || localHost(host) || !strings.Contains(host, "."):
		case productionName(host) || productionName(name) || productionName(p) || managedHost(host):
			s.found("SVC-03", "external", subject, p, line, task.Likely)
			s.found("EXT-01", "mutate", subject, p, line, task.Likely)
		default:
			s.found("SVC-03", "external", subject, p, line, task.Guess)
			s.found("EXT-01", "mutate", subject, p, line, task.Guess)
		}
	} else if host != "" && !localHost(host) && strings.Contains(host, ".") && (strings.HasPrefix(scheme, "http") || strings.HasPrefix(scheme, "ws")) && strings.HasSuffix(up, "URL") {
		s.found("EXT-01", "read", subject, p, line, task.Guess)
	}
	if credentialName(up) && value != "" {
		class := "dev"
		if productionName(name) || productionName(p) || strings.Contains(value, "sk_live_") || strings.Contains(value, "rk_live_") {
			class = "prod"
		}
		s.found("CRD-01", class, name, p, line, task.Likely)
	}
}

// credentialName reports whether a setting holds a credential, by its name.
func credentialName(up string) bool {
	for _, w := range []string{"SECRET", "TOKEN", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "PRIVATE_KEY", "ACCESS_KEY", "CREDENTIAL", "AUTH_KEY", "CLIENT_KEY", "SIGNING_KEY", "ENCRYPTION_KEY", "SERVICE_ACCOUNT", "WEBHOOK_URL", "CONNECTION_STRING"} {
		if strings.Contains(up, w) {
			return true
		}
	}
	return strings.HasSuffix(up, "_PASS") || up == "PGPASSWORD" || strings.HasPrefix(up, "AWS_SE") || up == "GOOGLE_APPLICATION_CREDENTIALS" || strings.HasSuffix(up, "_PAT")
}

// dsn takes scheme and host out of an address; whatever else it has, user and
// password first, is dropped.
func dsn(v string) (scheme, host string) {
	v = strings.TrimPrefix(v, "jdbc:")
	scheme, rest, ok := strings.Cut(v, "://")
	if !ok || scheme == "" || len(scheme) > 20 || strings.ContainsAny(scheme, " \"'/@") {
		return "", ""
	}
	if i := strings.LastIndexAny(scheme, "=:"); i >= 0 {
		scheme = scheme[i+1:]
	}
	return strings.ToLower(strings.TrimSpace(scheme)), authorityHost(rest)
}

// authorityHost is the host of what follows "://".
func authorityHost(rest string) string {
	if i := strings.IndexAny(rest, "\"' <>"); i >= 0 {
		rest = rest[:i]
	}
	at, end := strings.LastIndexByte(rest, '@'), strings.IndexAny(rest, "/?#;")
	if end >= 0 && at > end {
		return "" // a password with a slash, perhaps: no part of it may be shown
	}
	if end >= 0 {
		rest = rest[:end]
	}
	if at >= 0 {
		rest = rest[at+1:]
	}
	rest, _, _ = strings.Cut(rest, ",")
	return plainHost(rest)
}

// plainHost is a host with or without a port, or "" where it is something else.
func plainHost(v string) string {
	h := hostOnly(v)
	if h == "" || len(h) > 253 {
		return ""
	}
	for _, c := range h {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != ':' && c != '_' {
			return ""
		}
	}
	// What has no dot may be anything; only names that are known to be hosts.
	if !strings.Contains(h, ".") && !strings.Contains(h, ":") && h != "localhost" && imageKind(h) == 0 && h != "db" && h != "database" && h != "cache" && h != "queue" {
		return ""
	}
	return h
}

// urlHost is the host of the first address in a line.
func urlHost(line string) string {
	_, rest, ok := strings.Cut(line, "://")
	if !ok {
		return ""
	}
	return authorityHost(rest)
}

// managedHost is a host of a provider's managed service.
func managedHost(h string) bool {
	for _, d := range []string{".amazonaws.com", ".rds.amazonaws.com", ".azure.com", ".windows.net", ".googleapis.com", ".supabase.co", ".supabase.com", ".neon.tech", ".planetscale.com", ".psdb.cloud", ".mongodb.net", ".upstash.io", ".redislabs.com", ".redis-cloud.com", ".cloudamqp.com", ".confluent.cloud", ".aivencloud.com", ".ondigitalocean.com", ".render.com", ".railway.app", ".fly.dev", ".herokuapp.com", ".elastic-cloud.com", ".cockroachlabs.cloud", ".turso.io", ".databricks.com", ".snowflakecomputing.com"} {
		if strings.HasSuffix(strings.ToLower(h), d) {
			return true
		}
	}
	return false
}
