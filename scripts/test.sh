#!/usr/bin/env bash
# The whole check of caisson. Usage: scripts/test.sh all|fast
#
# all:  formatting, vet, staticcheck, govulncheck, build, every test as the current user, as root also the tests of every
#       room again as an unprivileged user (-short: without what no identity changes), conformance and crashes on every
#       backend with an engine of this script's own, the tests of the build tag faults,
#       the race detector where goroutines meet (-short), some tests inside a boundary of its own,
#       cross-builds, a second build that must give the same bytes. Under 25 minutes on two cores.
# fast: formatting, vet and short tests, under two minutes.
#
# PKGS="./internal/x/..." restricts tests, vet and staticcheck to some packages. CAISSON_TEST_FULL=1 runs every member
# of the matrices, the long loops and the large trees that are cut to a sample otherwise, and nothing with -short.
#
# As root, where there is memory to spare, the tests that only processes die in (test/lifecycle, fault injection) and the
# unprivileged run have their files on a tmpfs of this script; all others on the disk behind TMPDIR. So each room is tried
# on both.
#
# A test that fails is repeated once, alone, and named at the end when it passes then: some of them wait for what other
# programs do on a machine that others use too. Every step runs even when an earlier one failed; the end lists failed steps, steps that could not run, and every
# skipped test with its reason. Exit status 1 when a step failed, and, as root on Debian, when a test of
# scripts/required-tests.txt was skipped or did not run.
set -u
cd "$(dirname "$0")/.."
mode=${1:-all}
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -p=2"
# What caisson itself would read from its user's environment must not reach the tests.
unset CAISSON_STATE_DIR CAISSON_RUNTIME_DIR CAISSON_TEST_BACKEND CAISSON_BACKEND CAISSON_NEED CAISSON_UNATTENDED
STATICCHECK=honnef.co/go/tools/cmd/staticcheck@v0.8.2
RUNSC=v0.0.0-20260905035102-160fafc42237 # gVisor as a Go module
GOVULNCHECK=golang.org/x/vuln/cmd/govulncheck@v1.9.0

PKGS=${PKGS:-./...}
short=-short
[ -z "${CAISSON_TEST_FULL:-}" ] || short=

work=$(mktemp -d "${TMPDIR:-/tmp}/caisson-test.XXXXXX")
chmod 755 "$work"
cleanup() {
	[ -z "$builder" ] || { kill -- "-$builder" && wait "$builder"; } 2>/dev/null
	[ -z "$memory" ] || umount "$memory" 2>/dev/null || umount -l "$memory"
	chmod -R u+w "$work" 2>/dev/null
	rm -rf "$work" 2>/dev/null || echo "left behind: $work"
}
memory= builder=
trap cleanup EXIT
trap 'exit 130' INT TERM

failed=() notrun=() flaky=() broken=()
: >"$work/skips" >"$work/oks" >"$work/ran"

# step NAME CMD…: run, time, remember.
step() {
	local name=$1 t0=$SECONDS
	shift
	echo "== $name"
	if "$@"; then
		echo "   $name: ok ($((SECONDS - t0)) s)"
	else
		echo "   $name: FAILED ($((SECONDS - t0)) s)"
		failed+=("$name")
	fi
}

# ---- what the machine has ------------------------------------------------------------------------------------------

# command : Debian package : what does not run without it
needs="git:git:everything
gcc:gcc:the race detector, C compile inside a boundary
node:nodejs:Node script inside a boundary, agent clients
npm:npm:agent clients and the protocol's own tools (test/clients)
python3:python3:python3 inside a boundary, evidence verified by another tool
bwrap:bubblewrap:comparison with bubblewrap in bench
busybox:busybox-static:--rootfs tests
setpriv:util-linux:every test that needs an unprivileged user
unshare:util-linux:simulated hosts without user namespaces
curl:curl:clients of the way out
wget:wget:clients of the way out
pip3:python3-pip:clients of the way out
psql:postgresql:a database that a task reaches
nginx:nginx-light:a server that a task reaches
dnsmasq:dnsmasq-base:a name server that says what it was asked
chromium:chromium:a browser in a task
/usr/sbin/sshd:openssh-server:git over SSH with what a task is lent
ssh:openssh-client:git over SSH with what a task is lent
sshfs:sshfs:repositories on a network file system
mkfs.ext4:e2fsprogs:a disk that fails
dockerd:docker.io:the docker backend (test/engines)
podman:podman:the podman backend (test/engines)
runc:runc:both of them, and the backend oci:runc (test/oci)
newuidmap:uidmap:podman of an ordinary user
rootlesskit:rootlesskit:docker of an ordinary user
crun:crun:the backend oci:crun (test/oci)
script:bsdutils:nothing but convenience"

