package broker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

func TestSources(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	var ran []string
	r := Reader{
		Getenv: func(k string) string {
			return map[string]string{"TOKEN": "from-env-1", "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "verysecret", "SHORT": "abc", "LINES": "ab\ncdefgh"}[k]
		},
		Run: func(_ context.Context, argv []string) ([]byte, error) {
			ran = argv
			switch argv[0] {
			case "/bin/fails":
				return []byte("leaked"), errors.New("it ended with status 1")
			case "/bin/pair":
				return []byte(`{"Version":1,"AccessKeyId":"ASIAEXAMPLE","SecretAccessKey":"secretsecret","SessionToken":"sessionsession"}`), nil
			case "/bin/long":
				return make([]byte, MaxSecret+1), nil
			}
			return []byte("from-command\n"), nil
		},
	}
	link := filepath.Join(dir, "fifo-ish")
	if err := os.Symlink("/dev/zero", link); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		h          Handle
		want, fail string
		id         string
	}{
		"variable":        {h: Handle{From: Source{Env: "TOKEN"}}, want: "from-env-1"},
		"no variable":     {h: Handle{From: Source{Env: "NONE"}}, fail: "no variable NONE"},
		"short":           {h: Handle{From: Source{Env: "SHORT"}}, fail: "shorter than 8"},
		"two lines":       {h: Handle{From: Source{Env: "LINES"}}, fail: "second line"},
		"file":            {h: Handle{From: Source{File: write("good", "from-file\n", 0o600)}}, want: "from-file"},
		"file of a group": {h: Handle{From: Source{File: write("group", "from-file\n", 0o640)}}, fail: "can be read by others"},
		"file of all":     {h: Handle{From: Source{File: write("all", "from-file\n", 0o604)}}, fail: "can be read by others"},
		"empty file":      {h: Handle{From: Source{File: write("empty", "\n", 0o600)}}, fail: "is empty"},
		"no file":         {h: Handle{From: Source{File: filepath.Join(dir, "none")}}, fail: "no such file"},
		"device":          {h: Handle{From: Source{File: link}}, fail: "neither a file"},
		"folder":          {h: Handle{From: Source{File: dir}}, fail: "is not a file"},
		"command":         {h: Handle{From: Source{Command: []string{"/bin/x", "y"}}}, want: "from-command"},
		"command fails":   {h: Handle{From: Source{Command: []string{"/bin/fails"}}}, fail: "status 1"},
		"command prints":  {h: Handle{From: Source{Command: []string{"/bin/long"}}}, fail: "longer than"},
		"keyring":         {h: Handle{From: Source{Keyring: map[string]string{"b": "2", "a": "1"}}}, want: "from-command"},
		"pair variables":  {h: Handle{As: SigV4, From: Source{Env: "AWS_ACCESS_KEY_ID"}}, want: "verysecret", id: "AKIAEXAMPLE"},
		"pair JSON":       {h: Handle{As: SigV4, From: Source{Command: []string{"/bin/pair"}}}, want: "secretsecret", id: "ASIAEXAMPLE"},
		"no pair":         {h: Handle{As: SigV4, From: Source{Env: "TOKEN"}}, fail: "not a key's id"},
		"nowhere":         {h: Handle{}, fail: "nothing is read"},
	} {
		t.Run(name, func(t *testing.T) {
			c.h.Name = "h"
			s, err := r.read(t.Context(), &c.h)
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) || !strings.Contains(err.Error(), "the credential h") || task.HintOf(err) == "" {
					t.Fatalf("%v, want %q", err, c.fail)
				}
				if strings.Contains(err.Error(), "from-") || strings.Contains(err.Error(), "leaked") || strings.Contains(err.Error(), "abc") {
					t.Fatalf("the error tells what was read: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if string(s.value) != c.want || string(s.id) != c.id {
				t.Errorf("%q %q", s.id, s.value)
			}
			v := s.value
			s.wipe()
			if strings.Trim(string(v), "\x00") != "" {
				t.Errorf("%q is left", v)
			}
		})
	}
	if _, err := r.read(t.Context(), &Handle{From: Source{Keyring: map[string]string{"b": "2", "a": "1"}}}); err != nil || strings.Join(ran, " ") != "secret-tool lookup a 1 b 2" {
		t.Errorf("%v, ran %q", err, ran)
	}
	if _, err := (Reader{}).read(t.Context(), &Handle{Name: "h", From: Source{Command: []string{"/bin/x"}}}); err == nil {
		t.Error("a reader of nothing ran a program")
	}
}

func TestCovers(t *testing.T) {
	h := Handle{To: []Dest{{Host: "a.example", Port: 443, Methods: []string{"GET"}, Path: "/me/repo"}, {Host: "b.example", Port: 8443}, {Port: 443}}}
	for _, c := range []struct {
		host         string
		port         uint16
		method, path string
		want         bool
	}{
		{"a.example", 443, "GET", "/me/repo", true}, {"a.example", 443, "GET", "/me/repo/x", true},
		{"a.example", 443, "POST", "/me/repo", false}, {"a.example", 443, "get", "/me/repo", false},
		{"a.example", 443, "GET", "/me/repo2", false}, {"a.example", 443, "GET", "/me", false}, {"a.example", 443, "GET", "/", false},
		{"a.example", 443, "GET", "/me/repo/../other", false}, {"a.example", 443, "GET", "/me/repo/%2e%2e/other", false}, {"a.example", 443, "GET", "/me/repo/.%2E/other", false},
		{"a.example", 443, "GET", "/me/repo%2fx", false}, {"a.example", 443, "GET", "/me/repo/..;/x", false}, {"a.example", 443, "GET", `/me/repo/..\x`, false},
		{"a.example", 443, "GET", "/me/repo//x", false}, {"a.example", 443, "GET", "/me/repo/%252e%252e/x", false}, {"a.example", 443, "GET", "//me/repo", false}, {"a.example", 443, "GET", "/ME/repo", false},
		{"a.example", 80, "GET", "/me/repo", false}, {"x.a.example", 443, "GET", "/me/repo", false}, {"", 443, "GET", "/", false},
		{"b.example", 8443, "DELETE", "/any/../thing", true}, {"b.example", 443, "GET", "/", false},
	} {
		if got := h.covers(c.host, c.port, c.method, c.path); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if (&Handle{}).covers("", 0, "GET", "/") {
		t.Error("the zero handle covers something")
	}
	for h, want := range map[asking]Approve{{true, Never}: Each, {false, ""}: Each, {false, Once}: Once, {false, Never}: Never, {false, "x"}: Each} {
		if got := (&Handle{Prod: h.prod, Approve: h.approve}).asks(); got != want {
			t.Errorf("%+v: %s", h, got)
		}
	}
}

type asking struct {
	prod    bool
	approve Approve
}
