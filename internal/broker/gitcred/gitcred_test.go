package gitcred

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var loans = []Loan{{"git.test", "team/repo.git", "bot", "ph-1"}, {"git.test:8443", "", "all", "ph-2"}, {"git.test", "team/repo.git/deep", "deep", "ph-3"}}

func server(t *testing.T) (*Server, *[]string) {
	t.Helper()
	var refused []string
	s, err := New(Config{Loans: func() []Loan { return loans }, Refused: func(what, why string) { refused = append(refused, what+": "+why) }})
	if err != nil {
		t.Fatal(err)
	}
	return s, &refused
}

func TestAnswer(t *testing.T) {
	get := func(lines ...string) string { return "action=get\ntimeout=900\n" + strings.Join(lines, "\n") + "\n" }
	const none = ""
	for _, c := range []struct{ name, request, want, why string }{
		{"the repository", get("protocol=https", "host=git.test", "path=team/repo.git"), "ph-1", none},
		{"below it", get("protocol=https", "host=git.test", "path=team/repo.git/info/lfs"), "ph-1", none},
		{"the longest", get("protocol=https", "host=git.test", "path=team/repo.git/deep/x"), "ph-3", none},
		{"slashes around", get("protocol=https", "host=git.test", "path=/team/repo.git/"), "ph-1", none},
		{"case of the host", get("protocol=https", "host=GIT.test", "path=team/repo.git"), "ph-1", none},
		{"the usual port", get("protocol=https", "host=git.test:443", "path=team/repo.git"), "ph-1", none},
		{"the user that it is for", get("protocol=https", "host=git.test", "path=team/repo.git", "username=bot"), "ph-1", none},
		{"what is not known is passed over", get("capability[]=authtype", "wwwauth[]=Basic realm=x", "wwwauth[]=Bearer", "protocol=https", "host=git.test", "path=team/repo.git"), "ph-1", none},
		{"all of a host", get("protocol=https", "host=git.test:8443"), "ph-2", none},
		{"another repository", get("protocol=https", "host=git.test", "path=team/other.git"), none, "nothing was lent"},
		{"a name that begins alike", get("protocol=https", "host=git.test", "path=team/repo.github"), none, "nothing was lent"},
		{"above it", get("protocol=https", "host=git.test", "path=team"), none, "nothing was lent"},
		{"no path", get("protocol=https", "host=git.test"), none, "nothing was lent"},
		{"another host", get("protocol=https", "host=evil.test", "path=team/repo.git"), none, "nothing was lent"},
		{"another port", get("protocol=https", "host=git.test:444", "path=team/repo.git"), none, "nothing was lent"},
		{"another user", get("protocol=https", "host=git.test", "path=team/repo.git", "username=root"), none, "nothing was lent"},
		{"in the clear", get("protocol=http", "host=git.test", "path=team/repo.git"), none, "only https"},
		{"up and down", get("protocol=https", "host=git.test", "path=team/repo.git/../other.git"), none, "lead elsewhere"},
		{"coded", get("protocol=https", "host=git.test", "path=team/repo.git/%2e%2e/other.git"), none, "two ways"},
		{"empty parts", get("protocol=https", "host=git.test", "path=team//repo.git"), none, "lead elsewhere"},
		{"a NUL", get("protocol=https", "host=git.test\x00.evil.test", "path=team/repo.git"), none, "NUL"},
		{"a carriage return", get("protocol=https", "host=git.test\rhost=evil.test", "path=team/repo.git"), none, "carriage return"},
		{"two hosts", get("protocol=https", "host=evil.test", "host=git.test", "path=team/repo.git"), none, "twice"},
		{"a url beside", get("protocol=https", "host=git.test", "path=team/repo.git", "url=https://evil.test"), none, "url beside"},
		{"a line that is none", get("protocol=https", "host=git.test", "nonsense"), none, "name=value"},
		{"cut", "action=get\nprotocol=https\nhost=git.test", none, "cut"},
		{"nothing", "", none, "for what"},
		{"long", get("protocol=https", "host=git.test", "path="+strings.Repeat("a/", maxRequest)), none, "too long"},
		{"many lines", get(strings.Repeat("x=y\n", maxLines)), none, "too many lines"},
		{"store", "action=store\ntimeout=900\nprotocol=https\nhost=git.test\npath=team/repo.git\nusername=a\npassword=b\n", none, none},
		{"erase", "action=erase\nprotocol=https\nhost=git.test\n", none, none},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, refused := server(t)
			got := string(s.Answer([]byte(c.request)))
			if c.want != none && !strings.HasSuffix(got, "\npassword="+c.want+"\n") || c.want == none && got != "" {
				t.Errorf("answered %q", got)
			}
			if (c.why == none) != (len(*refused) == 0) || !strings.Contains(strings.Join(*refused, "\n"), c.why) {
				t.Errorf("refused %q, want %q", *refused, c.why)
			}
		})
	}
}

// TestGit: git asks by itself, with these settings alone, and others are not asked
// for what was lent.
func TestGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	s, _ := server(t)
	dir, err := os.MkdirTemp("", "g") // short: the path of a socket has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	defer func() {
		s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	config := "[credential]\n\thelper = \"!echo password=theirs; echo username=theirs; echo\"\n"
	for _, kv := range Settings(loans, socket) {
		at, name := kv[0][:strings.LastIndex(kv[0], ".")], kv[0][strings.LastIndex(kv[0], ".")+1:]
		config += "[credential \"" + strings.TrimPrefix(at, "credential.") + "\"]\n\t" + name + " = \"" + kv[1] + "\"\n"
	}
	file := filepath.Join(dir, "config")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"https://git.test/team/repo.git": "ph-1", "https://bot@git.test/team/repo.git": "ph-1", "https://git.test:8443/any": "ph-2",
		"https://git.test/team/other.git": "theirs", "https://evil.test/team/repo.git": "theirs", "https://git.test/team/repo.git/../other.git": "",
	} {
		cmd := exec.Command("git", "credential", "fill")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + file, "GIT_TERMINAL_PROMPT=0"}
		cmd.Dir = dir
		cmd.Stdin = strings.NewReader("url=" + url + "\n\n")
		out, _ := cmd.Output()
		_, got, _ := strings.Cut(string(out), "\npassword=")
		if got = strings.TrimSpace(got); got != want && (want != "" || strings.HasPrefix(got, "ph-")) {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("action=get\nprotocol=https\nhost=git.test\npath=team/repo.git\n"))
	s, err := New(Config{Loans: func() []Loan { return loans[:1] }, Refused: func(string, string) {}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got := string(s.Answer(b)); got != "" && (!strings.Contains(string(b), "https") || !strings.Contains(string(b), "team/repo.git")) {
			t.Errorf("%q is answered with %q", b, got)
		}
	})
}
