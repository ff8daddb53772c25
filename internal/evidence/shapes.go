package evidence

import (
	"regexp"
	"strings"
)

// shape is one form that secrets have.
type shape struct {
	kind  string
	hints []string       // one of these occurs (in lower case) wherever re matches
	re    *regexp.Regexp // its group "s" is the secret; without one, the whole match
}

// word is the part of a name that says its value is a secret.
const word = `(?:password|passwd|passphrase|passcode|secret|token|api[_-]?key|apikey|access[_-]?key|private[_-]?key|signing[_-]?key|encryption[_-]?key|credentials?)`

// envName is a name of an environment variable that holds a secret although
// none of the words is in it.
const envName = `(?:[A-Z][A-Z0-9_]*_(?:KEY|PAT|PWD|PASS|CREDS|DSN|AUTH)|SSHPASS|PGPASSWORD|DOCKER_AUTH_CONFIG)`

// words and envWords are hints for names made of the two above.
var (
	words    = []string{"pass", "secret", "token", "api", "key", "credential"}
	envWords = []string{"_key=", "_pat=", "_pwd=", "_pass=", "_creds=", "_dsn=", "_auth=", "sshpass=", "pgpassword=", "docker_auth_config="}
)

// val is a value in quotes, or up to white space or a separator.
const val = `(?P<s>"(?:[^"\\]|\\.)+"|'[^']+'|[^\s"'&;,()<>{}\[\]][^\s"'&;,]*)`

