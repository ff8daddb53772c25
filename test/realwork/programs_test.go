//go:build linux

package realwork

import (
	"os"
	"syscall"
)

const (
	sigUSR1 = syscall.SIGUSR1
	sigHUP  = syscall.SIGHUP
	sigQUIT = syscall.SIGQUIT
)

func readString(name string) string {
	data, _ := os.ReadFile(name) // a process that ended has none
	return string(data)
}

const cMain = `#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <math.h>
static int sums[4];
static void *work(void *p) { long n = (long)p; for (int i = n; i < 100; i += 4) sums[n] += i; return 0; }
int main(void) {
	pthread_t t[4]; int sum = 0, st, fd[2]; char b[8];
	for (long i = 0; i < 4; i++) if (pthread_create(&t[i], 0, work, (void *)i)) return 1;
	for (int i = 0; i < 4; i++) { pthread_join(t[i], 0); sum += sums[i]; }
	if (pipe(fd)) return 2;
	pid_t pid = fork();
	if (pid == 0) { if (write(fd[1], "child", 6) != 6) _exit(1); _exit(7); }
	if (read(fd[0], b, 6) != 6 || strcmp(b, "child")) return 3;
	if (waitpid(pid, &st, 0) != pid || WEXITSTATUS(st) != 7) return 4;
	int *m = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED) return 5;
	if (fork() == 0) { *m = 11; _exit(0); }
	wait(0);
	if (*m != 11 || sqrt(16.0) != 4.0) return 6;
	printf("sum %d threads %d\n", sum, 4);
	return 0;
}
`

const nodeMain = `
const fs = require('fs'), http = require('http'), cp = require('child_process'), os = require('os'), path = require('path'), net = require('net');
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const zlib = require('zlib'), crypto = require('crypto'), dns = require('dns');
if (!isMainThread) { parentPort.postMessage(workerData * 2); return; }
(async () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'n-'));
  fs.writeFileSync(path.join(dir, 'a'), 'x'.repeat(1 << 20));
  if (fs.statSync(path.join(dir, 'a')).size !== 1 << 20) throw new Error('size');
  const seen = new Promise(ok => { const w = fs.watch(dir, () => { w.close(); ok(); }); setTimeout(() => fs.writeFileSync(path.join(dir, 'b'), '1'), 50); });
  await seen;
  const doubled = await new Promise((ok, no) => { const w = new Worker(__filename, { workerData: 21 }); w.on('message', ok); w.on('error', no); });
  if (doubled !== 42) throw new Error('worker');
  const out = cp.execFileSync(process.execPath, ['-e', 'process.stdout.write("child " + process.argv[1])', 'arg']).toString();
  if (out !== 'child arg') throw new Error(out);
  const forked = await new Promise(ok => { const f = path.join(dir, 'f.js'); fs.writeFileSync(f, 'process.send({ok: 1}); process.disconnect()'); cp.fork(f).on('message', ok); });
  if (!forked.ok) throw new Error('fork');
  const body = await new Promise((ok, no) => {
    const s = http.createServer((q, r) => r.end('hello ' + q.url)).listen(0, '127.0.0.1', () => {
      http.get({ host: 'localhost', family: 4, port: s.address().port, path: '/p' }, r => { let b = ''; r.on('data', d => b += d); r.on('end', () => { s.close(); ok(b); }); }).on('error', no);
    });
  });
  if (body !== 'hello /p') throw new Error(body);
  const echoed = await new Promise((ok, no) => {
    const p = path.join(dir, 'sock');
    const s = net.createServer(c => c.pipe(c)).listen(p, () => { const c = net.connect(p); c.end('unix'); let b = ''; c.on('data', d => b += d); c.on('end', () => { s.close(); ok(b); }); });
  });
  if (echoed !== 'unix') throw new Error(echoed);
  if (zlib.gunzipSync(zlib.gzipSync(Buffer.alloc(1e6))).length !== 1e6) throw new Error('zlib');
  crypto.randomBytes(32); await new Promise(ok => crypto.pbkdf2('a', 'b', 1000, 32, 'sha256', ok));
  await new Promise((ok, no) => dns.lookup('localhost', e => e ? no(e) : ok()));
  console.log('node done', process.version, os.cpus().length > 0);
})().catch(e => { console.error(e); process.exit(1); });
`

