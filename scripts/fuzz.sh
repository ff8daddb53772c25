#!/usr/bin/env bash
# Runs every fuzzer for a while. Usage: [FUZZTIME=30s] scripts/fuzz.sh [PATTERN]
#
# PATTERN is an extended regular expression that PACKAGE.FuzzName must match, for example 'source.*Unpack'. Each fuzzer
# gets FUZZTIME, one after the other, on a share of the cores that leaves the machine usable. What a fuzzer finds, go
# writes to the package's testdata/fuzz: commit it with the cure, and every go test tries it from then on.
#
# Its limit: the seeds alone are what `make test` runs. Exit status 1 when a fuzzer found something.
set -u
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
time=${FUZZTIME:-30s} want=${1:-.} ran=0
bad=()
work=$(mktemp -d "${TMPDIR:-/tmp}/caisson-fuzz.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# late: the fuzzer failed by go's own clock alone, as it does on a busy machine.
late() { grep -q 'context deadline exceeded' "$work/out" && ! grep -q 'Failing input\|panic' "$work/out"; }

while IFS=: read -r file name; do
	pkg=./$(dirname "$file")
	[[ $pkg.$name =~ $want ]] || continue
	# With -fuzz the compiler adds what tells the fuzzer where an input led.
	bin=$work/$(tr / _ <<<"$pkg").test
	[ -e "$bin" ] || go test -c -fuzz=. -o "$bin" "$pkg" || { bad+=("$pkg does not build"); continue; }
	ran=$((ran + 1))
	echo "== $pkg $name"
	# The tests' own way of running: in the package's folder, which holds testdata.
	(cd "$pkg" && TMPDIR=$work nice "$bin" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime "$time" -test.fuzzcachedir "$work/cache/$pkg" -test.parallel 2) >"$work/out" 2>&1 ||
		late || bad+=("$pkg $name")
	tail -n 3 "$work/out"
	[ ${#bad[@]} -eq 0 ] || [ "${bad[-1]}" != "$pkg $name" ] || cat "$work/out"
done < <(grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' internal cmd test | sed -E 's/:[0-9]+:func /:/' | sort)

echo
echo "$ran fuzzers ran for $time each"
[ "$ran" -gt 0 ] || exit 1
if [ ${#bad[@]} -gt 0 ]; then
	echo "found something:"
	printf '  %s\n' "${bad[@]}"
	exit 1
fi
