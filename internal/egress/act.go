package egress

import (
	"path"
	"strconv"
	"strings"
)

// Act is what a request does that others see, or that nobody takes back. It is
// told by its form, so only of requests that are read: what a server makes of any
// other, nobody here knows. The set is closed.
type Act string

// The acts. The zero Act is none that is known.
const (
	ActPush    Act = "push"    // of commits, tags or branches
	ActPublish Act = "publish" // of a package, an image, a release
	ActDelete  Act = "delete"
	ActChange  Act = "change" // of something at a code host: an issue, a merge, a setting
	ActMutate  Act = "mutate" // a mutation of GraphQL
)

// Acts lists them.
var Acts = []Act{ActPush, ActPublish, ActDelete, ActChange, ActMutate}

// codeHosts are the interfaces of code hosts for programs.
var codeHosts = map[string]bool{"api.github.com": true, "gitlab.com": true, "api.bitbucket.org": true, "codeberg.org": true, "gitea.com": true, "git.sr.ht": true, "dev.azure.com": true}

// codeAPIs are where the same interfaces are at a host of one's own.
var codeAPIs = []string{"/api/v3/repos/", "/api/v3/orgs/", "/api/v4/projects/", "/api/v4/groups/", "/api/v1/repos/", "/api/v1/orgs/"}

// publishers are programs that say by name who they are when they publish.
var publishers = []string{"npm/", "pnpm/", "yarn/", "bun/", "twine/", "uv/", "poetry/", "flit/", "hatch/", "cargo", "apache-maven", "gradle", "nuget", "ruby, rubygems", "helm/"}

// actOf tells what a request does. maybe says that its body has yet to be looked
// at: it may do nothing.
func (g *Gate) actOf(h *head, d Dest, target string) (a Act, maybe bool) {
	path, query, _ := strings.Cut(target, "?")
	path, query = meantPath(path), decoded(query)
	method := meantMethod(h, query)
	name := d.Host.Name()
	writes := method == "POST" || method == "PUT" || method == "PATCH"
	switch {
	case method == "DELETE":
		return ActDelete, false
	case method == "POST" && strings.HasSuffix(path, "/git-receive-pack"):
		return ActPush, true
	case (method == "PUT" || method == "MOVE") && strings.Contains(path, "/refs/"): // git over WebDAV
		return ActPush, false
	case strings.HasSuffix(path, "/graphql") && (method == "POST" || strings.Contains(strings.ToLower(query), "mutation")):
		return ActMutate, method == "POST"
	case !writes:
		return "", false
	case g.offered(h, name, method, path):
		return ActPublish, false
	case codeHosts[name]:
		return ActChange, false
	}
	for _, p := range codeAPIs {
		if strings.HasPrefix(path, p) {
			return ActChange, false
		}
	}
	return "", false
}

// decoded takes the codes out of a part of a URL, also where they were encoded
// again. What is no code stays.
func decoded(s string) string {
	for range 4 {
		if !strings.Contains(s, "%") {
			break
		}
		var b strings.Builder
		for i := 0; i < len(s); i++ {
			if s[i] == '%' && i+2 < len(s) {
				if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
					b.WriteByte(byte(n))
					i += 2
					continue
				}
			}
			b.WriteByte(s[i])
		}
		s = b.String()
	}
	return s
}

// meantPath is a path as the most lenient of servers reads it: in small letters,
// without codes, parameters of its parts, and parts that lead nowhere.
func meantPath(s string) string {
	s = strings.ToLower(strings.ReplaceAll(decoded(s), "\\", "/"))
	s, _, _ = strings.Cut(s, "?") // it was encoded
	s, _, _ = strings.Cut(s, "\x00")
	parts := strings.Split(s, "/")
	for i, p := range parts {
		p, _, _ = strings.Cut(p, ";")
		parts[i] = strings.TrimRight(p, " \t\r\n\v\f")
	}
	return path.Clean("/" + strings.Join(parts, "/"))
}

// meantMethod is the method, or what some servers take for it instead.
func meantMethod(h *head, query string) string {
	for _, f := range h.fields {
		switch strings.ToLower(strings.ReplaceAll(f.name, "_", "-")) {
		case "x-http-method-override", "x-http-method", "x-method-override":
			return strings.ToUpper(f.value)
		}
	}
	for pair := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
		if name, value, _ := strings.Cut(pair, "="); strings.EqualFold(name, "_method") && h.method == "POST" {
			return strings.ToUpper(value)
		}
	}
	return h.method
}

// offered says whether something is offered to others by it.
func (g *Gate) offered(h *head, name, method, path string) bool {
	switch {
	case method == "PUT" && strings.HasPrefix(path, "/v2/") && strings.Contains(path, "/manifests/"): // an image, or a chart
		return true
	case method == "PUT" && strings.HasPrefix(path, "/api/v1/crates/"), method == "POST" && strings.HasPrefix(path, "/api/v1/gems"), method == "PUT" && strings.HasPrefix(path, "/api/v2/package"),
		method == "POST" && strings.HasSuffix(path, "/legacy"):
		return true
	case strings.HasPrefix(path, "/-/"): // npm: who somebody is, what is known to be insecure; and tags of what is published
		return strings.Contains(path, "/dist-tags/") && method != "PATCH"
	case g.Registry != nil && name != "" && g.Registry(name): // what is written there is published
		return true
	}
	agent, command := "", ""
	for _, f := range h.fields {
		switch strings.ToLower(f.name) {
		case "user-agent":
			agent = strings.ToLower(f.value)
		case "npm-command":
			command = f.value
		}
	}
	if command != "" && method == "PUT" {
		return true
	}
	for _, p := range publishers {
		if strings.HasPrefix(agent, p) && (method == "PUT" || field1(h, "content-type", "multipart/")) {
			return true
		}
	}
	return false
}

// field1 says whether a field begins so.
func field1(h *head, name, begin string) bool {
	for _, f := range h.fields {
		if strings.EqualFold(f.name, name) && strings.HasPrefix(strings.ToLower(f.value), begin) {
			return true
		}
	}
	return false
}
