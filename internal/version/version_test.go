package version

import "testing"

func TestUnstampedNeverEmpty(t *testing.T) {
	if Version() == "" {
		t.Fatal("a build without stamps has no version")
	}
}

func TestString(t *testing.T) {
	defer func(v, c string) { version, commit = v, c }(version, commit)
	for _, c := range []struct{ version, commit, want string }{
		{"1.2.3", "0123456789abcdef0123456789abcdef01234567", "1.2.3 (0123456789ab)"},
		{"1.2.3", "0123456789abcdef0123456789abcdef01234567-dirty", "1.2.3 (0123456789ab-dirty)"},
		{"1.2.3", "abc", "1.2.3 (abc)"},
	} {
		version, commit = c.version, c.commit
		if got := String(); got != c.want {
			t.Errorf("String() = %q, want %q", got, c.want)
		}
	}
}
