//go:build linux && canary

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// heldPaths are what the hostile program of F23 changes while the worker works on
// it, below the source.
var heldPaths = strings.Fields("s s s d/status d/environ d/maps d/fd/3 d/cmdline d/mem d e e/status p/a/b/c/f p/a/b/../b/c/f p/a/b r w g fresh lease sparse long fifo sock " +
	"hop/self/status hop2/status link-status link-mem link-environ link-maps link-thread link-one link-fd3 link-devfd link-root link-cwd link-up link-sys link-tty pool .")

// ofKernel are marks of what the kernel shows of the worker, or of the channel:
// no file that the hostile program makes holds them.
var ofKernel = []string{"TracerPid:", "VmPeak:", " r-xp ", "caisson-worker\x00", "csn1", "fdinfo", "oom_score_adj", "[stack]"}

// held is F23. While a program changes the files, the worker's own tools read,
// write, list and search them. Each must end, with a result of the task's files
// or a refusal, and leave nothing behind in the worker.
func held(r *rig, b *box, res *result) {
	ready, hold, attack := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		out, _, err := b.run(func(q string) string {
			if q == "hold" {
				close(ready)
				<-hold
			}
			return ""
		}, "/home/tester/src/attacker", "F23")
		res.enter(r, out) // read after the channel
		attack <- err
	}()
	select {
	case <-ready:
	case err := <-attack:
		res.Silent = fmt.Sprintf("the files were not laid out: %v", err)
		return
	}
	obs, err := b.in.Observe(background)
	if err != nil {
		res.Lost = append(res.Lost, err.Error())
	}
	before := descriptors(obs.WorkerPID)
	h := holder{b: b, res: result{Denied: map[string]int{}}}
	var wg sync.WaitGroup
	for lane := range 6 {
		wg.Go(func() {
			for i := range r.o.Spawns {
				for k, p := range heldPaths {
					if (k+i)%6 == lane {
						h.calls("f23/"+p, i+k)
					}
				}
			}
		})
	}
	wg.Wait()
	close(hold)
	if err := <-attack; err != nil && task.CodeOf(err) != task.CodeOutcomeUnknown {
		res.Lost = append(res.Lost, "the attack itself: "+err.Error())
	}
	// With nobody interfering the same tools do their work.
	h.one(contract.ReadFile, map[string]any{"path": "f23/plain"}, func(c []byte, f string) bool { return string(c) == "plain\n" })
	// The traffic beside it has some of its own for moments.
	for end := time.Now().Add(limit); descriptors(obs.WorkerPID) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			h.lost("the worker has %d descriptors, and had %d", descriptors(obs.WorkerPID), before)
			break
		}
	}
	res.Attempts, res.Done = res.Attempts+h.res.Attempts, res.Done+h.res.Done
	res.Possible, res.Lost = append(res.Possible, h.res.Possible...), append(res.Lost, h.res.Lost...)
	for l, n := range h.res.Denied {
		res.Denied[l] += n
	}
}

// descriptors counts those of a process, as root only: nobody else may.
func descriptors(pid int) int {
	ents, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return -1
	}
	return len(ents)
}

// holder counts what became of the tools' calls.
type holder struct {
	b   *box
	mu  sync.Mutex
	res result
}

func (h *holder) lost(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.res.Lost = append(h.res.Lost, fmt.Sprintf(format, args...))
}

// calls makes one round of tools on a path.
func (h *holder) calls(p string, i int) {
	fine := func([]byte, string) bool { return true }
	path := map[string]any{"path": p}
	with := func(more map[string]any) map[string]any {
		more["path"] = p
		return more
	}
	h.one(contract.ReadFile, path, func(c []byte, f string) bool {
		// A file that is only ever replaced is never seen as a mixture.
		return f != "" || p != "f23/r" || len(bytes.Trim(c, string(c[:1]))) == 0
	})
	switch i % 6 {
	case 0:
		h.one(contract.ReadFile, with(map[string]any{"as": "base64"}), fine)
	case 1:
		if p != "f23/r" {
			h.one(contract.WriteFile, with(map[string]any{"content": "of the host\n"}), fine)
		}
	case 2:
		if p != "f23/r" {
			h.one(contract.EditFile, with(map[string]any{"edits": []any{map[string]any{"old": "m", "new": "M"}}}), fine)
		}
	case 3:
		h.one(contract.ListDir, path, fine)
	case 4:
		if p == "f23/sparse" {
			break // asked for by name it is read, to the tool's own limit of minutes
		}
		h.one(contract.Grep, with(map[string]any{"pattern": "TracerPid|VmPeak|r-xp"}), fine)
	case 5:
		h.one(contract.Glob, with(map[string]any{"pattern": "**/*status*"}), fine)
	}
}

// one makes one call and looks at all that comes of it.
func (h *holder) one(tool string, args map[string]any, ok func(content []byte, failure string) bool) {
	ctx, stop := context.WithTimeout(background, limit)
	defer stop()
	raw, _ := json.Marshal(args)
	reply, err := h.b.c.Tool(ctx, tool, raw, nil)
	defer reply.Close()
	what := fmt.Sprintf("%s %v", tool, args["path"])
	switch {
	case task.CodeOf(err) == task.CodeLimit:
	case err != nil:
		h.lost("%s: %v", what, err)
		return
	case ctx.Err() != nil:
		h.lost("%s did not end", what)
		return
	}
	var all, content []byte
	layer := ""
	if f := reply.Failure; f != nil {
		switch contract.Code(f.Code) {
		case contract.Outside, contract.NotRegular:
			layer = "path rules of the worker's tools"
		case contract.Permission:
			layer = accessCheck
		case contract.Internal, contract.BadArgs:
			h.lost("%s: %s: %s", what, f.Code, f.Message)
		}
		all = []byte(f.Message)
	} else {
		var r contract.ReadFileResult
		_ = json.Unmarshal(reply.Result, &r)
		content = []byte(r.Content)
		if b, err := base64.StdEncoding.DecodeString(r.Base64); err == nil && len(b) > 0 {
			content = b
		}
		all = append(append(all, reply.Result...), content...)
		if reply.File != nil {
			if err := ofKernelFile(reply.File); err != nil {
				h.possible("%s: the host was given %v", what, err)
			}
			b, _ := io.ReadAll(io.LimitReader(reply.File, 64<<10))
			all = append(all, b...)
		}
	}
	for _, m := range ofKernel {
		if bytes.Contains(all, []byte(m)) {
			h.possible("%s brought %q", what, m)
		}
	}
	code := ""
	if reply.Failure != nil {
		code = reply.Failure.Code
	}
	if (code != "" || len(content) > 0) && !ok(content, code) {
		h.lost("%s: %.100q %s", what, content, code)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.res.Attempts++
	if layer == "" {
		h.res.Done++
	} else {
		h.res.Denied[layer]++
	}
}

func (h *holder) possible(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.res.Possible) < 100 {
		h.res.Possible = append(h.res.Possible, fmt.Sprintf(format, args...))
	}
}

const accessCheck = "access check (user namespace, not dumpable, Landlock)"

// ofKernelFile refuses a file that the kernel makes up.
func ofKernelFile(f *os.File) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	switch uint32(st.Type) {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEVPTS_SUPER_MAGIC:
		return fmt.Errorf("a file of the kernel's, type %#x", st.Type)
	}
	return nil
}
