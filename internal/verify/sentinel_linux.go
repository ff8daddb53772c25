package verify

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// listeners are sentinels that listen. Whatever touches one stands in its log, by
// the property that it breaks.
type listeners struct {
	mu    sync.Mutex
	seen  []touch
	wait  sync.WaitGroup
	close []func()
	probe []func() error // each comes back when all that came to one listener before is noted
}

type touch struct{ prop, what string }

const settle = 5 * time.Second

func (l *listeners) note(prop, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, touch{prop, what})
}

// nonce returns a text that stands nowhere else.
func nonce() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// greeting is what a session bus would say.
const greeting = "OK 0\r\n"

// stream accepts on ln until the listeners are closed.
func (l *listeners) stream(prop string, ln net.Listener) {
	what := ln.Addr().Network() + " " + ln.Addr().String()
	own := make(chan struct{}, 1) // a connection of this process's own is due
	l.wait.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			select {
			case <-own:
				// Connections are taken in the order in which they came: all that were
				// made before are noted.
			default:
				l.note(prop, what)
			}
			_, _ = conn.Write([]byte(greeting))
			_ = conn.Close()
		}
	})
	l.close = append(l.close, func() { _ = ln.Close() })
	l.probe = append(l.probe, func() error {
		own <- struct{}{} // should another's take it, this one is noted in its place
		conn, err := net.DialTimeout(ln.Addr().Network(), ln.Addr().String(), settle)
		if err != nil {
			<-own
			return err
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(settle))
		_, err = conn.Read(make([]byte, 1))
		return err
	})
}

// packets reads what comes to c until the listeners are closed.
func (l *listeners) packets(prop string, c net.PacketConn) {
	what := c.LocalAddr().Network() + " " + c.LocalAddr().String()
	mark, got := nonce(), make(chan struct{}, 1)
	l.wait.Go(func() {
		buf := make([]byte, 256)
		for {
			n, _, err := c.ReadFrom(buf)
			switch {
			case err != nil:
				return
			case string(buf[:n]) == mark:
				select {
				case got <- struct{}{}:
				default:
				}
			default:
				l.note(prop, what)
			}
		}
	})
	l.close = append(l.close, func() { _ = c.Close() })
	l.probe = append(l.probe, func() error {
		conn, err := net.Dial(c.LocalAddr().Network(), c.LocalAddr().String())
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(mark)); err != nil {
			return err
		}
		select {
		case <-got:
			return nil
		case <-time.After(settle):
			return errors.New("a sentinel does not answer")
		}
	})
}

// unix listens on a Unix socket that anybody may reach who sees it. A name that
// begins with @ has no file.
func (l *listeners) unix(prop, kind, name string) error {
	if kind == "unixgram" {
		c, err := net.ListenUnixgram(kind, &net.UnixAddr{Name: name, Net: kind})
		if err != nil {
			return err
		}
		l.packets(prop, c)
		if name[0] != '@' {
			l.close = append(l.close, func() { _ = os.Remove(name) })
		}
	} else {
		ln, err := net.ListenUnix(kind, &net.UnixAddr{Name: name, Net: kind})
		if err != nil {
			return err
		}
		l.stream(prop, ln)
	}
	if name[0] == '@' {
		return nil
	}
	return os.Chmod(name, 0o777)
}

// log returns and forgets what was noted, once all that came is.
func (l *listeners) log() ([]touch, error) {
	var errs []error
	for _, p := range l.probe {
		if err := p(); err != nil {
			errs = append(errs, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.seen
	l.seen = nil
	return out, errors.Join(errs...)
}

// end closes every listener and waits for those that served them.
func (l *listeners) end() {
	for _, c := range slices.Backward(l.close) {
		c()
	}
	l.wait.Wait()
}

// group is what was touched, by property, each thing once.
func group(ts []touch) map[string][]string {
	count := map[touch]int{}
	var order []touch
	for _, t := range ts {
		if count[t] == 0 {
			order = append(order, t)
		}
		count[t]++
	}
	out := map[string][]string{}
	for _, t := range order {
		out[t.prop] = append(out[t.prop], fmt.Sprintf("%s, %d times", t.what, count[t]))
	}
	return out
}
