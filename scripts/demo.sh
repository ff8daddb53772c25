#!/usr/bin/env bash
# The main job of caisson on a real project, told step by step: open a task, build and test inside, commit inside, look
# at the change, compare promised with proved, close, and show that nothing is left. Needs git and Go; no network, no
# root, no Docker. Everything it makes lies in one temporary folder that goes away at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -w . ]; then make -s build; fi
[ -x bin/caisson ] || { echo "demo: bin/caisson is not there and this folder is not writable; build it first" >&2; exit 1; }
caisson=$PWD/bin/caisson
modcache=$(go env GOMODCACHE)
module=$(go mod download -json github.com/spf13/pflag | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p')
[ -d "$module" ] || { echo "demo: the source of pflag is not in the module cache: run go mod download once with a network" >&2; exit 1; }

T=$(mktemp -d "${TMPDIR:-/tmp}/caisson-demo.XXXXXX")
export CAISSON_STATE_DIR=$T/state CAISSON_RUNTIME_DIR=$T/run
unset CAISSON_BACKEND CAISSON_NEED CAISSON_UNATTENDED
opened=
finish() {
	rc=$?
	[ -z "$opened" ] || "$caisson" close "$opened" --discard >/dev/null 2>&1 || true
	chmod -R u+w "$T" 2>/dev/null || true
	rm -rf "$T" || echo "demo: left behind: $T" >&2
	exit $rc
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
[ -t 1 ] && [ -z "${NO_COLOR:-}" ] || say() { printf '\n# %s\n' "$*"; }
# show_cmd CMD…: as one would type it, with short names for long paths.
show_cmd() {
	local a out='$'
	for a in "$@"; do
		case $a in
		"$caisson") a=caisson ;;
		*[!A-Za-z0-9_./:=,@-]*) a="'$a'" ;;
		esac
		out="$out ${a//$T/\$T}"
	done
	printf '%s\n' "$out"
}
run() { show_cmd "$@"; "$@"; }
# must_fail CMD…: the demonstration is that this does not work.
must_fail() {
	show_cmd "$@"
	if "$@"; then echo "demo: this should have failed" >&2; exit 1; fi
	echo "(refused, as it should be)"
}

# started PID: when the process started, in clock ticks since boot; empty when there is none. One that has ended and only
# waits for init to take note of it is none.
started() {
	local f
	f=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) || return 0
	case $f in [ZX]*) ;; *) cut -d' ' -f20 <<<"$f" ;; esac
}

# left: what the host still holds of the task: its processes, mounts, control groups, sockets.
left() {
	local p
	for p in $pids; do
		[ "$(started "${p%:*}")" != "${p#*:}" ] || echo "process ${p%:*}"
	done
	grep -F "$T" /proc/self/mountinfo | sed 's/^/mount /' || true
	find /sys/fs/cgroup -type d -name "*$id*" 2>/dev/null | sed 's/^/control group /'
	find "$T/run" -type s 2>/dev/null | sed 's/^/socket /'
}

say "a repository: the published source of github.com/spf13/pflag, three commits"
repo=$T/project
mkdir "$repo"
g() { git -C "$repo" -c user.name=Demo -c user.email=demo@example.org -c init.defaultBranch=main -c core.hooksPath=/dev/null "$@"; }
g init -q
cp "$module/LICENSE" "$repo/" && g add -A && g commit -qm "Licence"
cp "$module"/go.* "$module"/README.md "$repo/" && chmod -R u+w "$repo" && g add -A && g commit -qm "Module and readme"
cp -r "$module/." "$repo/" && chmod -R u+w "$repo" && g add -A && g commit -qm "Source"
g log --oneline
echo "a secret of the user" >"$T/secret.txt"
head_before=$(g rev-parse HEAD)

say "what this machine can enforce"
run "$caisson" doctor || echo "(doctor names what is missing)"

say "the decision alone; nothing is created"
run "$caisson" plan --repo "$repo" --ro "$modcache"

say "one task in its own boundary, with the module cache as a read-only seed"
run "$caisson" open --repo "$repo" --ro "$modcache" --env "GOMODCACHE=$modcache" --env GOPROXY=off demo
opened=demo
view=$("$caisson" show --json demo)
id=$(grep -oE 't[a-z2-7]{10}' <<<"$view" | head -n 1)
pids=
for p in $(grep -oE '("pid": *|pid=)[0-9]+' <<<"$view" | grep -oE '[0-9]+$' | sort -u); do pids="$pids $p:$(started "$p")"; done

say "real tools on the real project, inside"
run "$caisson" exec demo -- sh -c 'id -u; pwd; go version'
run "$caisson" exec demo -- go build ./...
run "$caisson" exec demo -- go test ./...

say "what must not work from inside"
must_fail "$caisson" exec demo -- cat "$T/secret.txt"
must_fail "$caisson" exec demo -- touch /usr/bin/planted
must_fail "$caisson" exec demo -- bash -c 'exec 3<>/dev/tcp/192.0.2.1/80'

if command -v python3 >/dev/null 2>&1; then
	say "a server that one command starts is there for the next"
	run "$caisson" exec demo -- sh -c 'python3 -m http.server 8000 --bind 127.0.0.1 >/tmp/server.log 2>&1 & for i in $(seq 100); do python3 -c "import socket; socket.create_connection((\"127.0.0.1\", 8000))" 2>/dev/null && exit 0; sleep 0.1; done; exit 1'
	run "$caisson" exec demo -- python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:8000/go.mod").read().decode().splitlines()[0])'
fi

say "work: a commit inside, and an uncommitted file"
run "$caisson" exec demo -- sh -c 'echo >>README.md "Changed inside a boundary." && git commit -qam "A change made inside" && echo note >left-over.txt && git status --short && git log --oneline -2'

say "the exact change set, seen from outside"
run "$caisson" diff --stat demo

say "required, promised, proved; and what is not isolated"
run "$caisson" show demo

while_open=$(left)
[ -n "$while_open" ] || { echo "demo: the look at the host sees nothing, so it would prove nothing" >&2; exit 1; }

say "the end: work is rescued first, then everything goes"
run "$caisson" close demo || [ $? -eq 7 ] # 7: done, ignored files kept until they expire
opened=
run "$caisson" ls

say "nothing is lost"
g for-each-ref --format='%(refname) %(objectname:short) %(contents:subject)' 'refs/caisson/**'
[ -n "$(g for-each-ref 'refs/caisson/**')" ] || { echo "demo: no rescued ref" >&2; exit 1; }
[ "$(g rev-parse HEAD)" = "$head_before" ] && [ -z "$(g status --porcelain)" ] || { echo "demo: the checkout changed" >&2; exit 1; }
echo "the user's checkout and branch are as before"

say "nothing is left"
after=$(left)
printf 'while it was open:\n%s\nnow:\n%s\n' "$(sed 's/^/  /' <<<"$while_open")" "$(sed 's/^/  /' <<<"${after:-nothing}")"
[ -z "$after" ] || { echo "demo: something is left" >&2; exit 1; }

say "the same in one command: open, probe, run, end"
run "$caisson" run --repo "$repo" -q -- go vet ./...
echo
echo "demo: done"
