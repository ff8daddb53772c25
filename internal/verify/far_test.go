//go:build linux

package verify

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/verify/attack"
	"github.com/caisson-dev/caisson/internal/verify/far"
)

// twin makes the test program what plays the network, with a way out that checks
// nothing.
const twin = "__far-twin"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == attack.Arg {
		os.Exit(attack.Main(os.Args[1:2], os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == twin {
		if err := playTwin(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func playTwin(dir string) error {
	w, err := far.Play(dir, "ver_twin/x+y=z")
	if err != nil {
		return fmt.Errorf("nowhere to play: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go carry(l)
	said := farSaid{}
	for _, inside := range []bool{true, false} {
		c := attack.Config{Inside: inside, Gentle: !inside, Work: dir, Far: &w.Far}
		c.Far.Proxy, c.Far.Token = l.Addr().String(), loanVariable
		w.Taken()
		cmd := exec.Command("/proc/self/exe", append([]string{attack.Arg, jsonOf(c), attack.Way, "P41"}, wayProps...)...)
		cmd.Env = append(os.Environ(), loanVariable+"="+w.Secret)
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("attack: %w", err)
		}
		o, err := Outcomes(out)
		if err != nil {
			return err
		}
		if inside {
			said.Inside, said.Touched = o, w.Taken()
		} else {
			said.Control = o
		}
	}
	return json.NewEncoder(os.Stdout).Encode(said)
}

// carry is a way out that carries everything: tunnels, requests, both kinds of SOCKS.
func carry(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			r := bufio.NewReader(conn)
			to, rest := "", []byte(nil)
			switch first, _ := r.Peek(1); {
			case len(first) == 0:
				return
			case first[0] == 5:
				var b [262]byte
				_, _ = io.ReadFull(r, b[:3])
				_, _ = conn.Write([]byte{5, 0})
				_, _ = io.ReadFull(r, b[:4])
				host := ""
				if b[3] == 1 {
					_, _ = io.ReadFull(r, b[:4])
					host = net.IP(b[:4]).String()
				} else {
					n, _ := r.ReadByte()
					_, _ = io.ReadFull(r, b[:n])
					host = string(b[:n])
				}
				_, _ = io.ReadFull(r, b[:2])
				to = fmt.Sprintf("%s:%d", host, int(b[0])<<8|int(b[1]))
				_, _ = conn.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
			case first[0] == 4:
				var b [8]byte
				_, _ = io.ReadFull(r, b[:])
				_, _ = r.ReadString(0)
				host, _ := r.ReadString(0)
				to = fmt.Sprintf("%s:%d", strings.TrimSuffix(host, "\x00"), int(b[2])<<8|int(b[3]))
				_, _ = conn.Write([]byte{0, 0x5a, 0, 0, 0, 0, 0, 0})
			default:
				line, _ := r.ReadString('\n')
				f := strings.Fields(line)
				if len(f) < 2 {
					return
				}
				if f[0] == "CONNECT" {
					to = f[1]
					for l := "x"; strings.TrimSpace(l) != ""; l, _ = r.ReadString('\n') {
						if l == "" {
							return
						}
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
				} else {
					host, path, _ := strings.Cut(strings.TrimPrefix(f[1], "http://"), "/")
					if to = host; !strings.Contains(strings.TrimLeft(host, "[:"), ":80") {
						to += ":80"
					}
					rest = []byte(f[0] + " /" + path + " HTTP/1.1\r\n")
				}
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer up.Close()
			_, _ = up.Write(rest)
			go func() { _, _ = io.Copy(up, r) }()
			_, _ = io.Copy(conn, up)
		}()
	}
}

// TestFarTwin: a way out that checks nothing is found out, in each of the
// properties; and what a task may do is done by it.
func TestFarTwin(t *testing.T) {
	dir := t.TempDir()
	for d := dir; strings.HasPrefix(d, os.TempDir()) && d != os.TempDir(); d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	cmd := exec.Command("/proc/self/exe", twin, dir)
	cmd.SysProcAttr = far.Namespaces()
	cmd.SysProcAttr.Pdeathsig = 0 // the thread that starts it need not last
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if cmd.ProcessState == nil || strings.Contains(errs.String(), "nowhere to play") {
		t.Skipf("no network namespace of its own can be made here: %v %s", err, errs.String())
	}
	var said farSaid
	if err != nil || json.Unmarshal(out, &said) != nil {
		t.Fatalf("%v: %s %s", err, out, errs.String())
	}
	var ts []touch
	for _, x := range said.Touched {
		ts = append(ts, touch{x.Prop, x.What})
	}
	s := sides{inside: said.Inside, control: said.Control, promised: task.Vector{task.NET: 4, task.CRD: 4}, touched: group(ts)}
	for _, id := range append(slices.Clone(wayProps), "P41") {
		p, _ := attack.Find(id)
		v := s.judge(p)
		t.Logf("%s: %s, %d of %d, seen %d, %q", id, v.Result, len(v.Broken), v.Attempts, len(v.Seen), v.NoControl)
		if v.Result != task.VerifyBroken || len(v.Broken) == 0 {
			t.Errorf("%s is %s: %s", id, v.Result, v.Why)
		}
		if len(v.Seen) == 0 && id != "P46" {
			t.Errorf("%s: no server saw anything", id)
		}
	}
	for k, o := range said.Control {
		if o.Errno != "" {
			t.Errorf("a control that does not work: %s: %s %s", k, o.Errno, o.Detail)
		}
	}
	var dull []string
	for k, o := range said.Inside {
		if o.Prop == attack.Way && o.Errno != "" {
			dull = append(dull, k+": "+o.Errno+" "+o.Detail)
		}
	}
	if len(dull) > 0 {
		t.Errorf("what is allowed does not get out: %q", dull)
	}
}