const pythonMain = `
import asyncio, concurrent.futures, multiprocessing, os, signal, socket, subprocess, sys, tempfile, threading
def square(n): return n * n
def main():
    assert subprocess.run(["sh", "-c", "cat; exit 3"], input=b"in", capture_output=True).stdout == b"in"
    with multiprocessing.Pool(4) as p: assert p.map(square, range(50))[-1] == 2401
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as e: assert list(e.map(square, [3, 4])) == [9, 16]
    q = multiprocessing.Queue(); w = multiprocessing.Process(target=q.put, args=("queued",)); w.start(); assert q.get(timeout=20) == "queued"; w.join()
    try:
        import sqlite3
    except ImportError:
        print("no sqlite3 in this python")
    else:
        with tempfile.TemporaryDirectory() as d:
            for where in (d, "."):
                db = sqlite3.connect(where + "/t.db"); db.execute("pragma journal_mode=wal"); db.execute("create table t (n)")
                db.executemany("insert into t values (?)", [(i,) for i in range(1000)]); db.commit()
                assert db.execute("select sum(n) from t").fetchone() == (499500,); db.close()
    async def aio():
        async def serve(r, w): w.write(await r.readline()); await w.drain(); w.close()
        s = await asyncio.start_server(serve, "127.0.0.1", 0)
        r, w = await asyncio.open_connection(*s.sockets[0].getsockname()[:2]); w.write(b"line\n"); assert await r.readline() == b"line\n"; w.close(); s.close()
        p = await asyncio.create_subprocess_exec("true"); assert await p.wait() == 0
    asyncio.run(aio())
    got = []
    signal.signal(signal.SIGALRM, lambda *a: got.append(1)); signal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause(); assert got
    a, b = socket.socketpair(); t = threading.Thread(target=lambda: b.sendall(b"x" * 3000000)); t.start()
    n = 0
    while n < 3000000: n += len(a.recv(65536))
    t.join()
    m, s = os.openpty(); os.write(s, b"pty\n"); assert b"pty" in os.read(m, 10)
    print("python done", sys.version.split()[0])
if __name__ == "__main__": main()
`

const perlMain = `use strict; use warnings; use Socket; use POSIX qw(:sys_wait_h); use File::Temp qw(tempdir); use IO::Select;
my $d = tempdir(CLEANUP => 1); open(my $f, '>', "$d/x") or die; print $f "perl\n"; close $f;
my $pid = open(my $p, '-|', 'cat', "$d/x") or die; my $l = <$p>; close $p; die unless $l eq "perl\n";
socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die $!; my $c = fork; if (!$c) { syswrite $a, "hi"; exit 5 } sysread $b, my $x, 2; waitpid $c, 0; die unless $? >> 8 == 5 && $x eq 'hi';
die unless ` + "`echo sub`" + ` eq "sub\n"; kill 0, $$ or die; local $SIG{USR1} = sub { print "perl done\n" }; kill 'USR1', $$;
`

const rustMain = `use std::{net::{TcpListener, TcpStream}, process::Command, thread, io::{Read, Write}};
fn main() {
    let l = TcpListener::bind("127.0.0.1:0").unwrap(); let a = l.local_addr().unwrap();
    let t = thread::spawn(move || { let (mut s, _) = l.accept().unwrap(); s.write_all(b"hi").unwrap(); });
    let mut b = String::new(); TcpStream::connect(a).unwrap().read_to_string(&mut b).unwrap(); t.join().unwrap();
    assert_eq!(b, "hi"); assert!(Command::new("true").status().unwrap().success());
    println!("rust done");
}
#[test] fn it_works() { assert_eq!(2 + 2, 4); }
`

