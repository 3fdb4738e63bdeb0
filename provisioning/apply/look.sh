# What this device is: lines of key=value. POSIX sh, read-only, as an ordinary user. $1: the folder that stands for /, mostly empty.
prefix=$1
root=$prefix/opt/edgemeter
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
say() { printf '%s=%s\n' "$1" "$(printf '%s' "$2" | tr -d '\000' | tr '\n' ' ')"; }
say arch "$(uname -m)"
say bits "$(getconf LONG_BIT 2>/dev/null)"
say libc "$(getconf GNU_LIBC_VERSION 2>/dev/null)"
say os "$( (. /etc/os-release && printf '%s' "$PRETTY_NAME") 2>/dev/null)"
say os_id "$( (. /etc/os-release && printf '%s' "$ID") 2>/dev/null)"
[ -r /etc/armbian-release ] && say armbian "$( (. /etc/armbian-release && printf '%s' "$VERSION $BOARD_NAME") 2>/dev/null)"
[ -r /etc/nv_tegra_release ] && say tegra "$(head -n 1 /etc/nv_tegra_release)"
[ -r /etc/mendel_version ] && say mendel "$(head -n 1 /etc/mendel_version)"
[ -r /proc/device-tree/model ] && say model "$(cat /proc/device-tree/model)"
[ -r /proc/device-tree/model ] || say model "$(cat /sys/class/dmi/id/product_name 2>/dev/null)"
seen=
for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
    path=$(command -v "$name" 2>/dev/null) || continue
    case " $seen " in *" $path "*) continue ;; esac
    seen="$seen $path"
    version=$("$path" -c 'import sys, venv, ssl; print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null) || continue
    say python "$version $path"
done
for path in "$root"/pythons/*/bin/python3; do
    version=$("$path" -c 'import sys, venv, ssl; print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null) || continue
    say python "$version $path"
done
say openssl "$(command -v openssl)"
if [ -n "$prefix" ] && [ -w "$prefix" ]; then say rights unneeded
elif [ "$(id -u)" = 0 ]; then say rights root
elif ! command -v sudo >/dev/null 2>&1; then say rights none
elif sudo -n -k true </dev/null >/dev/null 2>&1; then say rights sudo
else say rights password
fi
[ -d /run/systemd/system ] && [ -z "$prefix" ] && say systemd yes
there=$root
while [ ! -d "$there" ]; do there=$(dirname "$there"); done
say home "$HOME"
say room "$(df -Pk "$there" | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4,6-)"
say home_room "$(df -Pk "$HOME" | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4,6-)"
say release "$(readlink "$root/current" 2>/dev/null)"
say manifest "$(sha256sum <"$root/current/manifest.json" 2>/dev/null | cut -d " " -f 1)"
say end yes
