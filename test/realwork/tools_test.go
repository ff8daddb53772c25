//go:build linux

package realwork

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestLanguages does in each language what programs do all day.
func TestLanguages(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{
			"c/main.c":   cMain,
			"c/Makefile": "prog: main.o\n\tcc -o prog main.o -lpthread -lm\nmain.o: main.c\n\tcc -O1 -Wall -Werror -c main.c\ncheck: prog\n\t./prog\n",
			"node/a.js":  nodeMain, "py/a.py": pythonMain, "pl/a.pl": perlMain,
			"rs/Cargo.toml": "[package]\nname = \"hello\"\nversion = \"0.1.0\"\nedition = \"2021\"\n", "rs/src/main.rs": rustMain,
		})
		on(t, id, repo, func() {
			run := func(name string, progs []string, script, want string) {
				t.Run(name, func(t *testing.T) {
					id := id
					if name == "rust" {
						id = withRust(t, id)
					}
					needs(t, id, progs...)
					contains(t, name, sh(t, id, repo, script), want)
				})
			}
			run("c", []string{"gcc"}, "cd c; gcc -O2 -g -o prog main.c -lpthread -lm; ./prog", "sum 4950 threads 4")
			run("c++", []string{"g++"}, `printf '#include <thread>\n#include <iostream>\nint main(){ std::thread t([]{ try { throw 7; } catch (int i) { std::cout << "caught " << i << std::endl; } }); t.join(); }\n' >x.cc; g++ -o x x.cc; ./x`, "caught 7")
			run("static and shared libraries", []string{"gcc", "ar"}, `cd c; echo 'int two(void){return 2;}' >two.c; gcc -fPIC -shared -o libtwo.so two.c; gcc -c two.c; ar rcs libtwo.a two.o
echo '#include <stdio.h>
int two(void); int main(){ printf("two is %d", two()); }' >use.c; gcc -o use use.c -L. -ltwo; LD_LIBRARY_PATH=. ./use; gcc -static -o use use.c libtwo.a; ./use`, "two is 2")
			run("make", []string{"make", "cc"}, "cd c; make -j4 check; make check", "sum 4950")
			run("node", []string{"node"}, "node node/a.js", "node done")
			run("npm", []string{"npm"}, `cd node; npm init -y >/dev/null; npm pkg set scripts.hello="node -e 'console.log(process.env.npm_lifecycle_event)'"; npm run -s hello`, "hello")
			run("python", []string{"python3"}, "python3 py/a.py", "python done")
			run("venv", []string{"python3"}, `python3 -m venv --without-pip env; . env/bin/activate; python -c 'import sys; assert sys.prefix != sys.base_prefix; print("venv at", sys.prefix)'`, "venv at "+repo+"/env")
			run("perl", []string{"perl"}, "perl pl/a.pl", "perl done")
			run("awk, sed, sort, find, xargs", []string{"awk"}, `seq 1 20000 | sort -R | sort -n | awk '{s+=$1} END {print "awk", s}'; find . -name '*.py' -print0 | xargs -0 -n1 sed -n 1p >/dev/null`, "awk 200010000")
			run("bash", []string{"bash"}, `bash -ec 'exec 3<> <(echo via substitution); read -u3 x; echo "$x"; coproc cat; echo through coproc >&"${COPROC[1]}"; read -r y <&"${COPROC[0]}"; echo "$y"; set -o pipefail; ! false | true; echo done $BASHPID'`, "through coproc")
			run("compression", []string{"gzip", "tar", "xz"}, `tar -cz . -f /tmp/a.tgz; tar -tzf /tmp/a.tgz | grep -c a.py; xz -T2 </tmp/a.tgz | xz -d | cmp - /tmp/a.tgz; echo archives done`, "archives done")
			run("rust", []string{"cargo"}, "cd rs; cargo --offline run 2>&1; cargo --offline test 2>&1", "rust done")
			run("shared memory and semaphores", []string{"python3"}, `python3 -c '
from multiprocessing import shared_memory, Semaphore
m = shared_memory.SharedMemory(create=True, size=1<<20); m.buf[0] = 7
n = shared_memory.SharedMemory(name=m.name); print("shared", n.buf[0]); n.close(); m.close(); m.unlink()'`, "shared 7")
			run("who am i", []string{"id"}, `id -u; whoami; hostname; getent passwd "$(id -u)"; getent hosts localhost; locale >/dev/null; date; tty || true; nproc; uname -a`, "1000")
		})
	})
}

// withRust puts the toolchain that rustup chose for the machine's own user on
// PATH, where the identity can read it.
func withRust(t *testing.T, id *harness.Identity) *harness.Identity {
	out, err := exec.Command("rustc", "--print", "sysroot").Output()
	if err != nil {
		t.Skipf("no rust on this machine: %v", err)
	}
	return onPath(id, filepath.Join(strings.TrimSpace(string(out)), "bin"))
}