var shapes = []shape{
	{"private-key", []string{"private key"}, regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`)},
	{"private-key", []string{"age-secret-key-"}, regexp.MustCompile(`AGE-SECRET-KEY-1[A-Z0-9]{20,}`)},
	{"aws", []string{"akia", "asia", "agpa", "aida", "aroa", "anpa", "anva", "aipa"}, regexp.MustCompile(`\b(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA|ANVA|AIPA)[A-Z0-9]{16}\b`)},
	{"github", []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"}, regexp.MustCompile(`\b(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}`)},
	{"gitlab", []string{"gl"}, regexp.MustCompile(`\bgl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[A-Za-z0-9_.-]{16,}`)},
	{"slack", []string{"xox", "xapp-", "hooks.slack.com"}, regexp.MustCompile(`\b(?:xox[a-z](?:\.xox[a-z])?-|xapp-)[A-Za-z0-9-]{10,}|hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]+`)},
	{"npm", []string{"npm_"}, regexp.MustCompile(`\bnpm_[A-Za-z0-9]{30,}`)},
	{"pypi", []string{"pypi-"}, regexp.MustCompile(`\bpypi-[A-Za-z0-9_-]{32,}`)},
	{"anthropic", []string{"sk-ant-"}, regexp.MustCompile(`\bsk-ant-[A-Za-z0-9_-]{16,}`)},
	{"openai", []string{"sk-"}, regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{20,}`)},
	{"google", []string{"aiza", "ya29.", "gocspx-", "1//0"}, regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{30,}|\bya29\.[A-Za-z0-9_-]{16,}|\bGOCSPX-[A-Za-z0-9_-]{20,}|\b1//0[A-Za-z0-9_-]{30,}`)},
	{"stripe", []string{"sk_", "rk_", "whsec_"}, regexp.MustCompile(`\b(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9]{16,}`)},
	{"token", []string{"hf_", "dop_v1_", "dckr_pat_", "sg.", "shpat_", "pul-", "sntrys_", "lin_api_", "hvs."}, regexp.MustCompile(`\b(?:hf_[A-Za-z0-9]{30,}|dop_v1_[a-f0-9]{40,}|dckr_pat_[A-Za-z0-9_-]{20,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|shpat_[a-f0-9]{32}|pul-[a-f0-9]{40}|sntrys_[A-Za-z0-9_=+/-]{30,}|lin_api_[A-Za-z0-9]{30,}|hvs\.[A-Za-z0-9_-]{20,})`)},
	{"jwt", []string{"eyj"}, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*){1,3}`)},
	{"url", []string{"://"}, regexp.MustCompile(`(://[^\s/:@?#"'<>\[]*:)(?P<s>[^\s/"'<>]+)@`)},
	{"url", []string{"://"}, regexp.MustCompile(`(://)(?P<s>[^\s/:@?#"'<>\[]{16,})@`)},
	{"authorization", []string{"authorization"}, regexp.MustCompile(`(?i)(authorization["']?\s*[:=]\s*["']?digest\s+)(?P<s>[^\r\n]+)`)},
	{"authorization", []string{"authorization"}, regexp.MustCompile(`(?i)(authorization["']?\s*[:=]\s*["']?(?:(?:basic|bearer|digest|token|negotiate|apikey|aws4-hmac-sha256)\s+)?)(?P<s>[^\s"'][^\r\n"']*)`)},
	{"authorization", []string{"bearer"}, regexp.MustCompile(`(?i)(\bbearer\s+)(?P<s>[A-Za-z0-9._~+/=-]{12,})`)},
	{"header", []string{"cookie", "x-", "private-token"}, regexp.MustCompile(`(?i)(\b(?:set-cookie|cookie|private-token|x-[a-z-]*(?:key|token|secret|auth)[a-z-]*)["']?:\s*["']?)(?P<s>[^\s"'][^\r\n"']*)`)},
	{"value", words, regexp.MustCompile(`(?i)(--?(?:[a-z0-9-]*-)?` + word + `\s+)` + val)},
	{"value", words, regexp.MustCompile(`(?i)(` + word + `[a-z0-9_.-]*["']?\s*(?:[=:]|:=|=>)\s*)` + val)},
	{"value", envWords, regexp.MustCompile(`(\b` + envName + `=)` + val)},
	{"value", []string{"accountkey=", "sig="}, regexp.MustCompile(`(?i)(\b(?:AccountKey|SharedAccessSignature|sig)=)(?P<s>[A-Za-z0-9+/=%]{20,})`)},
}

func (p *shape) redact(s string) (string, int) {
	if !p.mayMatch(s) {
		return s, 0
	}
	at := p.re.FindAllStringSubmatchIndex(s, -1)
	if at == nil {
		return s, 0
	}
	group := 2 * max(0, p.re.SubexpIndex("s"))
	var b strings.Builder
	last, n := 0, 0
	for _, m := range at {
		from, to := m[group], m[group+1]
		// What an earlier shape took is not counted again.
		if strings.HasPrefix(strings.TrimLeft(s[from:to], `"'`), "[redacted:") {
			continue
		}
		b.WriteString(s[last:from])
		b.WriteString(mark(p.kind))
		last = to
		n++
	}
	if n == 0 {
		return s, 0
	}
	b.WriteString(s[last:])
	return b.String(), n
}

// mayMatch is a cheap look that spares most strings the expression.
func (p *shape) mayMatch(s string) bool {
	if p.kind == "url" && strings.IndexByte(s, '@') < 0 {
		return false
	}
	for _, h := range p.hints {
		if containsFold(s, h) {
			return true
		}
	}
	return false
}

// containsFold is strings.Contains for an ASCII lower-case part in any case.
func containsFold(s, part string) bool {
	for i := 0; i+len(part) <= len(s); i++ {
		if s[i]|0x20 == part[0]|0x20 && strings.EqualFold(s[i:i+len(part)], part) {
			return true
		}
	}
	return false
}

var (
	secretNameRE = regexp.MustCompile(`(?i)` + word + `$|^` + word + `|^(?:[A-Z0-9_]*_)?authorization$|^(?:set-)?cookie$`)
	secretEnvRE  = regexp.MustCompile(`^` + envName + `$`)
	secretFlagRE = regexp.MustCompile(`(?i)^--?(?:[a-z0-9-]*-)?` + word + `$`)
)

// secretName reports whether a value called name is a secret.
func secretName(name string) bool {
	return secretNameRE.MatchString(name) || secretEnvRE.MatchString(name)
}

// secretFlag reports whether the argument after arg is a secret.
func secretFlag(arg string) bool { return secretFlagRE.MatchString(arg) }
