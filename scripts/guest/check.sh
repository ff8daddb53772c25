#!/bin/bash
# Runs inside the guest, as root, and says on standard output what it tried:
#   check|NAME|ok or BAD|what was seen        fact|NAME|value
# Every check has one outcome that is right; a refusal that is expected is as much a result as a run that works.
exec 2>&1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
user=dev uid=1000

say() { printf '%s|%s|%s|%s\n' check "$1" "$2" "$(printf '%s' "$3" | tr '\n|' '; ' | cut -c1-400)"; }
fact() { printf 'fact|%s|%s\n' "$1" "$2"; }
# expect NAME PATTERN TEXT: the text has the pattern.
expect() { if printf '%s' "$3" | grep -Eq -- "$2"; then say "$1" ok "$(printf '%s' "$3" | grep -E -m1 -- "$2")"; else say "$1" BAD "no /$2/ in: $3"; fi; }

for h in /root /home/$user; do
	rm -rf $h/repo && mkdir -p $h/repo && cd $h/repo && git init -q && echo a >a.txt && git add a.txt &&
		git -c user.name=g -c user.email=g@localhost commit -q -m first
done
chown -R $user: /home/$user/repo
cd /

# as WHO COMMAND: root here; "plain", a user without a session; "linger", the same whose manager
# runs; "session", in a scope of that manager; "delegated", in a group that root gave away.
as() {
	case $1 in
	root) (cd /root/repo && bash -c "$2") ;;
	plain) setpriv --reuid $uid --regid $uid --init-groups env -i PATH="$PATH" HOME=/home/$user USER=$user bash -c "cd ~/repo && $2" ;;
	linger) setpriv --reuid $uid --regid $uid --init-groups env -i PATH="$PATH" HOME=/home/$user USER=$user XDG_RUNTIME_DIR=/run/user/$uid bash -c "cd ~/repo && $2" ;;
	session) setpriv --reuid $uid --regid $uid --init-groups env -i PATH="$PATH" HOME=/home/$user USER=$user XDG_RUNTIME_DIR=/run/user/$uid \
		systemd-run --user --scope --quiet --property=Delegate=yes -- bash -c "cd ~/repo && $2" ;;
	delegated) bash -c "echo \$\$ >/sys/fs/cgroup/given/shell/cgroup.procs && exec setpriv --reuid $uid --regid $uid --init-groups env -i PATH=$PATH HOME=/home/$user USER=$user bash -c 'cd ~/repo && $2'" ;;
	esac 2>&1
}

# flat FILE-TEXT: JSON without spaces, so that grep can read it.
level() { printf '%s' "$1" | tr -d ' \n' | grep -o "\"axis\":\"$2\"[^}]*" | head -1; }

# bounded NAME WHO: memory and processes of a task have limits, in the kernel's own files, and what exceeds them ends inside.
bounded() {
	local name=$1 who=$2 out n
	out=$(as $who 'caisson open --json --keep never --name bounded --memory 200m --pids 77 --cpus 0.5')
	expect "$name: RES 2 is proved" '"proved":2' "$(level "$out" RES)$(printf %s "$out" | grep -i error)"
	local group
	group=$(grep -rlx 77 /sys/fs/cgroup --include=pids.max 2>/dev/null | head -1)
	group=${group%/pids.max}
	if [ -n "$group" ]; then
		expect "$name: the kernel has the limits" '^209715200 77 50000 100000 0 *$' "$(cat "$group/memory.max" "$group/pids.max" "$group/cpu.max" "$group/memory.swap.max" 2>&1 | tr '\n' ' ')"
	else
		say "$name: the kernel has the limits" BAD "no group with pids.max 77"
	fi
	out=$(as $who 'caisson exec bounded -- sh -c "i=0; while [ \$i -lt 200 ]; do sleep 5 & i=\$((i+1)); done; echo made \$i"; echo status $?')
	if printf '%s' "$out" | grep -q 'made 200'; then say "$name: 200 processes do not fit" BAD "$out"; else expect "$name: 200 processes do not fit" 'fork|status [1-9]' "$out"; fi
	out=$(as $who 'caisson exec bounded -- sh -c "head -c 400m /dev/zero | tail | wc -c"; caisson exec bounded -- echo goes on')
	if printf '%s' "$out" | grep -q '^419430400'; then say "$name: 400 MiB do not fit" BAD "$out"; else expect "$name: 400 MiB do not fit, and the task goes on" 'goes on' "$out"; fi
	out=$(as $who 'caisson close --discard bounded; echo status $?; caisson ls')
	expect "$name: it is closed" 'status 0' "$out"
	for _ in $(seq 100); do # systemd forgets a unit in its own time
		out=$(find /sys/fs/cgroup -type d -name '*caisson-*'; systemctl list-units --all --no-legend 'caisson-*'; ls /run/user/$uid/systemd/transient 2>/dev/null | grep caisson-)
		[ -n "$out" ] || break
		sleep 0.5
	done
	if [ -z "$out" ]; then say "$name: no group is left" ok "none"; else say "$name: no group is left" BAD "$out"; fi
}

