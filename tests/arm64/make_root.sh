#!/bin/sh
# Make what the emulated arm64 boards need, in the folder $EDGEMETER_ARM64 (kept; made once):
#   root.tar     Debian trixie for arm64: systemd, cloud-init, python3, openssl
#   root/        the same unpacked, for qemu-user
#   kernel/      Debian's arm64 kernel with its modules and device trees, unpacked; busybox/ a static busybox
# Nothing of the host changes: programs for arm64 run in a user namespace that has its own binfmt_misc (Linux >= 6.7).
# Exit 77 with the reason where a tool is missing. Debian's packages: qemu-user-static mmdebstrap debian-archive-keyring.
set -eu

target=${EDGEMETER_ARM64:?name the folder to make the arm64 root in}
suite=trixie
packages=systemd-sysv,udev,dbus,cloud-init,netplan.io,systemd-resolved,python3,openssl,ca-certificates,iproute2,kmod,libgomp1
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

skip() {
    echo "make_root: skipped: $1" >&2
    exit 77
}

for tool in qemu-aarch64-static mmdebstrap unshare apt-get dpkg tar; do
    command -v "$tool" > /dev/null || skip "$tool is not installed"
done
[ -e "$keyring" ] || skip "$keyring is not there (package debian-archive-keyring)"
[ "$(id -u)" = 0 ] || skip "making the root needs 65,536 ids: run it as root"

# The mirror that this machine itself uses.
mirror=${EDGEMETER_DEBIAN:-$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2> /dev/null |
    sed -nE 's@^(URIs: *|deb +(\[[^]]*\] +)?)(https?://[^ ]*/debian)/?( .*)?$@\3@p' | head -n 1)}
[ -n "$mirror" ] || skip "no Debian mirror in /etc/apt; set EDGEMETER_DEBIAN"

mkdir -p "$target"
target=$(cd "$target" && pwd)

# Run a script as root of a user namespace with 65,536 ids, where arm64 programs start under qemu.
in_namespace() {
    gate=$(mktemp -u "$target/gate.XXXXXX")
    mkfifo "$gate"
    unshare --user --mount --pid --fork --kill-child sh -ec '
        read -r _ < "$0"
        mount -t proc proc /proc
        mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
        printf %s ":arm64:M::\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00:\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff:$(command -v qemu-aarch64-static):OCF" \
            > /proc/sys/fs/binfmt_misc/register
        exec sh -euc "$1"' "$gate" "$1" &
    pid=$!
    # Its ids are given from outside once its namespace is there.
    while [ "$(readlink "/proc/$pid/ns/user")" = "$(readlink /proc/self/ns/user)" ]; do sleep 0.1; done
    if ! { echo '0 0 65536' > "/proc/$pid/uid_map" && echo '0 0 65536' > "/proc/$pid/gid_map"; } 2> /dev/null; then
        kill "$pid" 2> /dev/null || :
        rm -f "$gate"
        return 1
    fi
    echo > "$gate"
    rc=0
    wait "$pid" || rc=$?
    rm -f "$gate"
    return "$rc"
}

in_namespace "$(command -v sh) -c :" < /dev/null ||
    skip "no program for arm64 can be started in a user namespace here (it takes Linux >= 6.7 and leave to make user namespaces)"

if [ ! -e "$target/root.tar" ]; then
    # py3compile under emulation would take most of the time; nothing here needs its files.
    in_namespace "mmdebstrap --format=tar --architectures=arm64 --variant=minbase --mode=root --skip=check/qemu,chroot/mount/sys --include=$packages \
        --keyring=$keyring \
        --essential-hook='chroot \"\$1\" dpkg-divert --local --rename --add /usr/bin/py3compile && ln -sf /bin/true \"\$1/usr/bin/py3compile\"' \
        $suite '$target/root.tar.part' 'deb $mirror $suite main'" < /dev/null || skip "mmdebstrap could not make Debian for arm64 from $mirror"
    mv "$target/root.tar.part" "$target/root.tar"
fi

if [ ! -e "$target/root/usr/bin/python3" ]; then
    rm -rf "$target/root.part" "$target/root"
    mkdir "$target/root.part"
    tar -C "$target/root.part" -xpf "$target/root.tar" --exclude='./dev/*'
    mv "$target/root.part" "$target/root"
fi

if [ ! -e "$target/kernel/vmlinuz" ]; then
    state="$target/apt"
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$target/packages"
    : > "$state/status"
    echo "deb [signed-by=$keyring] $mirror $suite main" > "$state/sources.list"
    apt_arm64() {
        apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$state" -o Dir::State::lists="$state/lists" \
            -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" -o Dir::Etc::sourcelist="$state/sources.list" \
            -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User=root "$@"
    }
    apt_arm64 update > /dev/null || skip "$mirror has no packages for arm64"
    kernel=$(apt_arm64 -s install --no-install-recommends linux-image-arm64 | sed -nE 's/^Inst (linux-image-[0-9][^ ]*).*/\1/p' | head -n 1)
    (cd "$target/packages" && apt_arm64 download "$kernel" busybox-static > /dev/null)
    rm -rf "$target/kernel.part" "$target/busybox" "$target/kernel"
    dpkg -x "$target"/packages/busybox-static_*.deb "$target/busybox"
    dpkg -x "$target/packages/${kernel}"_*.deb "$target/kernel.part"
    cp "$target"/kernel.part/boot/vmlinuz-* "$target/kernel.part/vmlinuz"
    mv "$target/kernel.part" "$target/kernel"
    rm -rf "$state" "$target/packages"
fi
echo "$target"
