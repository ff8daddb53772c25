package task

import "testing"

func TestSimpleBegins(t *testing.T) {
	for _, c := range []struct {
		s         Simple
		words     []string
		sure, may bool
	}{
		{Simple{}, []string{"docker"}, false, true},
		{Simple{Program: "docker", Argv: []string{"/usr/bin/docker", "push", "x"}}, []string{"docker", "push"}, true, true},
		{Simple{Program: "docker", Argv: []string{"docker", "ps"}}, []string{"docker", "push"}, false, false},
		{Simple{Program: "docker", Argv: []string{"docker"}}, []string{"docker", "push"}, false, false},
		{Simple{Program: "docker", Argv: []string{"docker"}, Partial: true}, []string{"docker", "push"}, false, true},
		{Simple{Program: "docker", Argv: []string{"docker", "ps"}, Partial: true}, []string{"docker", "push"}, false, false},
		{Simple{Program: "ls", Argv: []string{"ls"}, Partial: true}, []string{"docker"}, false, false},
		{Simple{Program: "bash", Argv: []string{"bash"}, Opaque: true}, []string{"docker"}, false, true},
		{Simple{Program: "bash", Argv: []string{"bash"}, Opaque: true}, []string{"bash"}, false, true},
		{Simple{Program: "make", Argv: []string{"make", "x"}, RunsCode: true}, []string{"docker"}, false, false},
		{Simple{Program: "make", Argv: []string{"make", "x"}, RunsCode: true}, []string{"make"}, true, true},
		{Simple{Program: "ls", Argv: []string{"ls"}}, nil, false, true},
	} {
		if sure, may := c.s.Begins(c.words); sure != c.sure || may != c.may {
			t.Errorf("%+v begins %q: %v %v, want %v %v", c.s, c.words, sure, may, c.sure, c.may)
		}
	}
}
