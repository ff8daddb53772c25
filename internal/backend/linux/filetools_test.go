//go:build linux

package linux

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// tool calls one of the tools that W does itself, in the real, sealed W.
func (b *box) tool(name string, args any) worker.ToolReply {
	b.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	defer stop()
	r, err := b.c.Tool(ctx, name, raw, nil)
	if err != nil {
		b.t.Fatalf("%s %.200s: %v", name, raw, err)
	}
	b.t.Cleanup(r.Close)
	return r
}

// Every file tool works in a sealed worker, where tools see its work and the
// host too.
func TestFileToolsInSealedWorker(t *testing.T) {
	b := open(t, newSpec(t))
	ok := func(name string, args, res any) {
		t.Helper()
		r := b.tool(name, args)
		if r.Failure != nil {
			t.Fatalf("%s: %+v", name, r.Failure)
		}
		if err := json.Unmarshal(r.Result, res); err != nil {
			t.Fatal(err)
		}
	}
	var w contract.WriteFileResult
	ok(contract.WriteFile, contract.WriteFileArgs{Path: "a/b.txt", Content: "one\ntwo\n"}, &w)
	if got := b.sh("cd " + b.spec.Source.Target + " && cat a/b.txt && stat -c '%u %a' a/b.txt a"); got != "one\ntwo\n1000 644\n1000 755" {
		t.Errorf("inside: %q", got)
	}
	if got, err := os.ReadFile(b.spec.Source.Source + "/a/b.txt"); string(got) != "one\ntwo\n" {
		t.Errorf("outside: %q %v", got, err)
	}
	b.sh("cd " + b.spec.Source.Target + " && printf 'three\\r\\n' > c.txt && chmod 640 c.txt")
	var e contract.EditFileResult
	ok(contract.EditFile, contract.EditFileArgs{Path: b.spec.Source.Target + "/c.txt", Edits: []contract.Edit{{Old: "three\n", New: "3\n4\n"}}}, &e)
	if got := b.sh("cd " + b.spec.Source.Target + " && od -c c.txt | head -1 && stat -c %a c.txt"); !strings.Contains(got, `3  \r  \n   4  \r  \n`) || !strings.HasSuffix(got, "640") {
		t.Errorf("%q", got)
	}
	var r contract.ReadFileResult
	for _, p := range []string{"/etc/passwd", "/usr/bin/env", "/bin/sh"} { // what a tool may read, W's tools may
		ok(contract.ReadFile, contract.ReadFileArgs{Path: p}, &r)
	}
	for dir, want := range map[string]bool{"/tmp": true, b.spec.Home: true, "/var/tmp": true, b.spec.Out.Target: true, "/etc": false, "/usr/lib": false, "/": false, "/run": false} {
		r := b.tool(contract.WriteFile, contract.WriteFileArgs{Path: dir + "/by-tool", Content: "x"})
		if (r.Failure == nil) != want {
			t.Errorf("a file in %s: %+v", dir, r.Failure)
		}
		if r.Failure != nil && r.Failure.Code != string(contract.Permission) {
			t.Errorf("a file in %s: %+v", dir, r.Failure)
		}
	}
	if got := b.sh("cat /tmp/by-tool"); got != "x" {
		t.Errorf("/tmp is another one for tools: %q", got)
	}
}

