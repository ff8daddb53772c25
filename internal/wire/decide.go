package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// decide asks one decision hook. Whatever is not an answer is an error, and an
// error denies. reach are folders that the task, or whoever wrote the repository,
// can change.
func (h *house) decide(ctx context.Context, s policy.Set[policy.Hook], q policy.HookQuestion, reach []string) (policy.HookAnswer, error) {
	in, err := json.Marshal(q)
	if err != nil {
		return policy.HookAnswer{}, err
	}
	most := policy.HookTime
	if t := time.Duration(s.Value.Timeout); t > 0 {
		most = t
	}
	ctx, done := context.WithTimeout(ctx, most)
	defer done()
	var out []byte
	if s.Value.HTTP != "" {
		out, err = askServer(ctx, s.Value.HTTP, in)
	} else {
		out, err = h.askProgram(ctx, s, in, reach)
	}
	if err != nil && ctx.Err() == context.DeadlineExceeded {
		err = fmt.Errorf("it took longer than %s", most)
	}
	if err != nil {
		return policy.HookAnswer{}, err
	}
	return policy.ParseHookAnswer(out)
}

// decideEnv is all that a decision hook gets of an environment: the one that this
// process was started with is not the operator's.
var decideEnv = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/"}

func (h *house) askProgram(ctx context.Context, s policy.Set[policy.Hook], in []byte, reach []string) ([]byte, error) {
	argv := s.Value.Exec
	if len(argv) == 0 || !filepath.IsAbs(argv[0]) {
		return nil, fmt.Errorf("it is neither a program by its absolute path nor a server")
	}
	for _, w := range argv {
		if dir := reached(w, reach); dir != "" {
			return nil, fmt.Errorf("%s lies in %s, where the task or the authors of the repository can change it", w, dir)
		}
	}
	// Root's own, or its author's: a user's hook is one that only they can change.
	var owners []int
	if s.From.Source != task.SourceOperator {
		owners = append(owners, h.who.UID)
	}
	f, err := sys.OpenTrusted(argv[0], owners...)
	if err != nil {
		return nil, err
	}
	i, err := f.Stat()
	_ = f.Close()
	if err != nil || !i.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no program", argv[0])
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = "/", decideEnv
	cmd.Stdin = bytes.NewReader(append(in, '\n'))
	var out, errs limited
	out.left, errs.left = policy.MaxHookAnswer+1, 4<<10
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr, cmd.WaitDelay = newSession(), time.Second
	cmd.Cancel = func() error { return endSession(cmd.Process) }
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%v %s", err, strings.TrimSpace(errs.String()))
	}
	return out.Bytes(), nil
}

// reached returns the folder of reach in which name lies, by its name or by where
// that leads.
func reached(name string, reach []string) string {
	if !filepath.IsAbs(name) {
		return ""
	}
	names := []string{filepath.Clean(name)}
	if to, err := filepath.EvalSymlinks(name); err == nil {
		names = append(names, to)
	}
	for _, dir := range reach {
		if dir == "" {
			continue
		}
		dirs := []string{filepath.Clean(dir)}
		if to, err := filepath.EvalSymlinks(dir); err == nil {
			dirs = append(dirs, to)
		}
		for _, d := range dirs {
			for _, n := range names {
				if n == d || strings.HasPrefix(n, strings.TrimSuffix(d, "/")+"/") {
					return dir
				}
			}
		}
	}
	return ""
}

// roots are the system's authorities, without those that a variable names.
var roots = sync.OnceValues(func() (*x509.CertPool, error) {
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if v, ok := os.LookupEnv(name); ok {
			_ = os.Unsetenv(name)
			defer os.Setenv(name, v)
		}
	}
	return x509.SystemCertPool()
})

// askServer posts the question to exactly this URL: through no proxy, and never on
// to another.
func askServer(ctx context.Context, url string, in []byte) ([]byte, error) {
	t := &http.Transport{Proxy: nil, DisableKeepAlives: true, DisableCompression: true}
	if strings.HasPrefix(url, "https:") {
		pool, err := roots()
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	c := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(in))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return nil, fmt.Errorf("the server answered %s", res.Status)
	}
	return io.ReadAll(io.LimitReader(res.Body, policy.MaxHookAnswer+1))
}
