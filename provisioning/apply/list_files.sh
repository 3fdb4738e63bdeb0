# Makes the folder, removes files that do not belong there, lists the others. $1: what is there already, $2: the folder in it, then the names that belong.
set -e
umask 077; cd "$1"; mkdir -p "$2"; cd "$2"; shift 2
find . -type f | while IFS= read -r path; do
    path=${path#./}; known=
    for name in "$@"; do [ "$name" = "$path" ] && known=yes; done
    if [ -z "$known" ]; then rm -f "$path"; continue; fi
    printf '%s %s %s\n' "$(sha256sum <"$path" | cut -d ' ' -f 1)" "$(($(wc -c <"$path")))" "$path"
done