// No path leads W to its own memory, its keys, its channel, or to a wait that
// does not end, whatever a program inside prepared.
func TestFileToolsAttacked(t *testing.T) {
	b := open(t, newSpec(t))
	src := b.spec.Source.Target
	b.sh("cd " + src + ` && mkfifo fifo && ln -s /proc/1/mem mem && ln -s /proc/self/environ environ && ln -s /proc p && ln -s /proc/self/fd/3 channel &&
		ln -s /proc/1/exe exe && ln -s /proc/1/root root && ln -s /dev/zero zero && ln -s /dev/shm shm && ln -s /dev/tty tty && ln -s /sys s && ln -s / top && ln -s fifo tofifo &&
		ln -s ../../../../../../proc/1/maps deep && ln -s loop2 loop && ln -s loop loop2 && mkdir d && ln -s /proc/1 d/one && echo secret > /dev/shm/x`)
	bad := []string{
		"mem", "environ", "p/1/mem", "p/version", "channel", "exe", "root/etc/passwd", "zero", "shm/x", "tty", "s/kernel/notes", "top/proc/1/mem", "top/dev/zero", "top/sys/kernel/notes",
		"fifo", "tofifo", "deep", "loop", "d/one/mem", "d/one/cwd/x", "/proc/1/mem", "/proc/thread-self/mem", "/dev/zero", "/sys/kernel/notes", "/proc/1/root/etc/passwd", "/dev/fd/3",
		"/dev/shm/x", "/dev/stdin", "/proc/sys/kernel/core_pattern",
	}
	for _, p := range bad {
		for name, args := range map[string]any{
			contract.ReadFile: contract.ReadFileArgs{Path: p}, contract.WriteFile: contract.WriteFileArgs{Path: p, Content: "y"},
			contract.EditFile:     contract.EditFileArgs{Path: p, Edits: []contract.Edit{{Old: "a", New: "b"}}},
			contract.NotebookEdit: contract.NotebookEditArgs{Path: p, Mode: "insert"},
		} {
			if r := b.tool(name, args); r.Failure == nil || r.File != nil {
				t.Errorf("%s %s was done: %.200s", name, p, r.Result)
			}
		}
	}
	if got := b.sh("cat /dev/shm/x"); got != "secret" {
		t.Errorf("/dev/shm/x is %q now", got)
	}
	// A file in one moment, a link out in the next, many times: never anything
	// but the file's own content.
	flip := make(chan struct{})
	go func() {
		defer close(flip)
		b.run("/bin/sh", "-c", "cd "+src+" && echo plain > plain; i=0; while [ $i -lt 150 ]; do ln -sfn /proc/1/environ x; ln -sfn /etc/hostname x; ln -sfn plain x; i=$((i+1)); done")
	}()
	for n := 0; ; n++ {
		select {
		case <-flip:
			return
		default:
		}
		r := b.tool(contract.ReadFile, contract.ReadFileArgs{Path: "x"})
		var got contract.ReadFileResult
		if r.Failure == nil {
			if err := json.Unmarshal(r.Result, &got); err != nil {
				t.Fatal(err)
			}
			if got.Content != "plain\n" && got.Content != "box\n" {
				t.Errorf("read %q", got.Content)
			}
		}
	}
}

// 64 calls at once are each answered rightly while programs run and calls are
// canceled; afterwards W is small again.
func TestFileToolsAtOnce(t *testing.T) {
	b := open(t, newSpec(t))
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			name := fmt.Sprintf("f%d.txt", i)
			line := strings.Repeat(fmt.Sprint(i%10), 100) + "\n"
			content := strings.Repeat(line, 1+i*40)
			for range 3 {
				if r := b.tool(contract.WriteFile, contract.WriteFileArgs{Path: name, Content: content}); r.Failure != nil {
					t.Errorf("%s: %+v", name, r.Failure)
					return
				}
				r := b.tool(contract.ReadFile, contract.ReadFileArgs{Path: name, Limit: 1 << 30})
				var got contract.ReadFileResult
				if r.Failure != nil || json.Unmarshal(r.Result, &got) != nil || got.Size != int64(len(content)) || !strings.HasPrefix(content, got.Content) || got.Content == "" {
					t.Errorf("%s: %+v, %d bytes of %d", name, r.Failure, got.Size, len(content))
				}
				ctx, stop := context.WithCancel(context.Background())
				if i%2 == 0 {
					stop()
				} else {
					time.AfterFunc(time.Duration(i)*50*time.Microsecond, stop)
				}
				reply, err := b.c.Tool(ctx, contract.ReadFile, []byte(`{"path":"`+name+`"}`), nil)
				if err != nil && task.CodeOf(err) != task.CodeCanceled || reply.Failure != nil && reply.Failure.Code != string(contract.Canceled) {
					t.Errorf("%s: a canceled call: %v %+v", name, err, reply.Failure)
				}
				reply.Close()
				stop()
			}
		})
	}
	for range 10 {
		if got := b.sh("echo works"); got != "works" {
			t.Errorf("a program meanwhile: %q", got)
		}
	}
	wg.Wait()
	if got := b.sh("cd " + b.spec.Source.Target + " && ls -A | wc -l"); got != "64" {
		t.Errorf("%s names are left", got)
	}
	if err := b.c.Ping(context.Background()); err != nil {
		t.Error(err)
	}
	if kb := b.restful(t, 4<<10); kb > 4<<10 {
		t.Errorf("the worker keeps %d KiB of its own", kb)
	}
	// Its descriptors are those that it began with.
	fds, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(b.in.proc.pid), "fd"))
	if err == nil && len(fds) > 12 {
		t.Errorf("the worker has %d descriptors open", len(fds))
	}
}

// restful waits until W's own memory is at most so many KiB again, for a while,
// and returns what it is.
func (b *box) restful(t *testing.T, most int) (kb int) {
	t.Helper()
	for range 200 {
		roll, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", b.in.proc.pid))
		if err != nil {
			t.Logf("not measured: %v", err)
			return 0
		}
		kb = 0
		for line := range strings.Lines(string(roll)) {
			var n int
			if _, err := fmt.Sscanf(line, "Private_Dirty: %d kB", &n); err == nil {
				kb += n
			}
		}
		if kb <= most {
			t.Logf("W after its work: %s", strings.Join(strings.Fields(string(roll)), " "))
			return kb
		}
		time.Sleep(50 * time.Millisecond)
	}
	return kb
}
