#!/bin/sh
# The first boot of a board: install the agent from the boot partition, join the fleet, remove the secrets from the card.
#
#   sh firstboot.sh install    copy this script and its unit, enable and start the unit (what cloud-init and firstrun call)
#   sh firstboot.sh run        run all steps (what the unit calls, every 20 s until they succeed)
#
# Every step checks first, and is repeated after an interruption: the board may lose power at any moment.
# EDGEMETER_PREFIX precedes every path, EDGEMETER_SYSTEMCTL is the service manager's command.
set -eu
umask 022

PREFIX=${EDGEMETER_PREFIX:-}
OPT=$PREFIX/opt/edgemeter
STATE=$PREFIX/var/lib/edgemeter
UNITS=$PREFIX/etc/systemd/system
CLOUD=$PREFIX/etc/cloud
SYSTEMCTL=${EDGEMETER_SYSTEMCTL:-systemctl}
UNIT=edgemeter-firstboot.service
LOG=$STATE/firstboot.log
# The folder of the boot partition and ours on it, empty if it is missing.
BOOT=
CARD=
STEP='find the boot partition'

# Prints the boot partition's folder; the caller has mounted a stick at the last of them.
find_boot() {
    for place in "$PREFIX/boot/firmware" "$PREFIX/boot" "$PREFIX/boot/efi" "$PREFIX/run/edgemeter/seed"; do
        if [ -f "$place/edgemeter/firstboot.sh" ]; then echo "$place"; return 0; fi
    done
    return 1
}

# copy FROM TO MODE: TO is always complete, the old file or the new one.
copy() {
    cp "$1" "$2.new"
    chmod "$3" "$2.new"
    sync "$2.new" 2>/dev/null || sync
    mv -f "$2.new" "$2"
}

# The status file for people with a PC: it contains no secret, and a card that is read-only or missing is no failure.
breadcrumb() {
    [ -n "$CARD" ] || return 0
    {
        echo "Edgemeter, first boot"
        echo "state:   $1"
        echo "step:    $STEP"
        [ -z "${2:-}" ] || echo "error:   $2"
        echo "time:    $(date -u +%Y-%m-%dT%H:%M:%SZ) by the board's clock"
        echo "address: $(addresses)"
    } >"$STATE/status.new" 2>/dev/null || return 0
    cp "$STATE/status.new" "$CARD/status.txt" 2>/dev/null || return 0
    sync "$CARD/status.txt" 2>/dev/null || true
}

addresses() {
    hostname -I 2>/dev/null | tr -s ' ' | sed 's/ $//' | grep . || echo none
}

# The last line of the error; a line with the token is not shown.
last_error() {
    line=$(grep -v '^[[:space:]]*$' "$LOG" 2>/dev/null | tail -n 1 | tr -d '\r' | cut -c 1-300)
    token=$(token_of "$STATE/join.toml")
    case "$line" in
        *"${token:-$line.}"*) line='(not shown: it holds a secret)' ;;
    esac
    printf '%s' "$line"
}

token_of() {
    sed -n 's/^[[:space:]]*token[[:space:]]*=[[:space:]]*["'\'']\([^"'\'']*\)["'\''].*/\1/p' "$1" 2>/dev/null | head -n 1
}

step() {
    STEP=$1
    echo "edgemeter: $STEP"
    breadcrumb 'under way'
}

fail() {
    echo "$1" >>"$LOG"
    exit 1
}

ended() {
    code=$?
    trap - EXIT
    if [ "$code" -ne 0 ]; then
        error=$(last_error) || error=
        echo "edgemeter: $STEP: ${error:-failed}" >&3
        breadcrumb 'failed, retrying in 20 s' "${error:-exit status $code}"
    fi
    exit "$code"
}

# Prints the files of the network that cloud-init has written; find_rendered -size 0: the empty ones.
find_rendered() {
    find "$PREFIX/etc/netplan" "$PREFIX/etc/NetworkManager/system-connections" "$PREFIX/etc/network/interfaces.d" \
        "$PREFIX/etc/systemd/network" -name '*cloud-init*' -type f "$@" 2>/dev/null || true
}

# cloud-init writes them at its first start only. A file that was being written at a power cut is empty or gone, and the board would be
# without a network for ever: cloud-init is made to start over, at most three times.
mend_network() {
    torn=$(find_rendered -size 0)
    if [ -z "$torn" ]; then
        [ -e "$PREFIX/var/lib/cloud/instance" ] && [ -f "$BOOT/network-config" ] || return 0
        [ -z "$(find_rendered)" ] && [ "$(addresses)" = none ] || return 0
    fi
    [ "$(wc -l <"$STATE/network.mended" 2>/dev/null || echo 0)" -lt 3 ] || return 0
    step 'rewrite the network configuration, which a power cut damaged; the board reboots'
    echo "$torn" | while read -r file; do rm -f "$file"; done
    rm -rf "$PREFIX/var/lib/cloud/instance" "$PREFIX/var/lib/cloud/instances" "$PREFIX/var/lib/cloud/data"
    date >>"$STATE/network.mended"
    sync
    $SYSTEMCTL reboot >>"$LOG"
    fail 'waiting for the reboot'
}

# The installer verifies what it reads from the card, does nothing if this release is installed, and rebuilds an unfinished one.
install_release() {
    python3 "$CARD/install.py" --release "$CARD/release.tar" --root "$OPT" --public-key "$CARD/release.pub" >>"$LOG"
}