# runs NAME WHO: one task, from its start to its end.
runs() { expect "$1" '^inside 0$' "$(as "$2" 'caisson run --keep never -- sh -c "cat a.txt >/dev/null && echo inside \$?"; echo status $?')"; }

# refuses NAME WHO PATTERN: nothing runs, on the host least of all, and the message says what is missing.
refuses() {
	local out
	rm -f /tmp/ran-outside
	out=$(as "$2" 'caisson run --keep never -- sh -c "touch /tmp/ran-outside; echo inside 0"; echo status $?')
	if printf '%s' "$out" | grep -q '^inside'; then say "$1" BAD "it ran: $out"
	elif [ -e /tmp/ran-outside ]; then say "$1" BAD "it ran on the host: $out"
	elif ! printf '%s' "$out" | grep -q 'status 125'; then say "$1" BAD "$out"
	else expect "$1" "$3" "$out"; fi
}

attacked() {
	local out t
	t=$(date +%s)
	out=$(as "$2" "caisson verify --backend linux --json")
	t=$(($(date +%s) - t))
	out=$(printf '%s' "$out" | tr -d '\n')
	expect "$1" '"verdict": *"held"' "$(printf '%s' "$out" | grep -oE '"verdict": *"[a-z_]*"') $(printf '%s' "$out" | grep -oE '"id": *"[A-Z0-9]*", *"axis": *"[A-Z]*", *"text": *"[^"]*", *"control": *"[^"]*", *"result": *"broken".{0,300}' | cut -c1-600)$(printf '%s' "$out" | grep -oE '"why": *"[^"]*"' | head -3)"
	fact "$1, seconds" "$t"
	fact "$1, results" "$(printf '%s' "$out" | grep -oE '"result": *"[a-z_]*"' | sort | uniq -c | sed 's/"result"://; s/"//g' | tr -s ' \n' ' ')"
}

fact kernel "$(uname -r)"
fact system "$(. /etc/os-release; echo "$PRETTY_NAME")"
fact "control groups" "$(stat -fc %T /sys/fs/cgroup), with $(cat /sys/fs/cgroup/cgroup.controllers)"
fact lsm "$(cat /sys/kernel/security/lsm 2>/dev/null)"
fact git "$(git --version)"
fact systemd "$(systemctl --version | head -1)"

# want PART: whether this run is to try it.
[ ! -r /opt/guest/settings.sh ] || . /opt/guest/settings.sh
fact parts "${GUEST_ONLY:-all}${GUEST_QUICK:+, without the attacks}"
want() { case " ${GUEST_ONLY:-all} " in *" all "* | *" $1 "*) return 0 ;; esac; return 1; }

if want root; then
	expect "root: doctor finds the backend usable" 'ok usable' "$(as root 'caisson doctor')"
	runs "root: a task runs" root
	bounded root root
fi

if want plain; then
	sysctl -qw kernel.apparmor_restrict_unprivileged_userns=0 2>/dev/null
	expect "user, no session: doctor says how to get control groups" 'loginctl enable-linger|session of systemd' "$(as plain 'caisson doctor')"
	runs "user, no session: a task runs" plain
	out=$(as plain 'caisson open --json --keep never --name weak')
	expect "user, no session: RES is 1, by name" 'no-cgroup' "$out"
	expect "user, no session: RES 1 is proved" '"proved":1' "$(level "$out" RES)"
	expect "user, no session: what needs RES 2 is refused" 'status (3|125)' "$(as plain 'caisson run --need RES=2 --keep never -- true; echo status $?')"
	as plain 'caisson close --discard weak' >/dev/null