tools() {
	local cmd pkg what missing=() pkgs=()
	while IFS=: read -r cmd pkg what; do
		command -v "$cmd" >/dev/null 2>&1 || { missing+=("$cmd ($what)"); pkgs+=("$pkg"); }
	done <<<"$needs"
	if command -v gcc >/dev/null 2>&1 && ! echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1; then
		missing+=("C headers (C compile inside a boundary)")
		pkgs+=(libc6-dev)
	fi
	if ! ls /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server /usr/lib/ssh/sftp-server 2>/dev/null | grep -q .; then
		missing+=("sftp-server (repositories on a network file system)")
		pkgs+=(openssh-sftp-server)
	fi
	[ ${#pkgs[@]} -eq 0 ] && return 0
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
		echo "   installing ${pkgs[*]}"
		if { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${pkgs[@]}"; } >"$work/apt.log" 2>&1; then
			return 0
		fi
		tail -n 3 "$work/apt.log"
	fi
	local m
	for m in "${missing[@]}"; do
		echo "   missing: $m"
		notrun+=("tests that need $m")
	done
	command -v git >/dev/null 2>&1 # without git nothing makes sense; the rest skip with a reason
}

# runsc_ahead: gVisor's runtime for test/oci, built statically behind the steps that come first (four minutes of one
# processor where nothing is cached). Tests that need it wait as long as the file beside it says that it is being built.
runsc_ahead() {
	export CAISSON_TEST_RUNSC=${CAISSON_TEST_RUNSC:-$work/runsc}
	[ ! -x "$CAISSON_TEST_RUNSC" ] || return 0
	: >"$CAISSON_TEST_RUNSC.building"
	set -m
	(
		GOBIN=$work/runscbin GOFLAGS= nice go install -trimpath -ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=${RUNSC:7:8}.0" \
			"gvisor.dev/gvisor/runsc@$RUNSC" >"$work/runsc.log" 2>&1 && mv "$work/runscbin/runsc" "$CAISSON_TEST_RUNSC"
		rm -f "$CAISSON_TEST_RUNSC.building"
	) &
	builder=$!
	set +m
}

# runsc_built says at the end whether it was there.
runsc_built() {
	[ -x "$CAISSON_TEST_RUNSC" ] && return
	notrun+=("tests of gVisor (runsc cannot be built: $(tail -n 1 "$work/runsc.log" 2>/dev/null))")
}

# ---- static checks -------------------------------------------------------------------------------------------------

formatted() {
	local out
	out=$(gofmt -l $(git ls-files -co --exclude-standard '*.go' 2>/dev/null || find . -name '*.go'))
	[ -z "$out" ] || { echo "   not formatted:"; echo "$out"; return 1; }
}

shell_syntax() {
	local f
	for f in scripts/*.sh .ci/run; do bash -n "$f" || return 1; done
}

# fetch TOOL@VERSION: its program lies in $work/tools. go run would hide the tool's exit status.
fetch() {
	GOBIN=$work/tools GOFLAGS= go install "$1" >"$work/fetch.log" 2>&1 && return 0
	echo "   cannot be fetched: $(tail -n 1 "$work/fetch.log")"
	notrun+=("${1%@*} (cannot be fetched)")
	return 1
}

staticcheck() {
	fetch "$STATICCHECK" || return 0
	"$work/tools/staticcheck" $PKGS
}

govulncheck() {
	fetch "$GOVULNCHECK" || return 0
	timeout 180 "$work/tools/govulncheck" $PKGS >"$work/vuln.log" 2>&1
	local rc=$?
	case $rc in
	0) tail -n 1 "$work/vuln.log" ;;
	3) cat "$work/vuln.log"; return 1 ;;
	*)
		echo "   ended with $rc: $(grep -v '^$' "$work/vuln.log" | tail -n 1)"
		grep -qiE 'vuln\.go\.dev|fetching vulnerabilities|dial tcp|no such host|timeout' "$work/vuln.log" || [ $rc = 124 ] || return 1
		notrun+=("govulncheck (the vulnerability database was not reachable)")
		;;
	esac
}

# ---- tests ---------------------------------------------------------------------------------------------------------

# in_memory: a folder on a tmpfs in $memory; empty where there is none.
in_memory() {
	[ "$(id -u)" = 0 ] && [ "$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)" -ge 8 ] || return 0
	mkdir "$work/memory" && mount -t tmpfs -o size=5g,mode=755 caisson-test "$work/memory" 2>/dev/null || return 0
	memory=$work/memory
	mkdir "$memory/lifecycle" "$memory/faults"
	export CAISSON_TEST_MEMORY=$memory/lifecycle
}

# ordered: the packages of PKGS, those that take longest first, so that both cores have work to the end.
ordered() {
	go list $PKGS | awk '
		BEGIN { n = split("test/lifecycle internal/source test/results test/realwork test/conformance internal/worker internal/backend/linux internal/source/swap", first, " ") }
		{ for (i = 1; i <= n; i++) if (substr($0, length($0) - length(first[i])) == "/" first[i]) { at[i] = $0; next } rest = rest " " $0 }
		END { for (i = 1; i <= n; i++) if (i in at) printf "%s ", at[i]; print rest }'
}

# gotest LABEL ARGS…: go test through the summary.
gotest() {
	local label=$1 rc
	shift
	go test -json "$@" 2>&1 | tee "$work/json" | "$work/testsum" "$label" "$work/skips" | tee "$work/out"
	rc=${PIPESTATUS[2]}
	grep -E '^(ok|FAIL)[[:space:]]' "$work/out" >>"$work/oks"
	ran "$label"
	[ "$rc" = 0 ] && return 0
	local a flags=()
	for a in "$@"; do
		case $a in ./* | github.com/*) ;; *) flags+=("$a") ;; esac
	done
	failures "$label" || return 1
	local pkg tests bad=0
	while read -r pkg tests; do
		echo "   once more, alone: $pkg $tests"
		if go test -count=1 -run "^($tests)\$" "${flags[@]}" "$pkg"; then
			flaky+=("$label: $pkg $tests")
			tr '|' '\n' <<<"$tests" | sed "s|^|$label ${pkg#*/caisson/} |" >>"$work/alone"
		else
			broken+=("$label: $pkg $tests")
			bad=1
		fi
	done <"$work/twice"
	return $bad
}

# ran LABEL: what passed in $work/json, as "LABEL FOLDER TEST" lines in $work/ran.
ran() {
	sed -nE 's/.*"Action":"pass","Package":"[^"]*\/caisson\/([^"]+)","Test":"([^"]+)".*/'"$1"' \1 \2/p' "$work/json" >>"$work/ran"
}

# required: the tests of scripts/required-tests.txt all ran and passed.
required() {
	local missing=0 line
	while read -r line; do
		case $line in "" | "#"*) continue ;; esac
		grep -qxF -- "$line" "$work/ran" && continue
		# Once more, alone, the whole of it passed.
		grep -qxF -- "$(sed -E 's|^([^ ]+ [^ ]+ [^/]+).*|\1|' <<<"$line")" "$work/alone" 2>/dev/null && continue
		echo "   skipped or not run: $line"
		missing=1
	done <scripts/required-tests.txt
	return $missing
}

# on_backend NAME: what takes a backend, with that one.
on_backend() {
	local also=./test/lifecycle
	case $1 in
	oci:*) also= ;; # its crashes are in test/oci
	podman-rootless) [ -n "${CAISSON_TEST_FULL:-}" ] || also= ;; # Podman's driver crashes with root's
	esac
	CAISSON_TEST_BACKEND=$1 gotest "$1" -vet=off -timeout 15m ./test/conformance $also
}

