# Unpacks $1 into $2, whole or not at all; leftovers of an interruption are removed.
set -e
[ -x "$2/bin/python3" ] && exit 0
rm -rf "$2.new"; mkdir -p "$2.new"
tar -xf "$1" -C "$2.new" --strip-components=1 --no-same-owner
"$2.new/bin/python3" -c 'import ssl, venv'
"$2.new/bin/python3" -m compileall -q -q --invalidation-mode unchecked-hash -x '/lib/python3[.][0-9]+/(.*/)?tests?/' \
    -s "$2.new" -p "$2" "$2.new/lib" || [ $? = 1 ]
sync; mv "$2.new" "$2"
