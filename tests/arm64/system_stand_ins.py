"""What stands on an emulated card for Raspberry Pi OS's own first boot: its boot files, and programs that do what its programs do.

Written from what raspberrypi-sys-mods (firstboot, imager_fixup) and rpi-preseed (README, rpi-preseed(5), its units) do; neither can be
installed on Debian. So a test with them shows that our adapter's files lead to a join, not that those programs are as described.
"""

from pathlib import Path
from typing import Literal

from tests.arm64.emulation import run

BootFormat = Literal["cloudinit", "firstrun", "preseed"]
# A busy host makes the board slow: devices are waited for longer than the usual 90 s.
CMDLINE = (
    "console=ttyAMA0,115200 root=/dev/vda2 rootfstype=ext4 net.ifnames=0 rw rootwait "
    "systemd.default_device_timeout_sec=900 systemd.default_timeout_start_sec=900"
)
FIRSTBOOT = "/usr/lib/raspberrypi-sys-mods/firstboot"
BOOT_FILES: dict[BootFormat, dict[str, str]] = {
    "cloudinit": {
        "user-data": "#cloud-config\n",
        "meta-data": "instance_id: rpios-image\n",
        "network-config": "network:\n  version: 2\n  ethernets:\n    eth0:\n      dhcp4: true\n      optional: true\n",
    },
    "firstrun": {"cmdline.txt": f"{CMDLINE} init={FIRSTBOOT}\n", "issue.txt": "Raspberry Pi reference 2024-11-19\n"},
    "preseed": {"rpi-preseed.toml": 'config_version = "1.1"\n'},
}
# The first of two boots: the paths below /boot become those of the mounted partition, and the kernel's line loses its `init=`.
_FIRSTBOOT = """#!/bin/bash
mount -t proc proc /proc
mount -t devtmpfs dev /dev
mount -t vfat /dev/vda1 /boot/firmware
cd /boot/firmware
sed -i 's| init=/usr/lib/raspberrypi-sys-mods/firstboot||' cmdline.txt
sed -i 's|systemd.run=/boot/firstrun.sh|systemd.run=/boot/firmware/firstrun.sh|' cmdline.txt
if [ -f firstrun.sh ]; then
    sed -i '/^rm -f .*firstrun.sh$/,$d' firstrun.sh
    printf '%s\\n' 'rm -f /boot/firmware/firstrun.sh' "sed -i 's| systemd.[^ ]*||g' /boot/firmware/cmdline.txt" 'exit 0' >> firstrun.sh
fi
cd /
umount /boot/firmware
sync
mount -o remount,ro /
echo 1 > /proc/sys/kernel/sysrq
echo b > /proc/sysrq-trigger
sleep 60
"""
# `early`: once, 5 s a command; `late`: with the network, each command up to four times.
_PRESEED = """import subprocess, sys, time, tomllib
from pathlib import Path

phase, state = sys.argv[1], Path("/var/lib/rpi-preseed")
commands = tomllib.loads(Path("/boot/firmware/rpi-preseed.toml").read_text()).get("runcmd", {}).get(phase, [])
for command in commands:
    for attempt in range(1 if phase == "early" else 4):
        try:
            if subprocess.run(["sh", "-c", command], timeout=5 if phase == "early" else None).returncode == 0:
                break
        except subprocess.TimeoutExpired:
            pass
        time.sleep(5)
state.mkdir(parents=True, exist_ok=True)
(state / f"{phase}-done").touch()
"""
_PRESEED_UNIT = """[Unit]
After=local-fs.target {after}
Wants={wants}
ConditionPathExists=!/var/lib/rpi-preseed/{phase}-done

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=infinity
ExecStart=/usr/bin/python3 /usr/lib/rpi-preseed-{phase}.py {phase}

[Install]
WantedBy=multi-user.target
"""
_NETWORK = "[Match]\nName=eth0\n\n[Network]\nDHCP=yes\n"


def replace_cloud_init(root: Path, form: BootFormat) -> None:
    """Take cloud-init out of a root, and put in what another format's first boot needs, and a network."""
    for name in (
        "etc/cloud",
        "usr/bin/cloud-init",
        "usr/lib/python3/dist-packages/cloudinit",
        "usr/lib/systemd/system-generators/cloud-init-generator",
    ):
        run("rm", "-rf", root / name)
    for unit in (*root.glob("usr/lib/systemd/system/cloud-*"), *root.glob("etc/systemd/system/*.wants/cloud-*")):
        run("rm", "-rf", unit)
    _put(root, "etc/systemd/network/10-eth0.network", _NETWORK)
    _enable(root, "multi-user", "systemd-networkd.service")
    _enable(root, "network-online", "systemd-networkd-wait-online.service")
    if form == "firstrun":
        _put(root, FIRSTBOOT.removeprefix("/"), _FIRSTBOOT)
        (root / FIRSTBOOT.removeprefix("/")).chmod(0o755)
        return
    for phase, after, wants in (("early", "", ""), ("late", "network-online.target rpi-preseed-early.service", "network-online.target")):
        _put(root, f"usr/lib/rpi-preseed-{phase}.py", _PRESEED)
        _put(root, f"usr/lib/systemd/system/rpi-preseed-{phase}.service", _PRESEED_UNIT.format(phase=phase, after=after, wants=wants))
        _enable(root, "multi-user", f"rpi-preseed-{phase}.service")


def _put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def _enable(root: Path, target: str, unit: str) -> None:
    wants = root / f"etc/systemd/system/{target}.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / unit).unlink(missing_ok=True)
    (wants / unit).symlink_to(f"/usr/lib/systemd/system/{unit}")