# failures: the top-level tests that failed in $work/json, a package a line, in $work/twice. Not those of a run that has
# more to be explained than chance: many, or a package that failed without a test (it does not build, or ran out of time).
failures() {
	sed -nE 's/.*"Action":"fail","Package":"([^"]+)","Test":"([^"/]+)".*/\1 \2/p' "$work/json" | sort -u >"$work/failed"
	sed -nE 's/.*"Action":"fail","Package":"([^"]+)","Elapsed".*/\1/p' "$work/json" | sort -u >"$work/failedpkgs"
	awk '{ t[$1] = t[$1] (t[$1] == "" ? "" : "|") $2 } END { for (p in t) print p, t[p] }' "$work/failed" >"$work/twice"
	local n
	n=$(wc -l <"$work/failed")
	# TestClaims looks at what the others did: alone it has nothing to say.
	[ "$n" -gt 0 ] && [ "$n" -le 6 ] && ! grep -q ' TestClaims$' "$work/failed" && [ "$(wc -l <"$work/twice")" = "$(wc -l <"$work/failedpkgs")" ] && return 0
	local line
	while read -r line; do broken+=("$1: $line"); done < <(cat "$work/twice" "$work/failedpkgs")
	return 1
}

# A second tree, owned by an id without privileges; go compiles in the first one (so from the warm cache), scripts/as-user.sh
# runs each test program in the second. In a private mount namespace, so that /etc/passwd knows the id and the module cache
# is in reach.
#
# Without the whole-product tests below test/, which take both identities by themselves, and what looks at source text
# or has no privilege to be without. With -short: who runs it makes no difference to random trees and to the size of one.
unprivileged() {
	local pkgs
	pkgs=$(go list $PKGS | grep -vE '/(test|archtest|bench|scripts|policy|task|version)(/|$)' | tr '\n' ' ')
	[ -n "$pkgs" ] || { echo "   none of these packages"; return 0; }
	local uid=61234 top=${memory:-$work}/unpriv modcache
	local src=$top/src
	modcache=$(go env GOMODCACHE)
	mkdir -p "$src" "$top/home" "$top/gomod" "$top/tmp" "$top/run" "$top/bin"
	tar -c $(ls -A | grep -vE '^(\.git|bin|\.cache)$') | tar -x -C "$src"
	mkdir -p "$src/bin" && cp bin/caisson "$src/bin/" || return 1
	{ cat /etc/passwd; echo "caissontest:x:$uid:$uid::$top/home:/bin/sh"; } >"$top/passwd"
	{ cat /etc/group; echo "caissontest:x:$uid:"; } >"$top/group"
	chown -R "$uid:$uid" "$top"
	chmod 700 "$top/run"
	LIST=$pkgs RUN=$short as_user && return 0
	failures unprivileged || return 1
	local pkg tests
	while read -r pkg tests; do
		echo "   once more, alone: $pkg $tests"
		if ! LIST=$pkg RUN="$short -count=1 -run ^($tests)\$" as_user; then
			broken+=("unprivileged: $pkg $tests")
			return 1
		fi
		flaky+=("unprivileged: $pkg $tests")
	done <"$work/twice"
}