fi

if want delegated; then
	mkdir -p /sys/fs/cgroup/given/shell
	echo '+cpu +memory +pids' >/sys/fs/cgroup/cgroup.subtree_control
	chown $user /sys/fs/cgroup/given /sys/fs/cgroup/given/cgroup.procs /sys/fs/cgroup/given/cgroup.subtree_control /sys/fs/cgroup/given/shell /sys/fs/cgroup/given/shell/cgroup.procs
	echo '+cpu +memory +pids' >/sys/fs/cgroup/given/cgroup.subtree_control
	bounded "user, a delegated subtree" delegated
	rmdir /sys/fs/cgroup/given/shell /sys/fs/cgroup/given 2>/dev/null
fi

if want linger || want session; then
	loginctl enable-linger $user
	for _ in $(seq 600); do [ -S /run/user/$uid/systemd/private ] && break; sleep 0.2; done
	if [ -S /run/user/$uid/systemd/private ]; then
		fact "controllers of the user's manager" "$(cat /sys/fs/cgroup/user.slice/user-$uid.slice/user@$uid.service/cgroup.controllers)"
		! want linger || bounded "user with a manager, outside a session" linger
		! want session || bounded "user, in a session" session
	else
		say "user, in a session: the user's manager starts" BAD "$(systemctl status user@$uid.service | head -5)"
	fi
fi

if want refused; then
	if [ -e /proc/sys/kernel/unprivileged_userns_clone ]; then
		sysctl -qw kernel.unprivileged_userns_clone=0
		refuses "kernel.unprivileged_userns_clone=0: a user is refused" plain 'unprivileged_userns_clone'
		expect "kernel.unprivileged_userns_clone=0: doctor says what to do" 'unprivileged_userns_clone=1' "$(as plain 'caisson doctor')"
		refuses "kernel.unprivileged_userns_clone=0: root is refused too, whose tools are no root" root 'unprivileged_userns_clone'
		sysctl -qw kernel.unprivileged_userns_clone=1
	else
		fact "kernel.unprivileged_userns_clone" "this kernel has none"
	fi
	max=$(sysctl -n user.max_user_namespaces)
	sysctl -qw user.max_user_namespaces=0
	refuses "user.max_user_namespaces=0: a user is refused" plain 'max_user_namespaces'
	refuses "user.max_user_namespaces=0: root is refused" root 'max_user_namespaces'
	expect "user.max_user_namespaces=0: doctor says what to do" 'user.max_user_namespaces=15000' "$(as plain 'caisson doctor')"
	sysctl -qw user.max_user_namespaces="$max"
	runs "namespaces again: a user's task runs" plain
fi

if want apparmor; then
	if sysctl -qw kernel.apparmor_restrict_unprivileged_userns=1 2>/dev/null; then
		refuses "AppArmor restricts user namespaces: a user is refused" plain 'AppArmor|apparmor'
		expect "AppArmor restricts user namespaces: doctor says what to do" 'apparmor.d/caisson' "$(as plain 'caisson doctor')"
		runs "AppArmor restricts user namespaces: root is not" root
		cp /opt/guest/apparmor.profile /etc/apparmor.d/caisson
		if out=$(apparmor_parser -r /etc/apparmor.d/caisson 2>&1); then
			runs "AppArmor, with the profile of the guide: a user's task runs" plain
			expect "AppArmor, with the profile of the guide: doctor finds nothing in the way" 'ok usable' "$(as plain 'caisson doctor')"
		else
			say "AppArmor: the profile of the guide loads" BAD "$out"
		fi
	else
		fact "kernel.apparmor_restrict_unprivileged_userns" "this kernel has none"
	fi
fi

if want verify && [ -z "${GUEST_QUICK:-}" ]; then
	sysctl -qw kernel.apparmor_restrict_unprivileged_userns=0 2>/dev/null
	attacked "attacks, by a user" plain
	attacked "attacks, by root" root
fi
fact "seconds since boot" "$(cut -d. -f1 /proc/uptime)"
echo done
