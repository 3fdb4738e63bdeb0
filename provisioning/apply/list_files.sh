# Makes the folder, removes files that do not belong there, lists the others. $1: the folder, then the names that belong.
set -e
umask 077; mkdir -p "$1"; cd "$1"; shift
find . -type f | while IFS= read -r path; do
    path=${path#./}; known=
    for name in "$@"; do [ "$name" = "$path" ] && known=yes; done
    if [ -z "$known" ]; then rm -f "$path"; continue; fi
    printf '%s %s %s\n' "$(sha256sum <"$path" | cut -d ' ' -f 1)" "$(($(wc -c <"$path")))" "$path"
done
