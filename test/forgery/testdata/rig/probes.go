//go:build linux && canary

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
)

// special are the probes for which it is not enough to run the hostile program.
var special = map[string]func(*rig, *box, *result){
	"F7":  killed,
	"F8":  spawns,
	"F9":  printed,
	"F12": smuggled,
	"F13": image,
	"F17": exhausted,
	"F23": held,
}

// apart are those that make boundaries of their own, one for each manipulation.
var apart = map[string]func(*rig, *result){
	"F10":  func(r *rig, res *result) { relays(r, res, replays) },
	"F11":  func(r *rig, res *result) { relays(r, res, reflections) },
	"F18":  crashes,
	"F19":  func(r *rig, res *result) { relays(r, res, malformed) },
	"F21r": hostileRoot,
}

func (r *rig) ready() (*box, error) {
	if r.box != nil {
		return r.box, nil
	}
	b, err := r.open(nil)
	if err != nil {
		return nil, err
	}
	r.box = b
	return b, b.start(2)
}

// start begins the traffic and a call that outlives every probe.
func (b *box) start(lanes int) error {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	call, err := b.c.Exec(background, worker.Command{Argv: []string{"/bin/sleep", "3600"}}, []*os.File{null, null, null})
	if err != nil {
		return err
	}
	b.victim = b.r.book.lastRequest()
	go func() {
		if o, err := call.Wait(background); err == nil && o.Exit == 0 {
			b.mu.Lock()
			b.lost = append(b.lost, "a call that runs was said to have ended well")
			b.mu.Unlock()
		}
	}()
	b.traffic(lanes)
	return nil
}

func (r *rig) probe(name string) result {
	res := result{Probe: name, Denied: map[string]int{}}
	if f := apart[name]; f != nil {
		if err := r.close(); err != nil {
			res.Lost = append(res.Lost, err.Error())
		}
		f(r, &res)
		return res
	}
	b, err := r.ready()
	if err != nil {
		res.Lost = append(res.Lost, "no boundary: "+err.Error())
		return res
	}
	if f := special[name]; f != nil {
		f(r, b, &res)
	} else if o, err := b.attack(&res, name); err != nil && task.CodeOf(err) != task.CodeOutcomeUnknown {
		res.Lost = append(res.Lost, fmt.Sprintf("the attack itself: %+v %v", o, err))
	}
	r.after(b, &res)
	return res
}

// after looks whether the channel still works and the books agree.
func (r *rig) after(b *box, res *result) {
	select {
	case <-b.c.Done():
		res.Poisoned = true
	default:
		out, o, err := b.plain("echo alive; exit 4")
		b.judge("after "+res.Probe, out, "alive\n", o, 4, err)
		select {
		case <-b.c.Done(): // what was said brought it down only now
			res.Poisoned = true
		default:
		}
	}
	if res.Poisoned {
		r.settled(b, res)
		return
	}
	b.gate.Lock()
	forged, missing, where := r.book.settle(20 * time.Second)
	b.gate.Unlock()
	res.Forged += forged
	if missing > 0 {
		res.Lost = append(res.Lost, fmt.Sprintf("%d messages were sent and not taken: %s", missing, strings.Join(where, ", ")))
	}
	if missing+forged > 0 {
		res.Forged -= forged // counted again there
		r.settled(b, res)
		return
	}
	b.mu.Lock()
	res.Lost, b.lost = append(res.Lost, b.lost...), nil
	b.mu.Unlock()
}

// settled closes the books of a boundary that is gone.
func (r *rig) settled(b *box, res *result) {
	if _, err := b.close(); err != nil {
		res.Lost = append(res.Lost, "the boundary is not destroyed: "+err.Error())
	}
	forged, where, err := r.book.end()
	if err != nil {
		res.Lost = append(res.Lost, err.Error())
	}
	if forged > 0 {
		fmt.Fprintf(os.Stderr, "%s: %s\n", res.Probe, strings.Join(where, ", "))
	}
	res.Forged += forged
	b.mu.Lock()
	res.Lost, res.Unknown = append(res.Lost, b.lost...), res.Unknown+b.unknown
	b.lost = nil
	r.honest += b.honest
	b.mu.Unlock()
	r.book.forget()
	if r.box == b {
		r.box = nil
	}
}

