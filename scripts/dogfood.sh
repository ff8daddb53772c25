#!/usr/bin/env bash
# The short tests of caisson inside a boundary of caisson's own. Usage: scripts/dogfood.sh, after make build.
#
# The task is a clone of this repository with what is not committed yet. It gets --grant userns, because most tests make
# boundaries; the module cache, read-only; and Go's build cache, read-only: a copy of that in the task's own HOME makes
# builds warm. PKGS="./internal/x/..." restricts the packages, TIMEOUT (10m) bounds each. Exit status: that of the tests.
set -eu
cd "$(dirname "$0")/.."
mods=$(go env GOMODCACHE) cache=$(go env GOCACHE) seed=/opt/go-build
go mod download # nothing can be fetched inside
mkdir -p "$cache"
exec "${CAISSON_TEST_BIN:-bin/caisson}" run --name "dogfood-$$" --keep never --dirty --timeout "${WHOLE:-60m}" --grant userns --ro "$mods" --ro "$cache:$seed" -- \
	sh -c 'mkdir -p ~/.cache && cp -r "$0" ~/.cache/go-build && exec env GOMODCACHE="$3" GOPROXY=off GOFLAGS=-buildvcs=false PKGS="$1" TIMEOUT="$2" make test-fast' \
	"$seed" "${PKGS:-./...}" "${TIMEOUT:-10m}" "$mods"
