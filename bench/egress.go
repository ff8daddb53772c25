//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// road is one way from a client to the server.
type road struct {
	name, what string
	argv       []string // before the client's own arguments
	env        []string
	to, proxy  string
	why        error // it cannot be taken here

	first []time.Duration
	all   []time.Duration
}

// egress compares the ways out of a boundary: what a connection costs, and how
// much goes through one.
func (b *bench) egress(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, err := gives(ctx)
	if err != nil {
		return err
	}
	// A copy of this program, where a task can be lent it.
	self := filepath.Join(b.dir, "client", "bench")
	if err := os.MkdirAll(filepath.Dir(self), 0o755); err != nil {
		return err
	}
	if err := copyProgram(self); err != nil {
		return err
	}
	var ends []func() error
	defer func() {
		for _, f := range ends {
			err = errors.Join(err, f())
		}
	}()
	in := b.installation("egress")
	roads := []*road{{name: "direct", what: "loopback of this machine, no boundary", argv: []string{self}, to: server, proxy: "-"}}
	proxied := &road{name: "plain proxy", what: "CONNECT, a page of Go on net/http; no rules, no record", argv: []string{self}, to: server}
	if at, end, err := plainProxy(self); err != nil {
		proxied.why = err
	} else {
		proxied.proxy = at
		ends = append(ends, end)
	}
	roads = append(roads, proxied)
	_, why := in.caisson(ctx, "open", "-q", "--name", standing, "--repo", b.small, "--allow", server, "--ro", filepath.Dir(self))
	if why == nil {
		ends = append(ends, func() error {
			_, err := in.caisson(context.WithoutCancel(ctx), "close", "-q", "--discard", standing)
			return err
		})
	}
	enter := []string{b.o.caisson, "exec", standing, "--", self}
	roads = append(roads, &road{name: "caisson, proxy", what: "in a task, CONNECT", argv: enter, env: in.env(), to: server, proxy: "127.0.0.1:61080", why: why},
		&road{name: "caisson, caught", what: "in a task, a client that knows no proxy", argv: enter, env: in.env(), to: server, proxy: "-", why: why})
	more, endEngines := b.engineRoads(ctx, self, server)
	roads = append(roads, more...)
	ends = append(ends, endEngines...)
	r, end := slirp(ctx, self, server)
	rs, endPasta := pasta(ctx, self, server)
	roads = append(append(roads, r), rs...)
	for _, f := range []func() error{end, endPasta} {
		if f != nil {
			ends = append(ends, f)
		}
	}
	if err := b.roads(ctx, roads); err != nil {
		return err
	}
	return b.idleWays(ctx)
}

// engineRoads are the ways out of tasks whose boundaries engines make, and what ends
// them.
func (b *bench) engineRoads(ctx context.Context, self, server string) (roads []*road, ends []func() error) {
	for _, v := range b.engines.all {
		s, ok := v.engine.(served)
		if v.name != "docker" && v.name != "podman" {
			continue
		}
		why, in := v.why, b.installation("egress-"+v.name)
		env := in.env()
		if why == nil && !ok {
			why = errors.New("it cannot be a backend")
		}
		if why == nil {
			var more []string
			more, why = s.service(ctx)
			env = append(env, more...)
		}
		if why == nil {
			open := []string{b.o.caisson, "open", "-q", "--backend", v.name, "--name", standing, "--repo", b.small, "--allow", server, "--ro", filepath.Dir(self)}
			if _, why = do(ctx, open, env, nil); why == nil {
				ends = append(ends, func() error {
					_, err := do(context.WithoutCancel(ctx), []string{b.o.caisson, "close", "-q", "--discard", standing}, env, nil)
					return err
				})
			}
		}
		enter := []string{b.o.caisson, "exec", standing, "--", self}
		roads = append(roads, &road{name: "caisson, " + v.name + ", proxy", what: "the same, made by that engine", argv: enter, env: env, to: server, proxy: "127.0.0.1:61080", why: why},
			&road{name: "caisson, " + v.name + ", caught", what: "the same, caught", argv: enter, env: env, to: server, proxy: "-", why: why})
	}
	return roads, ends
}

