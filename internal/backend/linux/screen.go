package linux

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// screening bounds a look through a tree. Its order is fixed, so the same tree
// always gives the same answer.
type screening struct {
	entries int  // looked at in all
	depth   int  // below the mount
	git     bool // hide .git folders too: their configuration may hold a token
}

var (
	// Packages of a toolchain lie deep, what a person left there lies shallow.
	toolScreen = screening{entries: 30000, depth: 4, git: true}
	seedScreen = screening{entries: 60000, depth: 64}
)

const maxHidden = 128

// secretNames are files and folders that hold credentials by convention.
var secretNames = map[string]bool{
	".netrc": true, "_netrc": true, ".npmrc": true, ".yarnrc.yml": true, ".pypirc": true, ".git-credentials": true, ".dockercfg": true, ".env": true, ".envrc": true,
	"credentials": true, "credentials.toml": true, "credentials.json": true, "credentials.db": true, "credentials.xml": true, "application_default_credentials.json": true,
	"id_rsa": true, "id_dsa": true, "id_ecdsa": true, "id_ed25519": true, "id_ecdsa_sk": true, "id_ed25519_sk": true, ".vault-token": true, ".pgpass": true, ".my.cnf": true, ".s3cfg": true, ".boto": true,
	".terraformrc": true, "kubeconfig": true, ".htpasswd": true, "gradle.properties": true, ".bash_history": true, ".zsh_history": true, ".python_history": true,
	".credentials.json": true, ".claude.json": true, "oauth_creds.json": true, // of agents
	"shadow": true, "shadow-": true, "gshadow": true, "gshadow-": true, "krb5.keytab": true, // readable inside when we are root
	"ssh_host_rsa_key": true, "ssh_host_dsa_key": true, "ssh_host_ecdsa_key": true, "ssh_host_ed25519_key": true,
	".ssh": true, ".gnupg": true, ".aws": true, ".azure": true, ".kube": true, ".docker": true, ".password-store": true, "gcloud": false,
}

// Screen looks through folders that a person granted for sockets and files
// that hold credentials by convention, and returns the mounts with those
// hidden. The findings say what was hidden and where a bound was hit.
func Screen(ctx context.Context, ms []backend.Mount) ([]backend.Mount, []task.Finding, error) {
	var out []backend.Mount
	var fs []task.Finding
	for _, m := range ms {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		sm, f := screen(m, seedScreen, nil)
		if f != nil {
			fs = append(fs, *f)
		}
		if len(sm.Hide) > len(m.Hide) {
			fs = append(fs, task.Finding{ID: "hidden", Axis: task.CRD, Cap: task.MaxLevel(task.CRD), Location: m.Source,
				Text: fmt.Sprintf("%d sockets or credential files in it are hidden: %s", len(sm.Hide)-len(m.Hide), strings.Join(sm.Hide[len(m.Hide):], ", "))})
		}
		out = append(out, sm)
	}
	return out, fs, nil
}

// screen adds to m.Hide. The finding says that not everything was seen.
func screen(m backend.Mount, s screening, saw *sights) (backend.Mount, *task.Finding) {
	hide := append([]string(nil), m.Hide...)
	left := s.entries
	bounded := func(why string) *task.Finding {
		return &task.Finding{ID: "screen-bound", Axis: task.CRD, Cap: task.MaxLevel(task.CRD), Location: m.Source,
			Text: "not all of it was searched for sockets and credentials: " + why, Fix: "grant a smaller folder"}
	}
	level := []string{""}
	for depth := 0; len(level) > 0; depth++ {
		var next []string
		for _, dir := range level {
			saw.lists(filepath.Join(m.Source, dir))
			es, err := os.ReadDir(filepath.Join(m.Source, dir))
			if err != nil && len(es) == 0 {
				continue // what we cannot read, the boundary cannot read either
			}
			for _, e := range es {
				if left--; left < 0 {
					m.Hide = hide
					return m, bounded(fmt.Sprintf("it has more than %d files", s.entries))
				}
				rel := filepath.Join(dir, e.Name())
				mode := e.Type()
				if mode&fs.ModeSymlink == 0 && (mode&fs.ModeSocket != 0 || secretNames[e.Name()] || (s.git && e.Name() == ".git") || rel == "etc/npmrc") {
					if len(hide) >= maxHidden {
						m.Hide = hide
						return m, bounded(fmt.Sprintf("more than %d of them were found", maxHidden))
					}
					hide = append(hide, rel)
					continue
				}
				if mode.IsDir() && depth+1 <= s.depth {
					next = append(next, rel)
				}
			}
		}
		sort.Strings(next)
		level = next
	}
	m.Hide = hide
	return m, nil
}
