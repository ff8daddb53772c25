package boundary

import "testing"

func TestCleanPath(t *testing.T) {
	for _, c := range []struct{ name, path, home, want string }{
		{"as it is", "/usr/bin:/bin", "/home/u", "/usr/bin:/bin"},
		{"twice", "/usr/bin:/bin:/usr/bin", "", "/usr/bin:/bin"},
		{"relative and empty", ":bin:/bin:.:", "", "/bin"},
		{"a toolchain of the home", "/home/u/.cargo/bin:/bin", "/home/u", "/home/u/.cargo/bin:/bin"},
		{"a client's own programs", "/home/u/.codex/tmp/arg0/x:/home/u/.claude:/bin", "/home/u", "/bin"},
		{"written otherwise", "/home/u//.codex/../.codex/x:/bin", "/home/u/", "/bin"},
		{"not below", "/home/u/.codexes/bin:/srv/.codex/bin:/bin", "/home/u", "/home/u/.codexes/bin:/srv/.codex/bin:/bin"},
		{"no home", "/.codex/x:/bin", "", "/.codex/x:/bin"},
	} {
		if got := cleanPath(c.path, c.home); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