# as_user: the packages of LIST, with the flags of RUN, as the id that unprivileged made.
as_user() {
	(
		export CAISSON_AS_UID=$uid CAISSON_AS_DIR=$top CAISSON_AS_SRC=$src CAISSON_AS_FROM=$PWD CAISSON_TEST_BIN=$src/bin/caisson MODCACHE=$modcache LIST RUN AS="$PWD/scripts/as-user.sh"
		ns=(unshare --mount --propagation private)
		if ! "${ns[@]}" true 2>/dev/null; then
			echo "   no private mount namespace here: the id has no passwd entry and the module cache is copied"
			cp -r "$modcache/." "$top/gomod/" && chmod -R a+rX "$top/gomod"
			ns=(env CAISSON_AS_BARE=1)
		fi
		"${ns[@]}" bash -c '
			if [ -z "${CAISSON_AS_BARE:-}" ]; then
				mount --bind "$CAISSON_AS_DIR/passwd" /etc/passwd && mount --bind "$CAISSON_AS_DIR/group" /etc/group &&
				mount --bind "$MODCACHE" "$CAISSON_AS_DIR/gomod" && mount -o remount,bind,ro "$CAISSON_AS_DIR/gomod" || exit 1
			fi
			exec go test -json -exec "bash $AS" -vet=off -timeout 40m $RUN $LIST
		' 2>&1 | tee "$work/json" | "$work/testsum" unprivileged "$work/skips" | tee "$work/out"
		exit "${PIPESTATUS[2]}"
	)
	local rc=$?
	grep -E '^(ok|FAIL)[[:space:]]' "$work/out" >>"$work/oks"
	return "$rc"
}

# Tests that kill or fail the program at a named step: a build of their own, and of it only the tests that the other
# build does not have.
faults() {
	local files dirs names tmp=${TMPDIR:-/tmp}
	[ -z "$memory" ] || tmp=$memory/faults
	files=$(grep -rlE --include='*_test.go' '^//go:build.*[^!]faults' internal cmd test 2>/dev/null)
	[ -n "$files" ] || { echo "   no test asks for it"; return 0; }
	dirs=$(dirname $files | sort -u | sed 's|^|./|')
	names=$(sed -nE 's/^func (Test[A-Za-z0-9_]+)\(.*/\1/p' $files | sort -u | paste -sd'|')
	TMPDIR=$tmp gotest faults -tags faults -run "^($names)\$" -vet=off -timeout 40m $dirs
}

# Where goroutines share something. The rest is sequential and is not worth the compile time.
race() {
	if ! command -v gcc >/dev/null 2>&1; then
		notrun+=("race detector (no C compiler)")
		return 0
	fi
	local pkgs
	pkgs=$(go list $PKGS | grep -E '/internal/(approval|worker|door|evidence|inventory|boundary|sys|workerbin|wire)(/|$)')
	[ -n "$pkgs" ] || { echo "   none of these packages"; return 0; }
	CGO_ENABLED=1 gotest race -race $short -vet=off -timeout 30m $pkgs
}

