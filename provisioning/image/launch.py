"""The one thing that every format does at a boot: start the script in the payload, which copies itself and its unit to the disk."""

FOLDER = "edgemeter"
SCRIPT = f"{FOLDER}/firstboot.sh"
WIFI = f"{FOLDER}/wifi.nmconnection"
DONE = "/var/lib/edgemeter/firstboot.done"
# Where systems for boards mount their boot partition.
PLACES = "/boot/firmware /boot /boot/efi"
SEED = "/run/edgemeter/seed"

# No quotation marks, brackets or commas in these: they stand within strings of YAML and TOML, which are read by small parsers too.
FROM_BOOT = f"test -e {DONE} || for d in {PLACES}; do if test -f $d/{SCRIPT}; then sh $d/{SCRIPT} install; break; fi; done"
FROM_STICK = (
    f"test -e {DONE} || {{ mkdir -p {SEED}; test -f {SEED}/{SCRIPT} || mount LABEL=CIDATA {SEED} || mount LABEL=cidata {SEED}; "
    f"sh {SEED}/{SCRIPT} install; }}"
)
