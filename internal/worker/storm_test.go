//go:build linux

package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/worker"
	"github.com/caisson-dev/caisson/test/harness"
)

// counted is what a storm could leave behind, as the host sees it.
type counted struct {
	processes         int // of the boundary
	own, relay, tools int // descriptors; -1: the kernel does not let this user look
	goroutines        int
}

func (b *box) counts() (c counted) {
	fds := func(pid int) int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			return -1
		}
		return len(list)
	}
	parents := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, s := range stats {
		data, err := os.ReadFile(s)
		if err != nil {
			continue // it has just ended
		}
		f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(s)))
		ppid, _ := strconv.Atoi(f[1])
		parents[ppid] = append(parents[ppid], pid)
	}
	for queue := []int{b.cmd.Process.Pid}; len(queue) > 0; queue = queue[1:] {
		c.processes++
		queue = append(queue, parents[queue[0]]...)
	}
	c.own, c.relay, c.tools = fds(os.Getpid()), fds(b.cmd.Process.Pid), fds(b.space())
	c.goroutines = runtime.NumGoroutine()
	return c
}

// Cancels at any moment, beside calls that are left alone. Every call says its
// own number and nobody else's, and afterwards everything is as it was.
func TestCancelStorm(t *testing.T) {
	n := 200
	if os.Getenv("CAISSON_TEST_FULL") != "" {
		n = 1000
	}
	b := start(t)
	for range 8 { // what is made once, is made
		b.sh("exit 0")
	}
	quiet := func() counted {
		var c counted
		harness.Eventually(t, "the guardian for the next call waits, and nothing else", func() bool {
			c = b.counts()
			return c.processes == 3 // W, I, and one guardian that waits
		})
		return c
	}
	before := quiet()
	var wg sync.WaitGroup
	sem := make(chan struct{}, 8)
	var mu sync.Mutex
	ended, silent := 0, 0
	for i := range n {
		wg.Go(func() {
			sem <- struct{}{}
			defer func() { <-sem }()
			if i%4 == 0 {
				if exit, out, _ := b.sh(fmt.Sprintf("echo %d; exit 6", i)); exit != 6 || out != fmt.Sprintf("%d\n", i) {
					t.Errorf("bystander %d: %d %q", i, exit, out)
				}
				return
			}
			r, err := b.exec(worker.Command{Argv: []string{"sh", "-c", fmt.Sprintf("echo %d; (setsid sleep 5555 &); sleep 0.01; sleep 5556", i)}})
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Duration(rand.IntN(15)) * time.Millisecond) // the storm's randomness, not a wait for anything
			if err := r.Cancel(context.Background(), time.Duration(rand.IntN(3))*time.Millisecond); err != nil {
				t.Error(err)
			}
			if _, err := r.Wait(deadline(t, 20*time.Second)); err != nil {
				t.Error(err)
			}
			_ = r.in.Close()
			out := string(<-r.out)
			<-r.err
			mu.Lock()
			defer mu.Unlock()
			switch out {
			case fmt.Sprintf("%d\n", i):
				ended++
			case "":
				silent++ // canceled before it could say anything
			default:
				t.Errorf("call %d says %q", i, out)
			}
		})
	}
	wg.Wait()
	if err := b.client.Ping(deadline(t, 20*time.Second)); err != nil {
		t.Error(err)
	}
	after := quiet()
	// What was under way when it was counted before may have been one more.
	for end := time.Now().Add(20 * time.Second); after.own > before.own || after.relay > before.relay || after.tools > before.tools || after.goroutines > before.goroutines; after = b.counts() {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("before %+v, after %+v\n%s", before, after, stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%d calls, %d canceled after they had spoken, %d before; before %+v, after %+v", n, ended, silent, before, after)
}
