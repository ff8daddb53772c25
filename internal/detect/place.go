package detect

import (
	"net/netip"
	"strings"
)

// hostOnly takes a port off.
func hostOnly(s string) string {
	if strings.HasPrefix(s, "[") {
		if i := strings.IndexByte(s, ']'); i > 0 {
			return s[1:i]
		}
		return ""
	}
	if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.Count(s, ":") == 1 {
		return s[:i]
	}
	return s
}

// localHost reports whether a host is this machine.
func localHost(h string) bool {
	h = strings.ToLower(strings.TrimSuffix(h, "."))
	if h == "localhost" || strings.HasSuffix(h, ".localhost") || h == "host.docker.internal" {
		return true
	}
	ip, err := netip.ParseAddr(h)
	return err == nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// sqlEffect says what a text of SQL does, by its words.
func sqlEffect(text string) effect {
	var e effect
	up := strings.ToUpper(text)
	for _, k := range []string{"CREATE ROLE", "CREATE USER", "ALTER ROLE", "ALTER USER", "DROP ROLE", "DROP USER", "CREATE EXTENSION", "DROP EXTENSION", "ALTER SYSTEM", "GRANT ", "REVOKE ", "CREATE LANGUAGE", "CREATE FOREIGN DATA WRAPPER", "CREATE SERVER", "CREATE LOGIN", "SECURITY LABEL"} {
		if strings.Contains(up, k) {
			e |= effMigRoles
		}
	}
	for _, k := range []string{"CREATE TABLE", "ALTER TABLE", "DROP TABLE", "CREATE INDEX", "CREATE UNIQUE INDEX", "DROP INDEX", "CREATE SCHEMA", "DROP SCHEMA", "CREATE DATABASE", "DROP DATABASE", "CREATE TYPE", "CREATE VIEW", "CREATE MATERIALIZED", "CREATE FUNCTION", "CREATE OR REPLACE", "CREATE TRIGGER", "CREATE SEQUENCE", "CREATE COLLECTION", "CREATE KEYSPACE", "RENAME TABLE", "CREATE PROCEDURE"} {
		if strings.Contains(up, k) {
			e |= effMigSchema
		}
	}
	for _, k := range []string{"INSERT INTO", "UPDATE ", "DELETE FROM", "MERGE INTO", "TRUNCATE", "REPLACE INTO", "COPY "} {
		if strings.Contains(up, k) {
			e |= effMigData
		}
	}
	for _, k := range []string{"DROP DATABASE", "DROP SCHEMA"} {
		if strings.Contains(up, k) {
			e |= effDestroy
		}
	}
	return e
}

// imageKinds says what a service does by the last part of its image's name. The
// first entry that the name contains counts.
var imageKinds = []struct {
	part string
	kind effect
}{
	{"redis-commander", 0}, {"pgadmin", 0}, {"adminer", 0}, {"phpmyadmin", 0}, {"mongo-express", 0}, {"kafka-ui", 0}, {"exporter", 0},
	{"postgres", effDB}, {"postgis", effDB}, {"pgvector", effDB}, {"timescale", effDB}, {"pgbouncer", effDB}, {"mysql", effDB}, {"mariadb", effDB}, {"percona", effDB}, {"mongo", effDB}, {"cockroach", effDB}, {"mssql", effDB}, {"sqlserver", effDB}, {"azure-sql-edge", effDB}, {"oracle", effDB},
	{"cassandra", effDB}, {"scylla", effDB}, {"clickhouse", effDB}, {"elasticsearch", effDB}, {"opensearch", effDB}, {"meilisearch", effDB}, {"typesense", effDB}, {"solr", effDB}, {"neo4j", effDB}, {"couchdb", effDB}, {"couchbase", effDB}, {"influxdb", effDB}, {"questdb", effDB}, {"qdrant", effDB}, {"weaviate", effDB}, {"milvus", effDB}, {"chroma", effDB}, {"surrealdb", effDB}, {"arangodb", effDB}, {"etcd", effDB}, {"consul", effDB}, {"zookeeper", effDB}, {"yugabyte", effDB}, {"tidb", effDB}, {"vitess", effDB}, {"rethinkdb", effDB}, {"dgraph", effDB}, {"hasura", effDB}, {"supabase", effDB},
	{"rabbitmq", effQueue}, {"kafka", effQueue}, {"redpanda", effQueue}, {"nats", effQueue}, {"activemq", effQueue}, {"artemis", effQueue}, {"pulsar", effQueue}, {"mosquitto", effQueue}, {"emqx", effQueue}, {"nsq", effQueue}, {"rocketmq", effQueue}, {"temporal", effQueue}, {"beanstalk", effQueue}, {"elasticmq", effQueue | effEmulator}, {"goaws", effQueue | effEmulator},
	{"minio", effBucket}, {"seaweedfs", effBucket}, {"ceph", effBucket}, {"garage", effBucket}, {"s3mock", effBucket | effEmulator}, {"fake-gcs", effBucket | effEmulator}, {"azurite", effBucket | effEmulator},
	{"redis", effCache}, {"valkey", effCache}, {"memcached", effCache}, {"keydb", effCache}, {"dragonfly", effCache}, {"hazelcast", effCache}, {"varnish", effCache},
	{"localstack", effEmulator}, {"dynamodb", effEmulator}, {"moto", effEmulator}, {"emulator", effEmulator}, {"firebase", effEmulator}, {"stripe-mock", effEmulator}, {"wiremock", effEmulator}, {"mailhog", effEmulator}, {"mailpit", effEmulator}, {"mailcatcher", effEmulator}, {"cosmosdb", effEmulator}, {"pubsub", effEmulator}, {"keycloak", effDB}, {"vault", effDB},
}

// imageKind says what a container image serves, by its name; 0: nothing known.
func imageKind(image string) effect {
	image = strings.ToLower(image)
	if i := strings.IndexByte(image, '@'); i >= 0 {
		image = image[:i]
	}
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		image = image[:i]
	}
	name := image
	if i := strings.LastIndexByte(image, '/'); i >= 0 {
		name = image[i+1:]
	}
	for _, k := range imageKinds {
		if strings.Contains(name, k.part) {
			return k.kind
		}
	}
	if strings.Contains(image, "mssql") || strings.Contains(image, "supabase/") {
		return effDB
	}
	return 0
}
