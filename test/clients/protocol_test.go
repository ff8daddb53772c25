//go:build linux

package clients

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// scenarios are those of the conformance runner that ask nothing but what a server
// of this kind has to do, by version of the protocol. All others call tools,
// prompts and resources of a server made for the runner.
var scenarios = map[string][]string{
	"2025-06-18": {"server-initialize", "server-session-lifecycle", "ping", "tools-list", "resources-list"},
	"2025-11-25": {"server-initialize", "server-session-lifecycle", "ping", "tools-list", "resources-list", "server-sse-multiple-streams", "dns-rebinding-protection"},
	"2026-07-28": {
		"server-stateless", "tools-list", "resources-list", "server-sse-multiple-streams", "sep-2164-resource-not-found", "dns-rebinding-protection", "caching", "http-header-validation",
		"input-required-result-missing-input-response", "input-required-result-unsupported-methods", "input-required-result-ignore-extra-params", "input-required-result-validate-input",
	},
}

// untested are checks in those scenarios that need the runner's own tools, and one
// that takes an empty list of prompts for a server with prompts.
var untested = []string{
	"sep-2575-server-declares-prompts-in-discover", "sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400",
	"sep-2575-http-server-no-independent-requests-on-stream", "sep-2575-server-no-log-without-loglevel",
}

// TestConformance has the protocol's own runner examine the product on its socket.
func TestConformance(t *testing.T) {
	t.Parallel()
	modules := installed(t, "mcp")
	id := harness.NewIdentity(t, "conformance", os.Getuid()) // who forwards to the socket must be its user
	s := listens(t, id, id.Repo(t, project))
	for version, names := range scenarios {
		if version == "2025-06-18" && !full() {
			continue // its scenarios are those of the next one
		}
		dir := filepath.Join(id.Tmp, version)
		id.Mkdir(t, dir)
		var r harness.Result
		alone(t, func() {
			url := "http://" + forward(t, s.socket) + "/mcp"
			ctx, cancel := context.WithTimeout(t.Context(), harness.Limit)
			defer cancel()
			r = harness.Run(t, id.Command(ctx, id.Dir, node22(modules), filepath.Join(modules, "@modelcontextprotocol/conformance/dist/index.js"),
				"server", "--url", url, "--suite", "all", "--spec-version", version, "-o", dir))
		})
		for _, name := range names {
			files, _ := filepath.Glob(filepath.Join(dir, "server-"+name+"-20*", "checks.json"))
			if len(files) != 1 {
				t.Fatalf("%s: %d results of %s: %v", version, len(files), name, r)
			}
			text, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			passed := 0
			for _, c := range harness.Decode[[]struct{ ID, Status, ErrorMessage string }](t, string(text)) {
				switch {
				case c.Status == "SUCCESS":
					passed++
				case c.Status == "FAILURE" && !slices.Contains(untested, c.ID):
					t.Errorf("%s, %s: %s: %s", version, name, c.ID, c.ErrorMessage)
				}
			}
			if passed == 0 {
				t.Errorf("%s, %s: no check passed", version, name)
			}
		}
	}
	s.ends(t)
}