func (r *rig) close() error {
	if r.box == nil {
		return nil
	}
	var res result
	r.settled(r.box, &res)
	if res.Forged > 0 || len(res.Lost) > 0 {
		return fmt.Errorf("at the end: %+v", res)
	}
	return nil
}

// killed is F7: process 1 and the worker first; then guardians, whose calls may
// be of unknown outcome and of no false one.
func killed(r *rig, b *box, res *result) {
	_, err := b.attack(res, "F7")
	if err != nil && task.CodeOf(err) != task.CodeOutcomeUnknown {
		res.Lost = append(res.Lost, "the attack itself: "+err.Error())
	}
	for _, sig := range []int{9, 19, 15, 11, 23} {
		for range 4 {
			o, err := b.attack(res, "F7guardian", fmt.Sprint(sig))
			switch {
			case err == nil && o.Exit == 7:
			case task.CodeOf(err) == task.CodeOutcomeUnknown:
				res.Unknown++
			case task.CodeOf(err) == task.CodeChannel: // not started: the boundary is gone
			default:
				res.Lost = append(res.Lost, fmt.Sprintf("the guardian got signal %d: %+v %v", sig, o, err))
			}
		}
	}
}

// spawns is F8: what a program is born with, while others are born and while a
// tool forks without end.
func spawns(r *rig, b *box, res *result) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := make(chan struct{})
	wg.Go(func() {
		out, _, err := b.run(func(string) string { <-done; return "" }, "/bin/sh", "-c", `echo '{"Ask":"wait"}'; exec /home/tester/src/attacker F8forker`)
		mu.Lock()
		defer mu.Unlock()
		res.enter(r, out)
		if err != nil && task.CodeOf(err) != task.CodeOutcomeUnknown {
			res.Lost = append(res.Lost, "the forker: "+err.Error())
		}
	})
	next := make(chan int)
	var lanes sync.WaitGroup
	for range 8 {
		lanes.Go(func() {
			for range next {
				part := result{Denied: map[string]int{}}
				_, err := b.attack(&part, "F8")
				mu.Lock()
				res.Attempts, res.Done = res.Attempts+part.Attempts, res.Done+part.Done
				res.Possible, res.Leaked = append(res.Possible, part.Possible...), append(res.Leaked, part.Leaked...)
				if err != nil && task.CodeOf(err) != task.CodeOutcomeUnknown && task.CodeOf(err) != task.CodeLimit && task.CodeOf(err) != task.CodeChannel {
					res.Lost = append(res.Lost, "a start: "+err.Error())
				}
				mu.Unlock()
			}
		})
	}
	for i := range r.o.Spawns {
		next <- i
	}
	close(next)
	lanes.Wait()
	close(done)
	wg.Wait()
}

// printed is F9, over pipes and over a terminal.
func printed(r *rig, b *box, res *result) {
	r.book.mu.Lock()
	args := []string{"F9"}
	var want [][]byte
	for _, f := range r.book.old {
		if len(f) < 1000 {
			args, want = append(args, hex.EncodeToString(f)), append(want, f)
		}
	}
	r.book.mu.Unlock()
	out, _, err := b.run(func(string) string { return "" }, append([]string{"/home/tester/src/attacker"}, args...)...)
	res.enter(r, out)
	for _, f := range want {
		if !strings.Contains(out, string(f)) {
			res.Silent = fmt.Sprintf("the frames were not printed as they are (%v)", err)
		}
	}
	p, ok := b.in.(backend.PTYOpener)
	if !ok {
		res.Silent = "there is no terminal"
		return
	}
	master, slave, err := p.OpenPTY(24, 80)
	if err != nil {
		res.Silent = err.Error()
		return
	}
	defer master.Close()
	call, err := b.c.Exec(background, worker.Command{Argv: append([]string{"/home/tester/src/attacker"}, args...), TTY: true}, []*os.File{slave})
	slave.Close()
	if err != nil {
		res.Lost = append(res.Lost, "over a terminal: "+err.Error())
		return
	}
	text := make(chan []byte, 1)
	go func() { all, _ := io.ReadAll(master); text <- all }()
	if o, err := call.Wait(background); err != nil || o.Exit != 0 {
		res.Lost = append(res.Lost, fmt.Sprintf("over a terminal: %+v %v", o, err))
	}
	_ = master.SetReadDeadline(time.Now().Add(5 * time.Second))
	all := <-text
	for _, f := range want {
		if !bytes.Contains(f, []byte{'\n'}) && !bytes.Contains(all, f) {
			res.Silent = "the frames did not come through the terminal as they are"
		}
	}
	if i := bytes.LastIndexByte(all, '{'); i >= 0 {
		res.enter(r, string(all[i:]))
	}
}

