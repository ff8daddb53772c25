#!/usr/bin/env bash
# Writes docs/kernels.md to standard output, from the results of scripts/guest.sh in folder $1 for the systems after it.
set -euo pipefail
dir=$1
shift
cat <<'T'
# Other kernels

What was tried on systems that are not the one on which caisson is developed: each booted in QEMU without KVM, with control groups of version 2 alone and systemd, as root and as an unprivileged user. Made by `make guest` (`scripts/guest.sh --write`), which fails when one of these does not come out as it must. A refusal is as much a result as a task that runs.
T
for s in "$@"; do
	f=$dir/$s.page
	# Of several runs, the last word on each.
	cat "$dir/$s".*clean | awk -F'|' '/^(fact|check)\|/{k=$1"|"$2; if(!(k in at)) order[++n]=k; at[k]=$0} END{for(i=1;i<=n;i++) print at[order[i]]}' >"$f"
	fact() { sed -n "s/^fact|$1|//p" "$f"; }
	printf '\n## %s, Linux %s\n\n' "$(fact system)" "$(fact kernel)"
	printf 'On %s, with caisson %s, %s, %s; control groups: %s; security modules: %s.\n\n' "$(date -u +%Y-%m-%d)" "$(bin/caisson version 2>/dev/null | head -1 | awk '{print $2}')" "$(fact systemd | sed 's/ (.*//')" "$(fact git)" "$(fact 'control groups')" "$(fact lsm)"
	echo '| tried | came out |'
	echo '|---|---|'
	grep '^check|' "$f" | while IFS='|' read -r _ name result seen; do
		case $result in ok) ;; *) result="**$result**: ${seen//|/ }" ;; esac
		printf '| %s | %s |\n' "$name" "$result"
	done
	echo
	grep '^fact|' "$f" | grep -vE '^fact\|(system|kernel|control groups|lsm|git|systemd|parts|seconds since boot)\|' | while IFS='|' read -r _ name value; do printf -- '- %s: %s\n' "$name" "$value"; done
done