# Without optimizing, which takes a third longer and refuses nothing more.
cross() {
	local t ok=0
	for t in linux/arm64 darwin/arm64 windows/amd64; do
		if GOOS=${t%/*} GOARCH=${t#*/} go build -gcflags='all=-N -l' ./... ; then echo "   $t builds"; else ok=1; echo "   $t does NOT build"; fi
	done
	return $ok
}

# Two builds of the same source in different folders are the same bytes.
reproducible() {
	local a b
	mkdir "$work/second" && tar -c $(ls -A | grep -vE '^(\.git|bin|\.cache)$') | tar -x -C "$work/second"
	rm -f "$work/second/internal/workerbin/bin/caisson-worker"
	make -s build VERSION=0.0.0-same COMMIT=same && a=$(sha256sum <bin/caisson) &&
		make -s -C "$work/second" build VERSION=0.0.0-same COMMIT=same && b=$(sha256sum <"$work/second/bin/caisson") || return 1
	make -s build
	echo "   ${a%% *}"
	[ "$a" = "$b" ] || { echo "   and ${b%% *}: not the same"; return 1; }
}

# A few packages inside a boundary of caisson's own, one of which makes boundaries in it: scripts/dogfood.sh.
dogfood() {
	[ "$PKGS" = ./... ] || { echo "   not with PKGS"; return 0; }
	mkdir -m 700 "$work/state" "$work/run"
	CAISSON_STATE_DIR=$work/state CAISSON_RUNTIME_DIR=$work/run GOFLAGS= PKGS="./internal/sys ./internal/probe ./cmd/caisson" bash scripts/dogfood.sh
}

build_summary() { go build -o "$work/testsum" ./scripts/testsum; }

case $mode in
fast)
	step "formatting" formatted
	step "summary tool" build_summary
	step "vet" go vet $PKGS
	step "short tests" gotest fast -short -vet=off -timeout "${TIMEOUT:-100s}" $PKGS
	;;
all)
	runsc_ahead
	step "tools" tools
	step "formatting" formatted
	step "shell syntax" shell_syntax
	step "summary tool" build_summary
	step "build" make -s build
	export CAISSON_TEST_BIN=$PWD/bin/caisson
	step "vet" go vet $PKGS
	step "staticcheck" staticcheck
	step "govulncheck" govulncheck
	if [ "$(id -u)" = 0 ]; then
		in_memory
		step "tests as root" gotest root -vet=off -timeout 40m $(ordered)
		if command -v setpriv >/dev/null 2>&1; then
			step "tests as an unprivileged user" unprivileged
		else
			notrun+=("tests as an unprivileged user (no setpriv)")
		fi
	else
		step "tests" gotest user -vet=off -timeout 40m $(ordered)
		notrun+=("tests as root (run make test as root for them)")
	fi
	if [ "$(id -u)" = 0 ] && [ "$PKGS" = ./... ]; then
		for b in docker podman podman-rootless oci:crun; do step "backend $b" on_backend "$b"; done
	fi
	runsc_built
	step "fault injection" faults
	step "race detector" race
	step "inside its own boundary" dogfood
	step "cross-builds" cross
	step "reproducible build" reproducible
	if [ "$(id -u)" = 0 ] && [ "$PKGS" = ./... ] && [ -e /etc/debian_version ]; then
		step "tests that may not be skipped" required
	fi
	;;
*)
	echo "usage: scripts/test.sh all|fast" >&2
	exit 2
	;;
esac

echo
echo "== summary after $SECONDS s"
if [ -s "$work/skips" ]; then
	echo "skipped tests and why:"
	sort -u "$work/skips" | sed 's/^/  /'
else
	echo "no test was skipped"
fi
if [ ${#notrun[@]} -gt 0 ]; then
	echo "not run:"
	printf '  %s\n' "${notrun[@]}"
fi
if [ ${#flaky[@]} -gt 0 ]; then
	echo "failed once, passed when repeated alone:"
	printf '  %s\n' "${flaky[@]}"
fi
if [ ${#failed[@]} -gt 0 ]; then
	echo "failed steps:"
	printf '  %s\n' "${failed[@]}"
fi
cat "$work/oks"
if [ ${#broken[@]} -gt 0 ]; then
	echo "failed tests:"
	printf '  %s\n' "${broken[@]}"
fi
[ ${#failed[@]} -eq 0 ]
