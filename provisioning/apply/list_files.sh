# Makes the folder $1, removes files that do not belong there, and lists the others: hash, bytes and name. $2 and more: the names that belong.
set -e
umask 077; mkdir -p "$1"; cd "$1"; shift
for path in *; do
    [ -f "$path" ] || continue
    belongs=
    for name in "$@"; do [ "$name" = "$path" ] && belongs=yes; done
    if [ -z "$belongs" ]; then rm -f "$path"; continue; fi
    printf '%s %s %s\n' "$(sha256sum <"$path" | cut -d ' ' -f 1)" "$(($(wc -c <"$path")))" "$path"
done
