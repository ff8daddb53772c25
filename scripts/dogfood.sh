#!/usr/bin/env bash
# The short tests of caisson inside a boundary of caisson's own. Usage: scripts/dogfood.sh, after make build.
#
# The task is a clone of this repository with what is not committed yet. It gets --grant userns, because most tests make
# boundaries; the module cache, read-only; and Go's build cache, read-only: links to what is in it, and a copy of its index,
# make builds in the task's own HOME warm. PKGS="./internal/x/..." restricts the packages, TIMEOUT (10m) bounds each. Exit status: that of the tests.
set -eu
cd "$(dirname "$0")/.."
mods=$(go env GOMODCACHE) cache=$(go env GOCACHE) seed=/opt/go-build
go mod download # nothing can be fetched inside
mkdir -p "$cache"
exec "${CAISSON_TEST_BIN:-bin/caisson}" run --name "dogfood-$$" --discard --dirty --timeout "${WHOLE:-60m}" --grant userns --ro "$mods" --ro "$cache:$seed" -- \
	sh -c 'c=$HOME/.cache/go-build && mkdir -p ~/.cache && cp -rs "$0" $c && find $c -name "*-a" -delete && tar -C "$0" --exclude="*-d" -c . | tar -C $c -x &&
		exec env GOMODCACHE="$3" GOPROXY=off GOFLAGS=-buildvcs=false PKGS="$1" TIMEOUT="$2" make test-fast' \
	"$seed" "${PKGS:-./...}" "${TIMEOUT:-10m}" "$mods"
