package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

func TestCredentialCheck(t *testing.T) {
	to := []Endpoint{{Host: "a.example"}}
	env := Origination{Env: "TOKEN"}
	for name, c := range map[string]struct {
		c    Credential
		want string // of the error; empty: none
	}{
		"bearer":              {Credential{Read: env, As: "bearer", To: to, Env: []string{"T"}}, ""},
		"a model's API":       {Credential{Read: env, As: "anthropic"}, ""},
		"always":              {Credential{Read: env, As: "bearer", To: to, Inject: "always"}, ""},
		"basic":               {Credential{Read: env, As: "basic", User: "me", To: to, Env: []string{"T"}}, ""},
		"git":                 {Credential{Read: env, As: "git", To: to}, ""},
		"ssh":                 {Credential{Read: Origination{Agent: yes()}, As: "ssh", To: to, Keys: []string{"work"}, HostKeys: []string{"ssh-ed25519 AAAA"}, Sign: []string{"git"}, User: "git"}, ""},
		"ssh from a file":     {Credential{Read: Origination{File: "/k"}, As: "ssh", To: to}, ""},
		"every key":           {Credential{Read: Origination{Agent: yes()}, As: "ssh", To: to}, "only those that are named"},
		"keys of HTTP":        {Credential{Read: env, As: "bearer", To: to, Env: []string{"T"}, Keys: []string{"work"}}, "of nothing else"},
		"host key":            {Credential{Read: Origination{File: "/k"}, As: "ssh", To: to, HostKeys: []string{"AAAA"}}, "KIND TEXT"},
		"path of SSH":         {Credential{Read: Origination{File: "/k"}, As: "ssh", To: []Endpoint{{Host: "a.example", Path: "/x"}}}, "without methods and path"},
		"variable of SSH":     {Credential{Read: Origination{File: "/k"}, As: "ssh", To: to, Env: []string{"T"}}, "no placeholder"},
		"sigv4":               {Credential{Read: env, As: "sigv4", Region: "r", Service: "s3", To: to}, ""},
		"nothing":             {Credential{}, "as: it says not how"},
		"no source":           {Credential{As: "bearer", To: to, Env: []string{"T"}}, "one of env, file"},
		"two sources":         {Credential{Read: Origination{Env: "A", File: "/x"}, As: "bearer", To: to, Env: []string{"T"}}, "one of env, file"},
		"relative command":    {Credential{Read: Origination{Command: Argv{"gh"}}, As: "bearer", To: to, Env: []string{"T"}}, "absolute path"},
		"option as attribute": {Credential{Read: Origination{Keyring: map[string]string{"--x": "y"}}, As: "bearer", To: to, Env: []string{"T"}}, "no attribute"},
		"no destination":      {Credential{Read: env, As: "bearer", Env: []string{"T"}}, "to: it names no destination"},
		"no placeholder":      {Credential{Read: env, As: "bearer", To: to}, "env: it names no variable"},
		"prod never asked":    {Credential{Read: env, As: "bearer", To: to, Env: []string{"T"}, Approve: "never"}, "class prod is asked about each time"},
		"another word":        {Credential{Read: env, As: "bearer", To: to, Env: []string{"T"}, Class: "test"}, "class"},
		"no header":           {Credential{Read: env, As: "header", To: to, Env: []string{"T"}}, "header: as: header names"},
		"header Host":         {Credential{Read: env, As: "header", Header: "host", To: to, Env: []string{"T"}}, "no header field that"},
		"header of the proxy": {Credential{Read: env, As: "header", Header: "Proxy-Authorization", To: to, Env: []string{"T"}}, "no header field that"},
		"header of bearer":    {Credential{Read: env, As: "bearer", Header: "X-Y", To: to, Env: []string{"T"}}, "nothing else does"},
		"no user":             {Credential{Read: env, As: "basic", To: to, Env: []string{"T"}}, "user: as: basic names it"},
		"a user with a colon": {Credential{Read: env, As: "basic", User: "a:b", To: to, Env: []string{"T"}}, "without a colon"},
		"no region":           {Credential{Read: env, As: "sigv4", Service: "s3", To: to}, "region, service"},
		"agent for HTTP":      {Credential{Read: Origination{Agent: yes()}, As: "bearer", To: to, Env: []string{"T"}}, "keys of SSH"},
		"PATH":                {Credential{Read: env, As: "bearer", To: to, Env: []string{"PATH"}}, "no variable that"},
		"LD_PRELOAD":          {Credential{Read: env, As: "bearer", To: to, Env: []string{"T"}, Set: map[string]string{"LD_PRELOAD": "/x"}}, "no variable that"},
		"twice":               {Credential{Read: env, As: "bearer", To: to, Env: []string{"T"}, Set: map[string]string{"T": "x"}}, "there twice"},
		"for ever":            {Credential{Read: env, As: "bearer", To: to, Env: []string{"T"}, Lifetime: Duration(25 * time.Hour)}, "24h at most"},
		"form":                {Credential{Read: env, As: "bearer", To: to, Env: []string{"T"}, Form: "a b"}, "no beginning of a token"},
	} {
		err := c.c.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestHostPort(t *testing.T) {
	for s, want := range map[string]string{
		"A.example": "a.example 443", "a.example:8443": "a.example 8443", "10.0.0.1": "10.0.0.1 443", "10.0.0.1:80": "10.0.0.1 80", "[::1]:8443": "::1 8443", "2001:db8::1": "2001:db8::1 443", "a.example.": "a.example 443",
		"": "", "*.example": "", "a.example:": "", "a.example:0": "", "a.example:99999": "", "https://a.example": "", "a.example/x": "", "[::1": "", "1.2.3": "", "user@a.example": "", "::ffff:1.2.3.4": "",
	} {
		var h HostPort
		err := h.UnmarshalText([]byte(s))
		got := ""
		if err == nil {
			host, port := h.Split(443)
			got = host + " " + Port{port, port}.String()
		}
		if got != want {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
}

// A handle of somebody less trusted never takes the place of another's, and those
// who may not define one are told who may.
func TestHandles(t *testing.T) {
	doc := func(env string) *Document {
		return &Document{Version: Version, Credentials: Handles{"npm": {Read: Origination{Env: env}, As: "bearer", To: []Endpoint{{Host: "a.example"}}, Env: []string{"T"}}}}
	}
	r := mustMerge(t, here, Sourced{Document: doc("OPERATOR"), Source: task.SourceOperator, File: "o"}, Sourced{Document: doc("USER"), Source: task.SourceUser, File: "u"}, Shipped())
	if len(r.Credentials) != 1 || r.Credentials[0].Read.Env != "OPERATOR" {
		t.Errorf("%+v", r.Credentials)
	}
	for _, s := range []task.Source{task.SourceAgent, task.SourceProject, task.SourceTask, task.SourceModel, task.SourceFlag, task.SourceEnv} {
		_, err := Merge([]Sourced{{Document: doc("X"), Source: s, File: "low"}, Shipped()}, here)
		if task.CodeOf(err) != task.CodePolicy || !strings.Contains(task.HintOf(err), "your own policy file") {
			t.Errorf("%s: %v (%s)", s, err, task.HintOf(err))
		}
	}
	if w := (Credential{As: "bearer", Approve: "never"}).Whole(); w.Class != "prod" || w.Approve != "each" {
		t.Errorf("%+v", w)
	}
}
