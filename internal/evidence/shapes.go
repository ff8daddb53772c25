package evidence

import (
	"math/bits"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
)

// shape is one form that secrets have.
type shape struct {
	kind  string
	hints []string              // one of these occurs (in lower case) wherever re matches
	re    func() *regexp.Regexp // its group "s" is the secret; without one, the whole match
}

// compiled makes an expression when it is first asked for: together they take a
// millisecond and half a megabyte, which most programs that have this package
// never need. That all of them are sound is a test's to say.
func compiled(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
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
	{"private-key", []string{"private key"}, compiled(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`)},
	{"private-key", []string{"age-secret-key-"}, compiled(`AGE-SECRET-KEY-1[A-Z0-9]{20,}`)},
	{"aws", []string{"akia", "asia", "agpa", "aida", "aroa", "anpa", "anva", "aipa"}, compiled(`\b(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA|ANVA|AIPA)[A-Z0-9]{16}\b`)},
	{"github", []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"}, compiled(`\b(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}`)},
	{"gitlab", []string{"gl"}, compiled(`\bgl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[A-Za-z0-9_.-]{16,}`)},
	{"slack", []string{"xox", "xapp-", "hooks.slack.com"}, compiled(`\b(?:xox[a-z](?:\.xox[a-z])?-|xapp-)[A-Za-z0-9-]{10,}|hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]+`)},
	{"npm", []string{"npm_"}, compiled(`\bnpm_[A-Za-z0-9]{30,}`)},
	{"pypi", []string{"pypi-"}, compiled(`\bpypi-[A-Za-z0-9_-]{32,}`)},
	{"anthropic", []string{"sk-ant-"}, compiled(`\bsk-ant-[A-Za-z0-9_-]{16,}`)},
	{"openai", []string{"sk-"}, compiled(`\bsk-[A-Za-z0-9_-]{20,}`)},
	{"google", []string{"aiza", "ya29.", "gocspx-", "1//0"}, compiled(`\bAIza[A-Za-z0-9_-]{30,}|\bya29\.[A-Za-z0-9_-]{16,}|\bGOCSPX-[A-Za-z0-9_-]{20,}|\b1//0[A-Za-z0-9_-]{30,}`)},
	{"stripe", []string{"sk_", "rk_", "whsec_"}, compiled(`\b(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9]{16,}`)},
	{"token", []string{"hf_", "dop_v1_", "dckr_pat_", "sg.", "shpat_", "pul-", "sntrys_", "lin_api_", "hvs."}, compiled(`\b(?:hf_[A-Za-z0-9]{30,}|dop_v1_[a-f0-9]{40,}|dckr_pat_[A-Za-z0-9_-]{20,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|shpat_[a-f0-9]{32}|pul-[a-f0-9]{40}|sntrys_[A-Za-z0-9_=+/-]{30,}|lin_api_[A-Za-z0-9]{30,}|hvs\.[A-Za-z0-9_-]{20,})`)},
	{"jwt", []string{"eyj"}, compiled(`\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*){1,3}`)},
	{"url", []string{"://"}, compiled(`(://[^\s/:@?#"'<>\[]*:)(?P<s>[^\s/"'<>]+)@`)},
	{"url", []string{"://"}, compiled(`(://)(?P<s>[^\s/:@?#"'<>\[]{16,})@`)},
	{"authorization", []string{"authorization"}, compiled(`(?i)(authorization["']?\s*[:=]\s*["']?digest\s+)(?P<s>[^\r\n]+)`)},
	{"authorization", []string{"authorization"}, compiled(`(?i)(authorization["']?\s*[:=]\s*["']?(?:(?:basic|bearer|digest|token|negotiate|apikey|aws4-hmac-sha256)\s+)?)(?P<s>[^\s"'][^\r\n"']*)`)},
	{"authorization", []string{"bearer"}, compiled(`(?i)(\bbearer\s+)(?P<s>[A-Za-z0-9._~+/=-]{12,})`)},
	{"header", []string{"cookie", "x-", "private-token"}, compiled(`(?i)(\b(?:set-cookie|cookie|private-token|x-[a-z-]*(?:key|token|secret|auth)[a-z-]*)["']?:\s*["']?)(?P<s>[^\s"'][^\r\n"']*)`)},
	{"value", words, compiled(`(?i)(--?(?:[a-z0-9-]*-)?` + word + `\s+)` + val)},
	{"value", words, compiled(`(?i)(` + word + `[a-z0-9_.-]*["']?\s*(?:[=:]|:=|=>)\s*)` + val)},
	{"value", envWords, compiled(`(\b` + envName + `=)` + val)},
	{"value", []string{"accountkey=", "sig="}, compiled(`(?i)(\b(?:AccountKey|SharedAccessSignature|sig)=)(?P<s>[A-Za-z0-9+/=%]{20,})`)},
}

func (p *shape) redact(s string) (string, int) {
	if p.kind == "url" && strings.IndexByte(s, '@') < 0 {
		return s, 0
	}
	re := p.re()
	at := re.FindAllStringSubmatchIndex(s, -1)
	if at == nil {
		return s, 0
	}
	group := 2 * max(0, re.SubexpIndex("s"))
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

// looks is a set of shapes, by their places in the list.
type looks uint32

// beginnings say, for each of the first three characters of a hint, in any case,
// which shapes have a hint with that character there. They are a few kilobytes, and
// spare each text a search for seventy hints.
var beginnings = sync.OnceValue(func() *[3][256]looks {
	var t [3][256]looks
	for i := range shapes {
		for _, h := range shapes[i].hints {
			for at := range t {
				if at >= len(h) { // so short a hint says nothing of what follows
					for c := range t[at] {
						t[at][c] |= 1 << i
					}
					continue
				}
				t[at][h[at]] |= 1 << i
				if 'a' <= h[at] && h[at] <= 'z' {
					t[at][h[at]-'a'+'A'] |= 1 << i
				}
			}
		}
	}
	return &t
})

// mayMatch says which shapes may be in s: those of which a hint is. It is one look
// that spares most strings the expressions.
func mayMatch(s string) (found looks) {
	t := beginnings()
	for i := range len(s) {
		at := t[0][s[i]] &^ found
		if at == 0 {
			continue
		}
		second, third := byte(0), byte(0)
		if i+1 < len(s) {
			second = s[i+1]
		}
		if i+2 < len(s) {
			third = s[i+2]
		}
		for at &= t[1][second] & t[2][third]; at != 0; at &= at - 1 {
			n := bits.TrailingZeros32(uint32(at))
			for _, h := range shapes[n].hints {
				if len(s)-i >= len(h) && strings.EqualFold(s[i:i+len(h)], h) {
					found |= 1 << n
					break
				}
			}
		}
	}
	return found
}

// hinted reports whether one of hints, in any case, is in s.
func hinted(s string, hints []string) bool {
	for _, h := range hints {
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
	secretNameRE = compiled(`(?i)` + word + `$|^` + word + `|^(?:[A-Z0-9_]*_)?authorization$|^(?:set-)?cookie$`)
	secretEnvRE  = compiled(`^` + envName + `$`)
	secretFlagRE = compiled(`(?i)^--?(?:[a-z0-9-]*-)?` + word + `$`)
)

// mayName spares most names the expression. One beyond ASCII may have a letter
// that only the expression knows to be another form of ours.
func mayName(name string, hints []string) bool {
	return hinted(name, hints) || strings.IndexFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0
}

// nameWords are hints for secretNameRE.
var nameWords = append([]string{"authorization", "cookie"}, words...)

// secretName reports whether a value called name is a secret.
func secretName(name string) bool {
	return mayName(name, nameWords) && secretNameRE().MatchString(name) ||
		name != "" && 'A' <= name[0] && name[0] <= 'Z' && secretEnvRE().MatchString(name)
}

// secretFlag reports whether the argument after arg is a secret.
func secretFlag(arg string) bool {
	return strings.HasPrefix(arg, "-") && mayName(arg, words) && secretFlagRE().MatchString(arg)
}
