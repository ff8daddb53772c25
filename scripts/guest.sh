#!/usr/bin/env bash
# Tries caisson on kernels and systems that are not this machine's: each boots in QEMU, without KVM, from packages of its
# distribution, runs scripts/guest/check.sh and powers off. Control groups are of version 2 alone there, with systemd.
#
#   scripts/guest.sh [--quick] [--write] [--fetch] [SYSTEM…]      SYSTEM: bookworm trixie noble (all three without one); one after another
#
# --quick leaves the attacks out (about five minutes a system instead of ten); --write makes docs/kernels.md from the run;
# --fetch only gets the roots.
# Debian comes from the mirror that this machine uses, or $CAISSON_GUEST_DEBIAN. Needs root, to make the root folders, and on Debian: qemu-system-x86 mmdebstrap cpio kmod xz-utils zstd busybox-static
# e2fsprogs gpg. Roots are kept in $CAISSON_GUEST_DIR (default /var/tmp/caisson-guest, about 1 GB a system): removing
# that folder gets them anew. Ends with 1 when a check did not come out as it must.
set -euo pipefail
cd "$(dirname "$0")/.."

quick='' write='' fetch='' systems=()
for a in "$@"; do
	case $a in
	--quick) quick=1 ;;
	--write) write=1 ;;
	--fetch) fetch=1 ;;
	bookworm | trixie | noble) systems+=("$a") ;;
	*) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
	esac