// systemMain goes through what event loops, watchers and databases use.
const systemMain = `
import array, ctypes, fcntl, mmap, os, resource, select, signal, socket, struct, tempfile, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def check(r, what):
    if r < 0: raise OSError(ctypes.get_errno(), what + ": " + os.strerror(ctypes.get_errno()))
    return r
d = tempfile.mkdtemp(dir=".")
# epoll over many descriptors, edge-triggered
ep = select.epoll(); pairs = [socket.socketpair() for _ in range(300)]
for a, b in pairs: a.setblocking(False); ep.register(a.fileno(), select.EPOLLIN | select.EPOLLET)
for a, b in pairs: b.send(b"x")
seen = set()
while len(seen) < 300:
    for fd, _ in ep.poll(5): seen.add(fd)
# inotify
i = check(libc.inotify_init1(os.O_NONBLOCK), "inotify"); check(libc.inotify_add_watch(i, d.encode(), 0x100), "watch")
open(d + "/new", "w").close(); assert select.select([i], [], [], 5)[0], "inotify"
# eventfd, timerfd, signalfd, pidfd, memfd
e = check(libc.eventfd(0, 0), "eventfd"); os.write(e, struct.pack("Q", 3)); assert struct.unpack("Q", os.read(e, 8))[0] == 3
t = check(libc.timerfd_create(1, 0), "timerfd"); check(libc.timerfd_settime(t, 0, struct.pack("qqqq", 0, 0, 0, 1000000), None), "settime"); assert len(os.read(t, 8)) == 8
pid = os.fork()
if pid == 0: time.sleep(100); os._exit(0)
p = os.pidfd_open(pid); signal.pidfd_send_signal(p, signal.SIGTERM); assert select.select([p], [], [], 5)[0]; assert os.waitpid(pid, 0)[1] == 15
m = os.memfd_create("m"); os.ftruncate(m, 4096); mm = mmap.mmap(m, 4096); mm[0] = 1
# unix sockets: stream, datagram, seqpacket, abstract, descriptors passed
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    s = socket.socket(socket.AF_UNIX, kind); s.bind(d + "/s%d" % kind); s.listen(); c = socket.socket(socket.AF_UNIX, kind); c.connect(d + "/s%d" % kind); a, _ = s.accept(); c.send(b"z"); assert a.recv(1) == b"z"
g = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); g.bind(d + "/dgram"); h = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); h.sendto(b"q", d + "/dgram"); assert g.recv(1) == b"q"
s = socket.socket(socket.AF_UNIX); s.bind("\0abstract"); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect("\0abstract")
x, y = socket.socketpair(); r, w = os.pipe(); socket.send_fds(x, [b"f"], [w]); _, fds, _, _ = socket.recv_fds(y, 1, 1); os.write(fds[0], b"passed"); assert os.read(r, 6) == b"passed"
# tcp and udp, both families of loopback
for fam, addr in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    try: s = socket.socket(fam); s.bind((addr, 0))
    except OSError as err: print("no", addr, err); continue
    s.listen(); c = socket.create_connection(s.getsockname()[:2]); c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); a, _ = s.accept(); c.sendall(b"t"); assert a.recv(1) == b"t"
    u = socket.socket(fam, socket.SOCK_DGRAM); u.bind((addr, 0)); u.sendto(b"u", u.getsockname()); assert u.recv(1) == b"u"
# locks, preallocation, holes, extended attributes, file ranges, times
f = open(d + "/f", "w+b"); fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX); os.posix_fallocate(f.fileno(), 0, 1 << 20); f.write(b"data"); f.flush(); os.fsync(f.fileno()); os.fdatasync(f.fileno())
assert os.lseek(f.fileno(), 0, os.SEEK_DATA) == 0
g2 = open(d + "/g", "w+b"); assert os.copy_file_range(f.fileno(), g2.fileno(), 1000, 0, 0) == 1000; assert os.sendfile(g2.fileno(), f.fileno(), 0, 100) == 100
try: os.setxattr(d + "/f", "user.k", b"v"); assert os.getxattr(d + "/f", "user.k") == b"v"
except OSError as err: print("xattr:", err)
mf = mmap.mmap(f.fileno(), 1 << 20); mf[0:4] = b"mmap"; mf.flush()
os.rename(d + "/g", d + "/g2"); os.utime(d + "/g2", (1, 2)); os.truncate(d + "/g2", 0); os.link(d + "/f", d + "/hard"); os.symlink("f", d + "/sym")
tmpf = os.open(d, os.O_TMPFILE | os.O_RDWR, 0o600); os.write(tmpf, b"tmp")
# threads, process groups, sessions, scheduling, limits, priorities
ts = [threading.Thread(target=time.sleep, args=(0.05,)) for _ in range(200)]; [t.start() for t in ts]; [t.join() for t in ts]
os.nice(1); os.sched_getaffinity(0); os.sched_yield(); resource.getrlimit(resource.RLIMIT_NOFILE); resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
pid = os.fork()
if pid == 0: os.setsid(); os.setpgid(0, 0) if os.getpgid(0) != os.getpid() else None; os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
# System V
sid = check(libc.shmget(0, 4096, 0o1600), "shmget"); check(libc.semget(0, 1, 0o1600), "semget"); check(libc.msgget(0, 0o1600), "msgget")
open("/dev/null", "w").write("x"); assert len(open("/dev/urandom", "rb").read(16)) == 16; assert open("/dev/zero", "rb").read(2) == b"\0\0"; os.getrandom(8)
os.listdir("/proc/self/fd"); open("/proc/self/status").read(); open("/proc/meminfo").read(); open("/proc/cpuinfo").read(); open("/proc/self/oom_score_adj", "r").read()
import shutil; shutil.rmtree(d)
print("system calls done")
`
