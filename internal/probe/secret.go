package probe

import (
	"path/filepath"
	"strings"
)

// secretPlaces are places below a home folder that hold credentials.
var secretPlaces = []string{".ssh", ".aws", ".azure", ".config/gcloud", ".config/gh", ".config/git/credentials", ".config/hub", ".config/containers/auth.json",
	".gnupg", ".netrc", ".git-credentials", ".docker/config.json", ".kube", ".npmrc", ".pypirc", ".cargo/credentials", ".cargo/credentials.toml", ".m2/settings.xml",
	".gradle/gradle.properties", ".terraform.d/credentials.tfrc.json", ".vault-token", ".config/op", ".local/share/keyrings", ".password-store", ".pgpass", ".my.cnf",
	".mozilla", ".config/google-chrome", ".config/chromium", ".thunderbird", ".bash_history", ".zsh_history", ".claude.json", ".claude", ".codex", ".gemini", ".config/fish/fish_variables"}

// InSecretPlace reports whether path is, or lies below, a place of a home folder
// that holds credentials.
func InSecretPlace(home, path string) bool {
	if home == "" {
		return false
	}
	rel, ok := strings.CutPrefix(filepath.Clean(path), strings.TrimSuffix(filepath.Clean(home), "/")+"/")
	if !ok {
		return false
	}
	for _, p := range secretPlaces {
		if rel == p || strings.HasPrefix(rel, p+"/") {
			return true
		}
	}
	return false
}