// roads measures all of them in turn.
func (b *bench) roads(ctx context.Context, roads []*road) error {
	each, size, rounds := 100, int64(2<<30), b.few()
	if b.o.quick {
		each, size = 30, 128<<20
	}
	shuffle := rand.New(rand.NewPCG(seed, 7))
	began := time.Now()
	for round := 0; round == 0 || b.another(round-1, rounds, began); round++ {
		for _, i := range shuffle.Perm(len(roads)) {
			r := roads[i]
			if r.why != nil {
				continue
			}
			one, err := r.take(ctx, "connect", int64(each))
			if err == nil {
				var s dialled
				s, err = r.take(ctx, "stream", size)
				one.All = s.All
			}
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				r.why = err
				b.say("%s: %v", r.name, err)
			case round > 0: // the first one fills caches
				r.first, r.all = append(r.first, one.First...), append(r.all, one.All)
			}
		}
	}
	t := table{title: "The way out", head: []string{"way", "connection to first byte p50 (p99)", "more than direct p50", "MiB/s p50", "of direct", "n", "what"},
		note: fmt.Sprintf("A client connects to a server at 127.0.0.1 of this machine, asks for one byte and gets it, %d times a round one after the other; then asks for %d MiB on one connection and reads them in 256 KiB. Milliseconds, in the client. "+
			"caisson decides about each connection and has it on record, durably, before it begins. slirp4netns and pasta have no rules.", each, size>>20)}
	direct := roads[0]
	for _, r := range roads {
		if r.why != nil || len(r.all) == 0 {
			t.gone(r.name, fmt.Sprint(r.why))
			continue
		}
		p50, rate := percentile(r.first, 50), mibPerSecond(size, percentile(r.all, 50).Seconds())
		key := "egress/" + r.name
		b.figures[key+"/p50"], b.figures[key+"/p99"], b.figures[key+"/MiB per s"] = float64(p50)/1e6, float64(percentile(r.first, 99))/1e6, rate
		more, part := "–", "–"
		if r != direct && len(direct.all) > 0 {
			more = ms(p50 - percentile(direct.first, 50))
			part = fmt.Sprintf("%.0f %%", 100*rate/b.figures["egress/direct/MiB per s"])
		}
		t.row(r.name, fmt.Sprintf("%s (%s)", ms(p50), ms(percentile(r.first, 99))), more, fmt.Sprintf("%.0f", rate), part, fmt.Sprint(len(r.all)), r.what)
	}
	b.tables = append(b.tables, t)
	return nil
}

func (r *road) take(ctx context.Context, mode string, n int64) (out dialled, err error) {
	text, err := do(ctx, append(append([]string(nil), r.argv...), dialArg, mode, r.to, r.proxy, fmt.Sprint(n)), r.env, nil)
	if err == nil {
		err = json.Unmarshal([]byte(text), &out)
	}
	return out, err
}

// idleWays compares tasks that have a way out with tasks that have none.
func (b *bench) idleWays(ctx context.Context) error {
	n := 10
	if b.o.quick {
		n = 4
	}
	t := table{title: "A way out that is not used", head: []string{"tasks", "how many", "PSS of the supervisor each", "USS", "PSS of the task each", "what"},
		note: "MiB per idle task, four seconds after the last one was opened."}
	for _, kind := range []struct {
		name, what string
		flags      []string
	}{{"no network", "no gate", nil}, {"--net registries", "a gate and its sockets", []string{"--net", "registries"}}} {
		in := b.installation("way" + fmt.Sprint(len(t.rows)))
		err := atOnce(n, 2, func(i int) error {
			_, err := in.caisson(ctx, append([]string{"open", "-q", "--repo", b.small, "--name", fmt.Sprintf("way%d", i)}, kind.flags...)...)
			return err
		})
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(atRest):
		}
		live, err := in.list(ctx)
		if err != nil {
			return err
		}
		parts := map[string]share{}
		for _, l := range live {
			if err := sum(l.Supervisor.PID, n, parts, func(pid int, _ []string) string { return map[bool]string{true: "supervisor"}[pid == l.Supervisor.PID] }); err != nil {
				return err
			}
		}
		s, rest := parts["supervisor"], parts[""]
		t.row(kind.name, fmt.Sprint(n), fmt.Sprintf("%.2f", s.pss), fmt.Sprintf("%.2f", s.uss), fmt.Sprintf("%.2f", s.pss+rest.pss), kind.what)
		b.figures["egress/idle/"+kind.name] = s.pss + rest.pss
		if err := in.close(); err != nil {
			return err
		}
	}
	b.tables = append(b.tables, t)
	return nil
}

