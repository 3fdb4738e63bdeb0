# Runs a program in the Linux system on another disk of this board. POSIX sh with util-linux, as root, in a mount namespace of its own
# (`unshare --mount`), so that nothing stays mounted whatever happens. $1: the disk, or one of its partitions; $2: a folder of the running
# system, which is /run/edgemeter-apply there if it exists; then the program. Ends with status 96 and one line if that cannot be.
set -eu
disk=$1 stage=$2 root=/mnt
shift 2
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
fail() {
    printf '%s\n' "$1" >&2
    exit 96
}
[ -b "$disk" ] || fail "$disk is no disk of this board: \`lsblk\` there lists them"
found='' several=''
for part in $(lsblk -lnpo NAME "$disk"); do
    [ "$(lsblk -dnro MAJ:MIN "$part")" != "$(mountpoint -d /)" ] || fail "this board runs from $part: leave --disk out"
    case $(blkid -o value -s TYPE "$part" || :) in
    ext4 | btrfs | xfs | f2fs) mount "$part" $root 2> /dev/null || continue ;;
    *) continue ;;
    esac
    # The file is a link, which may be absolute: only that it is there can be looked at from here.
    if [ -d $root/usr/bin ] && { [ -e $root/etc/os-release ] || [ -L $root/etc/os-release ]; }; then
        several=${found:+yes} found="$found${found:+ }$part"
    fi
    umount $root
done
[ -n "$found" ] || fail "there is no Linux system on $disk that can be mounted: write an image to it first"
[ -z "$several" ] || fail "there are several systems on $disk: give the partition of one ($found)"
mount "$found" $root
apart=$(awk '$1 !~ /^#/ && $2 ~ "^/(usr|etc|opt|var|var/lib)$" && $3 != "tmpfs" { print $2; exit }' $root/etc/fstab 2> /dev/null || :)
[ -z "$apart" ] || fail "$apart of the system on $found is on a file system of its own: start the board from it, and omit --disk"
mount -t proc proc $root/proc
mount --rbind /sys $root/sys
mount --rbind /dev $root/dev
# No systemd is seen there: units are enabled, and nothing of the running system is started.
mount -t tmpfs -o mode=755 tmpfs $root/run
mkdir -p $root/run/lock $root/run/edgemeter-apply
[ ! -d /run/lock ] || mount --bind /run/lock $root/run/lock
[ ! -d "$stage" ] || mount --bind "$stage" $root/run/edgemeter-apply
# To join, the broker's name has to be found.
names=$(chroot $root readlink -m /etc/resolv.conf)
case $names in
/run/*) mkdir -p "$root${names%/*}" && cp /etc/resolv.conf "$root$names" ;;
*) [ ! -f "$root$names" ] || mount --bind /etc/resolv.conf "$root$names" ;;
esac
exec chroot $root "$@"
