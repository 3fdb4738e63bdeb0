# $1 the arm64 system, $2 qemu, $3 the packages, $4 the core's part number, then the Python in that system and its arguments.
mount -t tmpfs tmpfs "$1/mnt"
mount -t tmpfs tmpfs "$1/sys"
mount --rbind /dev "$1/dev"
mount --rbind /proc "$1/proc"
mkdir -p "$1/mnt/packages" "$1/sys/devices/system/cpu"
cp "$2" "$1/mnt/qemu"
mount --bind "$3" "$1/mnt/packages"
for list in possible present online; do echo 0-3 > "$1/sys/devices/system/cpu/$list"; done
for core in 0 1 2 3; do
    mkdir "$1/sys/devices/system/cpu/cpu$core"
    printf 'processor\t: %s\nFeatures\t: fp asimd evtstrm crc32 cpuid\nCPU implementer\t: 0x41\nCPU architecture: 8\n' "$core"
    printf 'CPU variant\t: 0x0\nCPU part\t: %s\nCPU revision\t: 3\n\n' "$4"
done > "$1/mnt/cpuinfo"
mount --bind "$1/mnt/cpuinfo" "$1/proc/cpuinfo"
root=$1
shift 4
exec chroot "$root" /mnt/qemu "$@"
