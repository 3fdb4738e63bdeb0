#!/bin/sh
# Make what tests on arm64 need, in the folder $EDGEMETER_ARM64 (kept; made once):
#   root/        Python and openssl of Debian trixie for arm64, unpacked and not configured, for programs under qemu-user
# With the argument `boards` also what emulated boards need:
#   root.tar     a whole Debian trixie for arm64: systemd, cloud-init, python3, openssl
#   kernel/      Debian's arm64 kernel with its modules and device trees, unpacked; busybox/ a static busybox
# Nothing of the host changes: programs for arm64 run in a user namespace that has its own binfmt_misc (Linux >= 6.7).
# Exit 77 with the reason where a tool is missing. Debian's packages: qemu-user-static debian-archive-keyring; for boards also
# mmdebstrap qemu-system-arm e2fsprogs fdisk dosfstools mtools cpio xz-utils.
set -eu

target=${EDGEMETER_ARM64:?name the folder to make the arm64 root in}
boards=${1:-}
suite=trixie
# What the tests' scripts call (a shell, coreutils), what releases need of a system, and a Python package that a release can share.
root_packages="base-files base-passwd coreutils dash python3 python3-yaml openssl libgomp1 libstdc++6"
board_packages=systemd-sysv,udev,dbus,cloud-init,netplan.io,systemd-resolved,python3,openssl,ca-certificates,iproute2,kmod,libgomp1,bubblewrap
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# A user's PATH may lack the folders of administration, where chroot is.
PATH="$PATH:/usr/sbin:/sbin"
qemu=$(command -v qemu-aarch64-static || :)
# How a system registers that qemu starts programs for arm64, in a user namespace of its own.
register='mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
    printf %s ":arm64:M::\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00:\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff:'$qemu':OCF" \
        > /proc/sys/fs/binfmt_misc/register'

skip() {
    echo "make_root: skipped: $1" >&2
    exit 77
}

# What starts a board, and makes its card (`BOARD_PROGRAMS` of tests/requirements.py): half an hour is too late to miss one.
board_tools="mmdebstrap qemu-system-aarch64 mke2fs sfdisk mkfs.vfat mcopy mtype debugfs cpio xz"
for tool in qemu-aarch64-static unshare apt-get dpkg tar ${boards:+$board_tools}; do
    command -v "$tool" > /dev/null || skip "$tool is not installed"
done
[ -e "$keyring" ] || skip "$keyring is not there (package debian-archive-keyring)"
[ -z "$boards" ] || [ "$(id -u)" = 0 ] || skip "making the boards' system needs 65,536 ids: run it as root"
unshare --user --map-root-user --mount sh -euc "$register" 2> /dev/null ||
    skip "no program for arm64 can be started in a user namespace here (it takes Linux >= 6.7 and leave to make user namespaces)"

# The mirror that this machine itself uses.
mirror=${EDGEMETER_DEBIAN:-$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2> /dev/null |
    sed -nE 's@^(URIs: *|deb +(\[[^]]*\] +)?)(https?://[^ ]*/debian)/?( .*)?$@\3@p' | head -n 1)}
[ -n "$mirror" ] || skip "no Debian mirror in /etc/apt; set EDGEMETER_DEBIAN"

mkdir -p "$target"
target=$(cd "$target" && pwd)
packages="$target/apt/cache/archives"

apt_arm64() {
    state="$target/apt"
    apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$state" -o Dir::State::lists="$state/lists" \
        -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" -o Dir::Etc::sourcelist="$state/sources.list" \
        -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User=root "$@"
}

# Have apt know the packages for arm64; once in a run of this script.
read_lists() {
    [ ! -e "$target/apt/read" ] || return 0
    mkdir -p "$target/apt/lists/partial" "$packages/partial"
    : > "$target/apt/status"
    echo "deb [signed-by=$keyring] $mirror $suite main" > "$target/apt/sources.list"
    apt_arm64 -o APT::Update::Error-Mode=any update > /dev/null || skip "$mirror has no packages for arm64"
    : > "$target/apt/read"
}

