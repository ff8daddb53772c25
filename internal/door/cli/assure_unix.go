//go:build unix

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// askSystem has the system ask for the user's password. A sudo that asks for
// none proves nothing and is refused.
func (a *app) askSystem(ctx context.Context) error {
	sudo, err := fixedProgram("sudo")
	if err != nil {
		return err
	}
	if exec.CommandContext(ctx, sudo, "-k", "-n", "true").Run() == nil {
		return task.Errorf(task.CodeDenied, "cli", "sudo asks for no password here: that it agrees proves nothing").WithHint("accept at a terminal, or with --key")
	}
	cmd := exec.CommandContext(ctx, sudo, "-k", "-v")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.cfg.Stdin, a.cfg.Stderr, a.cfg.Stderr
	if err := cmd.Run(); err != nil {
		return task.Errorf(task.CodeDenied, "cli", "the system did not confirm who you are: %w", err)
	}
	return nil
}

// signatureSpace keeps a signature made for an acceptance from counting elsewhere.
const signatureSpace = "caisson-acceptance"

// signWith signs the canonical form of q with a security key and returns its
// fingerprint and the signature.
func (a *app) signWith(ctx context.Context, key string, q *task.AcceptRequest) (fingerprint, signature string, err error) {
	fail := func(format string, args ...any) (string, string, error) {
		return "", "", task.Errorf(task.CodeDenied, "cli", format, args...)
	}
	gen, err := fixedProgram("ssh-keygen")
	if err != nil {
		return "", "", err
	}
	key = under(a.cfg.Dir, key)
	out, err := exec.CommandContext(ctx, gen, "-l", "-f", key).Output()
	f := strings.Fields(string(out))
	if err != nil || len(f) < 3 {
		return fail("%s is not a key that ssh-keygen reads", clean(key))
	}
	if kind := f[len(f)-1]; !strings.HasSuffix(strings.Trim(kind, "()"), "-SK") {
		return fail("%s is a key %s: only one that lives in a security key (…-SK) wants a touch", clean(key), clean(kind))
	}
	text, err := json.Marshal(q)
	if err != nil {
		return fail("%v", err)
	}
	dir, err := os.MkdirTemp("", "caisson-accept-")
	if err != nil {
		return fail("%v", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "acceptance.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return fail("%v", err)
	}
	sign := exec.CommandContext(ctx, gen, "-Y", "sign", "-f", key, "-n", signatureSpace, file)
	sign.Stdin, sign.Stdout, sign.Stderr = a.cfg.Stdin, a.cfg.Stderr, a.cfg.Stderr
	if err := sign.Run(); err != nil {
		return fail("the key did not sign: %v", err)
	}
	sig, err := os.ReadFile(file + ".sig")
	if err != nil {
		return fail("%v", err)
	}
	check := exec.CommandContext(ctx, gen, "-Y", "check-novalidate", "-n", signatureSpace, "-s", file+".sig")
	check.Stdin = bytes.NewReader(text)
	if said, err := check.CombinedOutput(); err != nil || !strings.Contains(string(said), f[1]) {
		return fail("the signature is not that of %s", f[1])
	}
	return f[1], string(sig), nil
}

// fixedProgram finds a program of the system's own: PATH may lead anywhere.
func fixedProgram(name string) (string, error) {
	for _, d := range []string{"/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/opt/homebrew/bin"} {
		if p := filepath.Join(d, name); program(p) {
			return p, nil
		}
	}
	return "", task.Errorf(task.CodeUnavailable, "cli", "there is no %s on this machine", name)
}
