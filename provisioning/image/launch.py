"""The one thing that every format does at a boot: start the script in the payload, which copies itself and its unit to the disk."""

FOLDER = "edgemeter"
SCRIPT = f"{FOLDER}/firstboot.sh"
WIFI = f"{FOLDER}/wifi.nmconnection"
DONE = "/var/lib/edgemeter/firstboot.done"
# Where systems for boards mount their boot partition.
PLACES = "/boot/firmware /boot /boot/efi"
SEED = "/run/edgemeter/seed"

# No quotation marks in these: they stand within YAML and TOML strings.
FROM_BOOT = f"[ -e {DONE} ] || for d in {PLACES}; do if [ -f $d/{SCRIPT} ]; then sh $d/{SCRIPT} install; break; fi; done"
FROM_STICK = (
    f"[ -e {DONE} ] || {{ mkdir -p {SEED}; [ -f {SEED}/{SCRIPT} ] || mount LABEL=CIDATA {SEED} || mount LABEL=cidata {SEED}; "
    f"sh {SEED}/{SCRIPT} install; }}"
)
