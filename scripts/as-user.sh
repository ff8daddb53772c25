#!/usr/bin/env bash
# `go test -exec` calls this with a test program and its arguments, in the package's folder below CAISSON_AS_FROM. It runs
# the program in the same folder of the tree CAISSON_AS_SRC, as the id CAISSON_AS_UID, with everything a user has below
# CAISSON_AS_DIR. scripts/test.sh sets them; it needs root.
set -eu
prog=$1
shift
cd "$CAISSON_AS_SRC${PWD#"$CAISSON_AS_FROM"}"
# The go command's work folder is root's alone.
copy=$(mktemp "$CAISSON_AS_DIR/bin/XXXXXX-$(basename "$prog")")
cp "$prog" "$copy"
chmod 755 "$copy"
trap 'rm -f "$copy"' EXIT
rc=0
env -i HOME="$CAISSON_AS_DIR/home" USER=caissontest LOGNAME=caissontest SHELL=/bin/sh LANG=C.UTF-8 \
	PATH="$(dirname "$(command -v go)"):/usr/local/bin:/usr/bin:/bin" TMPDIR="$CAISSON_AS_DIR/tmp" XDG_RUNTIME_DIR="$CAISSON_AS_DIR/run" \
	GOMODCACHE="$CAISSON_AS_DIR/gomod" GOCACHE="$CAISSON_AS_DIR/home/.cache/go-build" GOTOOLCHAIN=local GOPROXY=off \
	CAISSON_TEST_BIN="${CAISSON_TEST_BIN:-}" CGO_ENABLED=0 \
	setpriv --reuid="$CAISSON_AS_UID" --regid="$CAISSON_AS_UID" --clear-groups --inh-caps=-all -- "$copy" "$@" || rc=$?
exit "$rc"