// copyProgram copies this program.
func copyProgram(to string) error {
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

// plainProxy starts one.
func plainProxy(self string) (at string, end func() error, err error) {
	c := exec.Command(self, proxyArg)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return "", nil, err
	}
	end = func() error { _ = c.Process.Kill(); _ = c.Wait(); return nil }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", nil, errors.Join(err, end())
	}
	return strings.TrimSpace(line), end, nil
}

// slirp is the network that rootless engines have had for long: a TUN device and
// a TCP of its own.
func slirp(ctx context.Context, self, server string) (*road, func() error) {
	_, port, _ := net.SplitHostPort(server)
	r := &road{name: "slirp4netns", what: "a TAP device and a TCP in a process, MTU 65520", to: "10.0.2.2:" + port, proxy: "-"}
	if _, r.why = exec.LookPath("slirp4netns"); r.why != nil {
		return r, nil
	}
	pid, end, err := holder(ctx)
	if err != nil {
		r.why = err
		return r, nil
	}
	ready, w, err := os.Pipe()
	if err != nil {
		r.why = err
		return r, end
	}
	c := exec.Command("slirp4netns", "--configure", "--mtu=65520", "--ready-fd=3", fmt.Sprint(pid), "tap0")
	c.ExtraFiles, c.SysProcAttr = []*os.File{w}, &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		c.Args = append(c.Args[:1], append([]string{"--netns-type=pid"}, c.Args[1:]...)...)
	}
	text := &tail{}
	c.Stderr = text
	err = c.Start()
	w.Close()
	if err == nil {
		if _, err = ready.Read(make([]byte, 1)); err != nil {
			_ = c.Process.Kill()
			_ = c.Wait()
			err = fmt.Errorf("slirp4netns did not start: %s", text)
		}
	}
	ready.Close()
	if r.why = err; err != nil {
		return r, end
	}
	r.argv = append([]string{"nsenter", "--user", "--net", "--preserve-credentials", "--target", fmt.Sprint(pid), "--"}, self)
	return r, func() error {
		_ = c.Process.Kill()
		_ = c.Wait()
		return end()
	}
}

// pasta is the newer network of podman: a TAP device, and for loopback addresses
// a copy from socket to socket. One process is both.
func pasta(ctx context.Context, self, server string) ([]*road, func() error) {
	_, port, _ := net.SplitHostPort(server)
	device := &road{name: "pasta, device", what: "a TAP device and a TCP in a process, MTU 65520", to: "169.254.77.1:" + port, proxy: "-"}
	loopback := &road{name: "pasta, loopback", what: "splice from socket to socket, no rules", to: server, proxy: "-"}
	roads := []*road{device, loopback}
	end, err := func() (func() error, error) {
		if _, err := exec.LookPath("pasta"); err != nil {
			return nil, err
		}
		pid, end, err := holder(ctx)
		if err != nil {
			return nil, err
		}
		argv := []string{"pasta", "-f", "-q", "-4", "-u", "none", "-U", "none", "--config-net", "-a", "169.254.77.2", "-n", "24", "-g", "169.254.77.1", "-t", "none", "-T", port, "-m", "65520"}
		if os.Geteuid() == 0 {
			argv = append(argv, "--runas", "0") // nobody may not enter the namespaces that root made
		}
		c := exec.Command(argv[0], append(argv[1:], fmt.Sprint(pid))...)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		text := &tail{}
		c.Stderr = text
		if err := c.Start(); err != nil {
			return end, err
		}
		for _, r := range roads {
			r.argv = []string{"nsenter", "--user", "--net", "--preserve-credentials", "--target", fmt.Sprint(pid), "--", self}
		}
		both := func() error {
			_ = c.Process.Kill()
			_ = c.Wait()
			return end()
		}
		if err := until(ctx, 10*time.Second, "pasta leads nowhere: "+text.String(), func() (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			_, err := device.take(ctx, "connect", 1)
			return err == nil, nil
		}); err != nil {
			return both, err
		}
		return both, nil
	}()
	for _, r := range roads {
		r.why = err
	}
	return roads, end
}