// smuggled is F12.
func smuggled(r *rig, b *box, res *result) {
	for _, step := range []string{"F12leave", "F12fetch"} {
		if _, err := b.attack(res, step); err != nil && task.CodeOf(err) != task.CodeOutcomeUnknown {
			res.Lost = append(res.Lost, step+": "+err.Error())
		}
	}
}

// image is F13: afterwards the file is what it was, and nothing that a variable
// names is loaded into the worker's processes.
func image(r *rig, b *box, res *result) {
	sum := func() (s [32]byte) {
		if os.Getuid() == 0 {
			data, _ := os.ReadFile(r.worker)
			return sha256.Sum256(data)
		}
		st, err := os.Stat(r.worker)
		if err != nil {
			return s
		}
		return sha256.Sum256(fmt.Append(nil, st.Size(), st.ModTime(), st.Mode()))
	}
	before := sum()
	if _, err := b.attack(res, "F13"); err != nil && task.CodeOf(err) != task.CodeOutcomeUnknown {
		res.Lost = append(res.Lost, "the attack itself: "+err.Error())
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	env := []string{"LD_PRELOAD=/home/tester/src/attacker", "LD_AUDIT=/home/tester/src/attacker", "LD_LIBRARY_PATH=/home/tester/src", "GODEBUG=x", "GOTRACEBACK=crash"}
	call, err := b.c.Exec(background, worker.Command{Argv: []string{"/bin/sh", "-c", "exit 6"}, Env: env}, []*os.File{null, null, null})
	res.Attempts, res.Done = res.Attempts+1, res.Done+1
	if err == nil {
		_, err = call.Wait(background)
	}
	if err != nil && task.CodeOf(err) != task.CodeOutcomeUnknown && task.CodeOf(err) != task.CodeChannel {
		res.Lost = append(res.Lost, "with LD_PRELOAD: "+err.Error())
	}
	if sum() != before {
		res.Possible = append(res.Possible, "the worker's file was changed")
	}
}

// exhausted is F17: everything used up, with honest calls meanwhile.
func exhausted(r *rig, b *box, res *result) {
	for _, what := range []string{"F17starve", "F17fds", "F17pids", "F17memory"} {
		o, err := b.attack(res, what)
		if c := task.CodeOf(err); err != nil && c != task.CodeOutcomeUnknown && c != task.CodeLimit && c != task.CodeChannel {
			res.Lost = append(res.Lost, what+": "+err.Error())
		}
		if err == nil && o.Signal == int(unix.SIGKILL) {
			res.Attempts, res.Done = res.Attempts+1, res.Done+1 // ended by its limit, or by itself
		}
	}
}

// crashes is F18: W dies at any moment of the traffic.
func crashes(r *rig, res *result) {
	for range r.o.Crashes {
		b, err := r.open(nil)
		if err != nil {
			res.Lost = append(res.Lost, err.Error())
			return
		}
		b.traffic(4)
		obs, err := b.in.Observe(background)
		if err != nil {
			res.Lost = append(res.Lost, err.Error())
		}
		time.Sleep(time.Duration(rand.IntN(25000)) * time.Microsecond) // the moment is the attack, nothing is waited for
		_ = unix.Kill(obs.WorkerPID, unix.SIGKILL)                     // our own child, not reaped before Destroy
		res.Attempts, res.Done = res.Attempts+1, res.Done+1
		r.gone(b, res)
	}
	relays(r, res, truncations)
}

// gone waits until a channel is given up and closes the books.
func (r *rig) gone(b *box, res *result) {
	select {
	case <-b.c.Done():
		res.Poisoned = true
	case <-time.After(limit):
		res.Lost = append(res.Lost, "the channel is not given up")
	}
	r.settled(b, res)
}