done
[ ${#systems[@]} -gt 0 ] || systems=(bookworm trixie noble)
die() { echo "guest: $*" >&2 && exit 1; }
[ "$(id -u)" = 0 ] || die "the root folders of the guests have files of several users: run it as root"
missing=''
for p in qemu-system-x86_64:qemu-system-x86 mmdebstrap:mmdebstrap cpio:cpio modprobe:kmod xz:xz-utils zstd:zstd busybox:busybox-static mkfs.ext4:e2fsprogs gpg:gpg curl:curl; do
	command -v "${p%%:*}" >/dev/null || missing="$missing ${p##*:}"
done
[ -z "$missing" ] || die "not installed: apt-get install --no-install-recommends$missing"

cache=${CAISSON_GUEST_DIR:-/var/tmp/caisson-guest}
mkdir -p -m 0755 "$cache"
T=$(mktemp -d "${TMPDIR:-/tmp}/caisson-guest.XXXXXX")
qemu=''
finish() {
	rc=$?
	[ -z "$qemu" ] || kill "$qemu" 2>/dev/null || true
	rm -rf "$T"
	exit $rc
}
trap finish EXIT
trap 'exit 130' INT TERM

# The key that signs Ubuntu's archive, by its fingerprint: Debian has no package of it.
ubuntu_key=F6ECB3762474EDA9D21B7022871920D1991BC93C
ubuntu=http://archive.ubuntu.com/ubuntu
ubuntu_keyring() {
	local deb
	deb=$(curl -fsS -m 120 "$ubuntu/dists/noble/main/binary-amd64/Packages.xz" | xz -dc | awk '/^Package: /{p=$2} /^Filename: /&&p=="ubuntu-keyring"{print $2}')
	curl -fsS -m 60 -o "$T/keyring.deb" "$ubuntu/$deb"
	dpkg-deb -x "$T/keyring.deb" "$T/keyring"
	gpg --homedir "$T" --no-default-keyring --keyring "$T/ubuntu.gpg" --import "$T/keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg" 2>/dev/null || true
	gpg --homedir "$T" --no-default-keyring --keyring "$T/ubuntu.gpg" --export "$ubuntu_key" >"$cache/ubuntu.gpg"
	gpg --homedir "$T" --show-keys --with-colons "$cache/ubuntu.gpg" 2>/dev/null | grep -q "^fpr:::::::::$ubuntu_key:" || die "Ubuntu's keyring does not have the key $ubuntu_key"
}

# make_root SYSTEM: its disk in $cache/SYSTEM.img, its kernel and modules beside it.
make_root() {
	local s=$1 mirror kernel=linux-image-cloud-amd64 root=$T/root
	[ ! -e "$cache/$s.img" ] || return 0
	echo "guest: fetching $s"
	# Debian's packages come from where this machine has its own.
	mirror=${CAISSON_GUEST_DEBIAN:-$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN)' | awk '$2 == "Debian" && $1 !~ /security/ {print $1; exit}')}
	if [ "$s" = noble ]; then
		ubuntu_keyring
		mirror="deb [signed-by=$cache/ubuntu.gpg] $ubuntu noble main universe
deb [signed-by=$cache/ubuntu.gpg] $ubuntu noble-updates main universe"
		kernel=linux-image-virtual
	fi
	# The kernel is unpacked and not installed: an initrd of its own is of no use here, and takes long to make.
	# shellcheck disable=SC2016
	mmdebstrap --variant=apt --include=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,git,iproute2,kmod,apparmor,procps \
		--aptopt='APT::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--customize-hook="chroot \"\$1\" sh -c 'cd /var && apt-get download -o APT::Sandbox::User=root -qq \$(apt-cache depends $kernel | sed -n \"s/.*Depends: \\(linux-image-[0-9].*\\)/\\1/p\")'" \
		--customize-hook='chroot "$1" sh -c "cd /var && v=\$(ls linux-image-[0-9]*.deb | sed \"s/^linux-image-//; s/_.*//\"); apt-get download -o APT::Sandbox::User=root -qq linux-modules-\$v 2>/dev/null || true"' \
		"$s" "$root" - <<<"$(case $s in noble) echo "$mirror" ;; *) echo "deb $mirror $s main" ;; esac)" >"$T/fetched" 2>&1 || { tail -20 "$T/fetched" >&2 && die "$s cannot be fetched"; }
	mkdir -p "$T/kernel"
	for d in "$root"/var/linux-*.deb; do dpkg-deb -x "$d" "$T/kernel" && rm "$d"; done
	local modules
	modules=$(echo "$T"/kernel/lib/modules/* "$T"/kernel/usr/lib/modules/* | tr ' ' '\n' | grep -v '\*' | head -1)
	local v=${modules##*/}
	mkdir -p "$root/usr/lib/modules"
	cp -a "$modules" "$root/usr/lib/modules/"
	depmod -b "$root" "$v"
	rm -rf "${cache:?}/$s.modules" && mkdir "$cache/$s.modules"
	first_modules "$root" "$v" "$cache/$s.modules"
	cp "$T/kernel/boot/vmlinuz-$v" "$cache/$s.vmlinuz"
	rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
	echo guest >"$root/etc/hostname"
	printf '/dev/vda / ext4 defaults 0 0\n' >"$root/etc/fstab"
	# Services that nothing here needs, and that take long without a network or a terminal.
	for u in systemd-networkd-wait-online.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer getty@tty1.service serial-getty@ttyS0.service systemd-udev-settle.service motd-news.timer; do
		ln -sf /dev/null "$root/etc/systemd/system/$u"
	done
	truncate -s 1500M "$cache/$s.img.new"
	mkfs.ext4 -q -d "$root" "$cache/$s.img.new"
	mv "$cache/$s.img.new" "$cache/$s.img"
	rm -rf "$root" "$T/kernel"
}

# first_modules ROOT VERSION TO: what the disk needs, unpacked, in the order in which it loads.
first_modules() {
	local m f
	: >"$3/list"
	for m in virtio_pci virtio_blk crc32c_generic ext4; do
		modprobe -d "$1" -S "$2" --show-depends "$m" 2>/dev/null | sed -n 's/^insmod \([^ ]*\).*/\1/p' | while read -r f; do
			local name=${f##*/}
			name=${name%.xz} && name=${name%.zst}
			[ ! -e "$3/$name" ] || continue
			case $f in
			*.xz) xz -dc "$f" >"$3/$name" ;;
			*.zst) zstd -qdc "$f" >"$3/$name" ;;
			*) cp "$f" "$3/$name" ;;
			esac
			echo "$name" >>"$3/list"
		done
	done
}

# boot SYSTEM PARAMETERS: results in $T/SYSTEM.result.
boot() {
	local s=$1 ird=$T/ird limit=${CAISSON_GUEST_LIMIT:-2400}
	rm -rf "$ird" && mkdir -p "$ird"/{bin,dev,proc,sys,root,carry}
	cp "$(command -v busybox)" "$ird/bin/busybox"
	cp -r "$cache/$s.modules" "$ird/modules"
	cp bin/caisson "$ird/carry/caisson"
	cp scripts/guest/*.sh "$ird/carry/"
	awk '/^### User namespaces are not available/{on=1} on&&/^```/{n++; next} on&&n==1' docs/guide.md >"$ird/carry/apparmor.profile"
	echo "GUEST_ONLY='${GUEST_ONLY:-all}' GUEST_QUICK='$quick'" >"$ird/carry/settings.sh"
	cp scripts/guest/init "$ird/init" && chmod 0755 "$ird/init"
	(cd "$ird" && find . | cpio -o -H newc --quiet | gzip -1) >"$T/ird.gz"
	: >"$T/$s.result"
	qemu-system-x86_64 -M q35,accel=tcg,usb=off,vmport=off -nodefaults -display none -net none -no-reboot -m 1536 -smp "${CAISSON_GUEST_CPUS:-2}" -cpu "${CAISSON_GUEST_CPU:-qemu64}" \
		-drive "file=$cache/$s.img,format=raw,if=virtio,snapshot=on" -kernel "$cache/$s.vmlinuz" -initrd "$T/ird.gz" \
		-serial "file:$T/$s.console" -serial "file:$T/$s.result" \
		-append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr apparmor=1 security=apparmor systemd.show_status=false $2" &
	qemu=$!
	for ((i = 0; i < limit; i++)); do
		kill -0 "$qemu" 2>/dev/null || break
		sleep 1
	done
	kill "$qemu" 2>/dev/null || true
	wait "$qemu" 2>/dev/null || true
	qemu=''
	tr -d '\r' <"$T/$s.result" >"$T/$s.clean"
	if ! grep -q '^done$' "$T/$s.clean"; then
		tail -40 "$T/$s.console" "$T/$s.clean" >&2
		die "$s: the checks did not come to their end in $limit s"
	fi
}

# The rest is one command, read as a whole before it begins.
{
	if [ -w . ] && [ -z "$fetch" ]; then make -s build; fi
	[ -n "$fetch" ] || [ -x bin/caisson ] || die "bin/caisson is not there; make build"
	bad=0
	for s in "${systems[@]}"; do
		make_root "$s"
		[ -z "$fetch" ] || continue
		echo "guest: $s boots"
		boot "$s" ''
		grep -E '^(fact|check)\|' "$T/$s.clean" | sed 's/|/  /g'
		! grep -q '^check|.*|BAD|' "$T/$s.clean" || bad=1
	done
	[ -z "${CAISSON_GUEST_RESULTS:-}" ] || cp "$T"/*.clean "$CAISSON_GUEST_RESULTS/"
	[ -z "$write" ] || bash scripts/guest/page.sh "$T" "${systems[@]}" >docs/kernels.md
	[ $bad = 0 ] || die "a check did not come out as it must: BAD above"
	exit 0
}
