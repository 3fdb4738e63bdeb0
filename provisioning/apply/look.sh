# Prints the facts of this device as lines of key=value. POSIX sh, read-only, as an ordinary user. $1: the folder of the agent's releases;
# a relative path is in the home folder.
root=$1
case $root in /*) ;; *) root=$HOME/$root ;; esac
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
put() { printf '%s=%s\n' "$1" "$(printf '%s' "$2" | tr -d '\000' | tr '\n' ' ')"; }
put arch "$(uname -m)"
put bits "$(getconf LONG_BIT 2>/dev/null)"
put libc "$(getconf GNU_LIBC_VERSION 2>/dev/null)"
put os "$( (. /etc/os-release && printf '%s' "${PRETTY_NAME:-$ID}") 2>/dev/null)"
[ -r /proc/device-tree/model ] && put model "$(cat /proc/device-tree/model)"
[ -r /proc/device-tree/model ] || put model "$(cat /sys/class/dmi/id/product_name 2>/dev/null)"
seen=
for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10 "$root"/pythons/*/bin/python3; do
    path=$(command -v "$name" 2>/dev/null) || continue
    case " $seen " in *" $path "*) continue ;; esac
    seen="$seen $path"
    version=$("$path" -c 'import sys, venv, ssl; print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null) || continue
    put python "$version $path"
done
put openssl "$(command -v openssl)"
if [ "$(id -u)" = 0 ]; then put rights root
elif ! command -v sudo >/dev/null 2>&1; then put rights none
elif sudo -n -k true </dev/null >/dev/null 2>&1; then put rights sudo
else put rights password
fi
put home "$HOME"
put root "$root"
put current "$(readlink "$root/current" 2>/dev/null)"
for manifest in "$root"/releases/*/manifest.json; do
    [ -r "$manifest" ] && put release "$(sha256sum <"$manifest" | cut -d ' ' -f 1) ${manifest%/manifest.json}"
done
put free_kb "$(df -Pk "$HOME" | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4)"
put end yes