// TestInspector has the protocol's inspector list and call tools, over both
// transports and in both eras of the protocol.
func TestInspector(t *testing.T) {
	t.Parallel()
	modules := installed(t, "mcp")
	id := harness.NewIdentity(t, "inspector", os.Getuid())
	repo := id.Repo(t, project)
	inspect := func(target []string, args ...string) harness.Result {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Limit)
		defer cancel()
		argv := append([]string{filepath.Join(modules, "@modelcontextprotocol/inspector/clients/launcher/build/index.js"), "--cli"}, target...)
		cmd := id.Command(ctx, repo, node22(modules), append(argv, args...)...)
		cmd.Env = append(cmd.Env, "MODEL_API_KEY="+canary)
		return harness.Run(t, cmd)
	}
	stdio := []string{harness.Bin(), "mcp"}
	for _, kv := range id.Env {
		if strings.HasPrefix(kv, "CAISSON_") || strings.HasPrefix(kv, "XDG_") {
			stdio = append([]string{"-e", kv}, stdio...)
		}
	}
	s := listens(t, id, repo)
	alone(t, func() {
		socket := []string{"http://" + forward(t, s.socket) + "/mcp", "--transport", "http"}
		targets := [][]string{stdio, append(slices.Clone(socket), "--protocol-era", "modern")}
		if full() {
			targets = append(targets, append(slices.Clone(socket), "--protocol-era", "legacy"))
		}
		for _, target := range targets {
			r := inspect(target, "--method", "tools/list", "--strict")
			for _, w := range []string{`"read_file"`, `"shell"`, `"readOnlyHint": true`, `"destructiveHint": true`, `"outputSchema"`} {
				if r.Exit != 0 || !strings.Contains(r.Stdout, w) {
					t.Errorf("%q: no %s: %v", target, w, r)
				}
			}
			r = inspect(target, "--method", "tools/call", "--tool-name", "shell", "--tool-arg", "command=echo sum $((40+2)); env", "backend=host")
			var got struct {
				IsError bool
				Content []struct{ Text string }
			}
			if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || got.IsError || len(got.Content) != 2 || !strings.Contains(got.Content[0].Text, "sum 42") ||
				got.Content[1].Text != "ignored, not yours to give: backend" || strings.Contains(r.Stdout, canary) {
				t.Errorf("%q: %v: %v", target, err, r)
			}
			r = inspect(target, "--method", "tools/call", "--tool-name", "read_file", "--tool-arg", "path=/etc/shadow")
			if !strings.Contains(r.Stdout, `"isError": true`) {
				t.Errorf("%q: a file of the host: %v", target, r)
			}
		}
		// What a result shows only a part of is linked to; the links are read on the same
		// server, and nothing else is.
		for _, c := range []struct{ tool, arg, title string }{
			{"shell", "command=seq -w 1000000", "the whole output of the command"},
			{"shell", "command=seq -w 1000000 > large.txt", ""},
			{"read_file", "path=large.txt", "the whole file"},
			{"shell", "command=rm large.txt", ""}, // the task ends unchanged
		} {
			r := inspect(targets[1], "--method", "tools/call", "--tool-name", c.tool, "--tool-arg", c.arg)
			var got struct {
				Content []struct{ Type, URI, Title string }
			}
			if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil {
				t.Errorf("%v: %v", err, r)
			}
			var all string
			for _, l := range got.Content {
				if l.Type != "resource_link" {
					continue
				}
				read := inspect(targets[1], "--method", "resources/read", "--uri", l.URI)
				var part struct {
					Contents []struct{ URI, Text string }
				}
				if err := json.Unmarshal([]byte(read.Stdout), &part); err != nil || len(part.Contents) != 1 || part.Contents[0].URI != l.URI || !strings.HasPrefix(l.Title, c.title) {
					t.Errorf("%+v: %v: %v", l, err, read)
					break
				}
				all += part.Contents[0].Text
				if strings.Contains(l.URI, "?") {
					continue // once for each file is enough
				}
				if strange := inspect(targets[1], "--method", "resources/read", "--uri", strings.Replace(l.URI, "caisson://", "caisson://x", 1)); strange.Exit == 0 && strings.Contains(strange.Stdout, `"text"`) {
					t.Errorf("another task's: %v", strange)
				}
			}
			if want := 8 * 1_000_000; c.title != "" && (len(all) != want || !strings.HasPrefix(all, "0000001\n") || !strings.HasSuffix(all, "\n1000000\n")) {
				t.Errorf("%s: %d bytes came back by links, not %d", c.arg, len(all), want)
			}
		}
	})
	s.ends(t)
}

// socketServer is the product on a socket.
type socketServer struct {
	socket string
	cmd    *exec.Cmd
	stderr *strings.Builder
	ended  chan error
}

// listens starts one on a task of repo.
func listens(t *testing.T, id *harness.Identity, repo string) *socketServer {
	t.Helper()
	s := &socketServer{socket: filepath.Join(id.XDG, "mcp/s"), stderr: &strings.Builder{}, ended: make(chan error, 1)}
	ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
	t.Cleanup(cancel)
	s.cmd = id.Command(ctx, repo, harness.Bin(), "mcp", "--listen", "unix:"+s.socket)
	s.cmd.Stderr = s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	if !until(ctx, func() bool { _, err := os.Lstat(s.socket); return err == nil || len(s.ended) > 0 }) || len(s.ended) > 0 {
		t.Fatalf("it does not listen: %s", s.stderr)
	}
	return s
}

// ends asks the server to end, as a person would: its task ends with it.
func (s *socketServer) ends(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-s.ended; err != nil || !strings.Contains(s.stderr.String(), " is closed") {
		t.Errorf("ended with %v: %s", err, s.stderr)
	}
	if _, err := os.Lstat(s.socket); err == nil {
		t.Error("its socket is left")
	}
}

// forward makes the socket reachable on a loopback address of the calling thread's
// network: these tools know no other kind.
func forward(t *testing.T, socket string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Error(err)
		runtime.Goexit()
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			u, err := net.Dial("unix", socket)
			if err != nil {
				_ = c.Close()
				continue
			}
			for _, p := range [][2]net.Conn{{c, u}, {u, c}} {
				go func() {
					_, _ = io.Copy(p[0], p[1])
					_ = p[0].Close()
					_ = p[1].Close()
				}()
			}
		}
	}()
	return l.Addr().String()
}