# Run a script as root of a user namespace with 65,536 ids, where arm64 programs start under qemu.
in_namespace() {
    gate=$(mktemp -u "$target/gate.XXXXXX")
    mkfifo "$gate"
    unshare --user --mount --pid --fork --kill-child sh -ec '
        read -r _ < "$0"
        mount -t proc proc /proc
        eval "$2"
        exec sh -euc "$1"' "$gate" "$1" "$register" &
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

rm -rf "$target/apt"
if [ ! -e "$target/root/usr/bin/python3" ]; then
    read_lists
    # shellcheck disable=SC2086 # a list
    apt_arm64 -y --no-install-recommends --download-only install $root_packages > /dev/null || skip "$mirror did not give the packages for arm64"
    rm -rf "$target/root.part" "$target/root"
    mkdir -p "$target/root.part/mnt"
    # Its links /bin and /lib come first: what follows goes through them.
    for package in "$packages"/base-files_*.deb "$packages"/*.deb; do dpkg -x "$package" "$target/root.part"; done
    # What it has, and where it comes from: a release's packages are resolved against that.
    mkdir -p "$target/root.part/var/lib/dpkg" "$target/root.part/etc/apt" "$target/root.part/usr/share/keyrings"
    for package in "$packages"/*.deb; do
        dpkg-deb --field "$package" | sed '/^Package:/aStatus: install ok installed'
        echo
    done > "$target/root.part/var/lib/dpkg/status"
    cp "$target/apt/sources.list" "$target/root.part/etc/apt/sources.list"
    cp "$keyring" "$target/root.part$keyring"
    # As the package would be configured: without users, root has no home.
    for list in passwd group; do cp "$target/root.part/usr/share/base-passwd/$list.master" "$target/root.part/etc/$list"; done
    unshare --user --map-root-user --mount sh -euc "$register"'
        chroot "$0" /bin/sh -c "python3 --version && openssl version"' "$target/root.part" > /dev/null
    mv "$target/root.part" "$target/root"
fi

if [ -n "$boards" ] && [ ! -e "$target/root.tar" ]; then
    in_namespace : < /dev/null || skip "a user namespace cannot have 65,536 ids here"
    # py3compile under emulation would take most of the time; nothing here needs its files.
    in_namespace "mmdebstrap --format=tar --architectures=arm64 --variant=minbase --mode=root --skip=check/qemu,chroot/mount/sys --include=$board_packages \
        --keyring=$keyring \
        --essential-hook='chroot \"\$1\" dpkg-divert --local --rename --add /usr/bin/py3compile && ln -sf /bin/true \"\$1/usr/bin/py3compile\"' \
        $suite '$target/root.tar.part' 'deb $mirror $suite main'" < /dev/null || skip "mmdebstrap could not make Debian for arm64 from $mirror"
    mv "$target/root.tar.part" "$target/root.tar"
fi

if [ -n "$boards" ] && [ ! -e "$target/kernel/vmlinuz" ]; then
    read_lists
    kernel=$(apt_arm64 -s install --no-install-recommends linux-image-arm64 | sed -nE 's/^Inst (linux-image-[0-9][^ ]*).*/\1/p' | head -n 1)
    (cd "$packages" && apt_arm64 download "$kernel" busybox-static > /dev/null)
    rm -rf "$target/kernel.part" "$target/busybox" "$target/kernel"
    dpkg -x "$packages"/busybox-static_*.deb "$target/busybox"
    dpkg -x "$packages/${kernel}"_*.deb "$target/kernel.part"
    cp "$target"/kernel.part/boot/vmlinuz-* "$target/kernel.part/vmlinuz"
    mv "$target/kernel.part" "$target/kernel"
fi
rm -rf "$target/apt"
echo "$target"
