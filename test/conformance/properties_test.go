//go:build linux

package conformance

import (
	"context"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/test/harness"
)

// extra opens what a launcher could leave open by mistake: S_FD.
func extra(t *testing.T, s *sentinels) []*os.File {
	t.Helper()
	var out []*os.File
	for _, name := range []string{s.Files[0], "/"} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		out = append(out, f)
	}
	p, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(p, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = unix.Listen(p, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(p), "listener")
	t.Cleanup(func() { f.Close() })
	return append(out, f)
}

// hostKey puts a key into a new session keyring of this thread, which every
// program that this thread starts inherits.
func hostKey(t *testing.T) string {
	t.Helper()
	runtime.LockOSThread() // for ever: the thread ends with the test
	name := "conformance:" + nonce()
	if _, err := unix.KeyctlJoinSessionKeyring(name); err != nil {
		t.Logf("no keyrings on this kernel: %v", err)
		return ""
	}
	key, err := unix.AddKey("user", name, []byte("host"), unix.KEY_SPEC_SESSION_KEYRING)
	if err == nil {
		err = unix.KeyctlSetperm(key, 0x3f3f3f3f) // another user id does not matter
	}
	if err != nil {
		t.Logf("no key can be added: %v", err)
		return ""
	}
	return name
}

// TestProperties is P01, P12, P14, P16 to P21, P23, P25 to P29, P32 and P63.
func TestProperties(t *testing.T) {
	each := harness.Each
	if b := harness.Backend(); b == "docker" || b == "gvisor" {
		each = harness.Both // root who starts a boundary is another case than a user
	}
	each(t, func(t *testing.T, id *harness.Identity) {
		repo := hostile(t, id, map[string]string{"a.txt": "a\n"})
		s := plant(t, id, repo)
		s.Key = hostKey(t)
		path, _ := attacker()

		start := func(ctx context.Context, dir, prog string, args ...string) harness.Result {
			cmd := id.Command(ctx, dir, prog, args...)
			cmd.ExtraFiles = extra(t, s)
			return harness.Run(t, cmd)
		}
		ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
		defer cancel()
		if r := start(ctx, repo, harness.Bin(), "open", "victim"); r.Exit != 0 {
			t.Fatal(r)
		}
		if r := start(ctx, repo, harness.Bin(), "open", "other"); r.Exit != 0 {
			t.Fatal(r)
		}

		in := s.config
		in.Inside, in.Work = true, repo
		for _, name := range []string{"", "/state.db", "/tasks", "/bin"} {
			in.Forbidden = append(in.Forbidden, id.State+name)
		}
		entries, err := os.ReadDir(id.State + "/tasks")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			for _, n := range []string{"", "/evidence", "/evidence/events.jsonl", "/task.json", "/shadow.git", "/source", "/source/attacker", "/home", "/out", "/lock"} {
				if _, err := os.Lstat(id.State + "/tasks/" + e.Name() + n); err == nil {
					in.Forbidden = append(in.Forbidden, id.State+"/tasks/"+e.Name()+n)
				}
			}
		}
		socks, err := os.ReadDir(id.Runtime)
		if err != nil || len(socks) == 0 {
			t.Fatalf("no control socket: %v", err)
		}
		for _, e := range socks {
			if e.IsDir() {
				in.Forbidden = append(in.Forbidden, id.Runtime+"/"+e.Name())
				continue // where a runtime keeps what it knows
			}
			in.Forbidden = append(in.Forbidden, id.Runtime+"/"+e.Name())
			in.Known = append(in.Known, [2]string{"P20", id.Runtime + "/" + e.Name()})
		}
		s.log() // what planting itself did

		r := start(ctx, repo, harness.Bin(), "exec", "victim", "--", repo+"/attacker", jsonOf(in))
		if r.Exit != 0 {
			t.Fatal(r)
		}
		inside := outcomes(t, r.Stdout)
		s.untouched(t)

		out := in
		out.Inside, out.Work = false, id.Dir+"/work"
		id.Mkdir(t, out.Work)
		r = start(ctx, out.Work, path, jsonOf(out))
		if r.Exit != 0 {
			t.Fatal(r)
		}
		control := outcomes(t, r.Stdout)
		if seen := s.log(); len(seen) < len(s.Unix)+len(s.Known)+len(s.Net) {
			t.Errorf("the control reached only %d listeners", len(seen))
		}
		judge(t, id, inside, control)
		alive(t, id, repo, "victim")
		alive(t, id, repo, "other")
		s.log()
	})
}