// TestServer starts servers by one exec and uses them by the next.
func TestServer(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"index.txt": "served\n", "srv.js": `
const http = require('http');
http.createServer((q, r) => { r.end('node says ' + q.url + '\n'); }).listen(8099, '127.0.0.1', () => console.log('listening'));
`})
		on(t, id, repo, func() {
			task := id.Open(t, repo)
			for _, s := range []struct{ prog, start, port, path, want string }{
				{"python3", "python3 -m http.server --bind 127.0.0.1 8098", "8098", "index.txt", "served"},
				{"node", "node srv.js", "8099", "x/y", "node says /x/y"},
			} {
				t.Run(s.prog, func(t *testing.T) {
					needs(t, id, s.prog, "python3")
					in(t, id, task, s.start+" >/tmp/"+s.prog+".log 2>&1 &")
					wait := "for i in $(seq 1 200); do python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", " + s.port + "))' 2>/dev/null && exit 0; sleep 0.1; done; cat /tmp/" + s.prog + ".log; exit 1"
					in(t, id, task, wait)
					get := "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:" + s.port + "/" + s.path + "\").read().decode())'"
					contains(t, "the next exec", in(t, id, task, get), s.want)
					contains(t, "by name", in(t, id, task, strings.Replace(get, "127.0.0.1", "localhost", 1)), s.want)
					if c, err := net.DialTimeout("tcp", "127.0.0.1:"+s.port, time.Second); err == nil {
						c.Close()
						t.Errorf("port %s is reached from the host", s.port)
					}
					contains(t, "processes of the other exec", in(t, id, task, "ps ax 2>/dev/null || cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), s.start[:10])
				})
			}
			marker := in(t, id, task, "sleep 98765 >/dev/null 2>&1 & echo started")
			equal(t, "background", marker, "started\n")
			if !processes("sleep\x0098765") {
				t.Error("the control finds no process while the task is open")
			}
			id.OK(t, id.Dir, "close", task)
			if processes("sleep\x0098765") || processes("-m\x00http.server\x00--bind\x00127.0.0.1\x008098") {
				t.Error("a server outlives its task")
			}
		})
	})
}

// processes looks for a command line on the host.
func processes(part string) bool {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, n := range names {
		if strings.Contains(readString(n), part) {
			return true
		}
	}
	return false
}

// TestSystemCalls uses what the kernel offers programs beside files and pipes.
func TestSystemCalls(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		needs(t, id, "python3")
		files, big := 2000, 40
		if long() {
			files, big = 20000, 200
		}
		repo := id.Repo(t, map[string]string{"sys.py": systemMain})
		on(t, id, repo, func() {
			task := id.Open(t, repo)
			contains(t, "system calls", in(t, id, task, "python3 sys.py"), "system calls done")
			t.Run("files", func(t *testing.T) {
				in(t, id, task, `truncate -s 1G sparse; [ "$(stat -c %s sparse)" = 1073741824 ]; [ "$(stat -c %b sparse)" -lt 100 ]; rm sparse`)
				in(t, id, task, fmt.Sprintf(`head -c %dM /dev/urandom >big; cp big /tmp/big; cmp big /tmp/big; sha256sum big >/tmp/sum; sync big; sha256sum -c /tmp/sum; rm /tmp/big`, big))
				in(t, id, task, fmt.Sprintf(`python3 -c '
import os
for i in range(%d):
    d = "many/%%02d" %% (i %% 100)
    if i < 100: os.makedirs(d)
    open("%%s/f%%d" %% (d, i), "w").write(str(i))
'; [ "$(find many -type f | wc -l)" = %d ]; git add many; git commit -qm many; git status --porcelain | grep -qx '?? big'; rm -r many big; git checkout -q .; [ "$(git ls-files | wc -l)" = %d ]`, files, files, files+1))
				in(t, id, task, `flock lockfile sh -c 'flock -n lockfile true && exit 1; echo locked'; ln -s lockfile link; ln lockfile hard; [ "$(stat -c %h hard)" = 2 ]; chmod 755 lockfile; touch -d 2001-01-01 lockfile; [ "$(stat -c %Y lockfile)" = "$(date -d 2001-01-01 +%s)" ]; mkfifo fifo; (echo through >fifo &); [ "$(cat fifo)" = through ]; rm fifo link hard lockfile`)
			})
			if work := id.OK(t, id.Dir, "close", "--dry-run", "--json", task); !strings.Contains(work, "many") && !strings.Contains(work, "refs/heads/main") {
				t.Errorf("the commit is not seen as work: %s", work)
			}
			id.OK(t, id.Dir, "close", task)
			n := id.Git(t, repo, "rev-list", "--count", "--glob=refs/caisson/*")
			if n == "0" || n == "1" {
				t.Errorf("commits rescued: %s", n)
			}
		})
	})
}

// TestSharedStore has two tasks of one repository at once: neither sees the other.
func TestSharedStore(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
		on(t, id, repo, func() {
			a, b := id.Open(t, repo), id.Open(t, repo)
			in(t, id, a, "echo changed >a.txt; echo secret >/tmp/x; mkfifo /tmp/fifo; sleep 1000 >/dev/null 2>&1 &")
			equal(t, "the other's file", in(t, id, b, "cat a.txt; ls -d /tmp/x /tmp/fifo 2>/dev/null || true; git status --porcelain; ps ax 2>/dev/null | grep -c '[s]leep 1000' || true"), "a\n0\n")
			id.OK(t, id.Dir, "close", "--discard", a)
			equal(t, "after the other ended", in(t, id, b, "cat a.txt"), "a\n")
		})
	})
}

// TestPathInTheRepository has a folder of the checkout on the user's PATH, as
// direnv and many projects do: inside it is the task's own, writable copy.
func TestPathInTheRepository(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
		id.Write(t, repo+"/bin/tool", "#!/bin/sh\necho tool\n", 0o755)
		id.Git(t, repo, "add", "-A")
		id.Git(t, repo, "commit", "-qm", "tool")
		equal(t, "in the checkout", sh(t, onPath(id, repo+"/bin"), repo, "bin/tool; echo x >bin/new"), "tool\n")
	})
}