# The steps of `fleet apply` on a running board, except the start: user, units, rules, identity and owners.
set_up() {
    plan='{"prefix": "'$PREFIX'", "join_file": "'$STATE/join.toml'", "steps": ["user", "units", "join", "owner"]}'
    "$OPT/current/bin/python" -I -B "$(dirname "$0")/on_device.py" "$plan" >>"$LOG"
}

# The join file is copied to the disk, where a power cut does not lose it while its token is wiped; another card may bring another token.
copy_join_file() {
    case "$(token_of "$CARD/join.toml")" in
        '' | xxxxxxxx*) [ -f "$STATE/join.toml" ] || fail 'join.toml has no token: prepare the card again' ;;
        *) (umask 077 && copy "$CARD/join.toml" "$STATE/join.toml" 600) ;;
    esac
}

# Overwrites the values of secrets in FILE in place with x's of the same length, so that no cluster with the old bytes is left.
scrub() {
    [ -f "$1" ] || return 0
    LC_ALL=C awk '
        match($0, /^[ \t-]*["\047]?(token|password|passwd|hashed_passwd|plain_text_passwd|psk|wifi_psk)["\047]?[ \t]*[:=][ \t]*/) {
            head = substr($0, 1, RLENGTH); tail = substr($0, RLENGTH + 1)
            quote = substr(tail, 1, 1)
            if (quote == "\"" || quote == "\047") { head = head quote; tail = substr(tail, 2) } else quote = ""
            end = ""
            if (quote != "") { at = length(tail); while (at > 0 && substr(tail, at, 1) != quote) at--; if (at) { end = substr(tail, at); tail = substr(tail, 1, at - 1) } }
            gsub(/[^\r]/, "x", tail)
            $0 = head tail end
        }
        { print }' "$1" >"$STATE/scrubbed.new"
    size=$(wc -c <"$1")
    if ! head -c "$size" "$STATE/scrubbed.new" | cmp -s - "$1"; then
        head -c "$size" "$STATE/scrubbed.new" | dd of="$1" conv=notrunc 2>/dev/null || echo "edgemeter: $1 cannot be written, it keeps its secrets" >&3
        sync "$1" 2>/dev/null || sync
    fi
    rm -f "$STATE/scrubbed.new"
}

finish() {
    # cloud-init has done its part; it costs 20 to 60 s at every boot, and its files are about to be scrubbed.
    if [ -d "$CLOUD" ]; then touch "$CLOUD/cloud-init.disabled"; fi
    if [ -n "$BOOT" ]; then
        if [ ! -w "$BOOT" ] && [ -z "$PREFIX" ]; then mount -o remount,rw "$BOOT" 2>/dev/null || true; fi
        for name in edgemeter/join.toml edgemeter/wifi.nmconnection user-data network-config; do scrub "$BOOT/$name"; done
    fi
    scrub "$STATE/join.toml"
    rm -f "$STATE/join.toml" "$STATE/join.toml.new"
    $SYSTEMCTL daemon-reload >>"$LOG"
    $SYSTEMCTL start --no-block edgemeter-supervisor.service edgemeter-agent.service >>"$LOG"
    sync
    touch "$STATE/firstboot.done"
    STEP='all done'
    breadcrumb joined
    rm -f "$STATE/status.new"
    $SYSTEMCTL disable "$UNIT" >>"$LOG" || true
    echo 'edgemeter: joined, the agent runs'
}

run() {
    mkdir -p "$STATE"
    chmod 750 "$STATE"
    # One at a time; a second one retries later.
    if command -v flock >/dev/null 2>&1; then
        exec 9>"$STATE/firstboot.lock"
        flock -n 9 || { echo 'edgemeter: the first boot is already under way' >&2; exit 1; }
    fi
    (umask 077 && : >"$LOG")
    # The errors of programs are stored; the breadcrumb shows the last line.
    exec 3>&2 2>>"$LOG"
    trap ended EXIT
    BOOT=$(find_boot) || BOOT=
    CARD=${BOOT:+$BOOT/edgemeter}
    # Once joined, the card is no longer needed.
    if [ ! -e "$STATE/joined" ]; then
        [ -n "$CARD" ] || fail 'the boot partition with the folder edgemeter is missing: insert the card or stick, and restart the board'
        mend_network
        step 'install the release (1 of 3)'
        install_release
        copy_join_file
    fi
    step 'set up the board and join the fleet (2 of 3)'
    set_up
    step 'remove the secrets from the card and start the agent (3 of 3)'
    finish
}

install_self() {
    [ ! -e "$STATE/firstboot.done" ] || return 0
    from=$(dirname "$0")
    mkdir -p "$OPT" "$UNITS"
    copy "$from/on_device.py" "$OPT/on_device.py" 644
    copy "$from/firstboot.sh" "$OPT/firstboot.sh" 755
    copy "$from/$UNIT" "$UNITS/$UNIT" 644
    $SYSTEMCTL daemon-reload || true
    $SYSTEMCTL enable "$UNIT"
    # If the service manager is not up yet (an early phase of the boot), enabling is enough.
    $SYSTEMCTL start --no-block "$UNIT" || true
}

case "${1:-}" in
    install) install_self ;;
    run) run ;;
    *)
        echo 'usage: sh firstboot.sh install|run' >&2
        exit 2
        ;;
esac
