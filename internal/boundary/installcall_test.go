package boundary

import "testing"

// TestInstallerCall: what a person reads names the package manager.
func TestInstallerCall(t *testing.T) {
	want := map[string]string{"npm": "npm ci", "pip": "pip install", "go": "go mod", "uv": "uv sync"}
	for _, i := range installers {
		if got := i.call(); want[i.name] != "" && got != want[i.name] || got == "sh -c" {
			t.Errorf("%s: %q", i.name, got)
		}
	}
}
