"""Disks as sysfs, /proc and /dev show them, in a folder: a real write needs nothing but the plain files in its `dev`."""

from dataclasses import dataclass, field
from pathlib import Path

from edgemeter.provisioning.write.target_disk import KernelTrees

USB = "pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host4/target4:0:0/4:0:0:0"
MMC = "platform/soc/fe340000.mmc/mmc_host/mmc0/mmc0:aaaa"
SATA = "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0"
CARD_BYTES = 24 << 20


@dataclass
class Bench:
    """A world below `folder`; what is mounted or swapped to is added to `mounts` and `swaps`."""

    folder: Path
    mounts: list[str] = field(default_factory=list)
    swaps: list[str] = field(default_factory=list)

    @property
    def world(self) -> KernelTrees:
        """Return it as the product takes it."""
        proc = self.folder / "proc"
        (proc / "self").mkdir(parents=True, exist_ok=True)
        (proc / "self/mountinfo").write_text("".join(f"{line}\n" for line in self.mounts))
        (proc / "swaps").write_text("Filename Type Size Used Priority\n" + "".join(f"{line} partition 1 0 -2\n" for line in self.swaps))
        return KernelTrees(self.folder / "sys", proc, self.folder / "dev")

    def disk(self, name="sdx", where=USB, size_bytes=CARD_BYTES, removable=1, ro=0, parts=(), number="8:16", model="SD Card Reader"):
        """Plug a disk in and return its file."""
        entry = self.folder / "sys/devices" / where / "block" / name
        holder = entry.parent.parent
        entry.mkdir(parents=True)
        for key, value in {"size": size_bytes // 512, "removable": removable, "ro": ro, "dev": number}.items():
            (entry / key).write_text(f"{value}\n")
        (holder / "vendor").write_text("Generic \n")
        (holder / "model").write_text(f"{model}    \n")
        (entry / "device").symlink_to(holder)
        self._list(name, entry, size_bytes)
        major, minor = map(int, number.split(":"))
        for index, part in enumerate(parts, 1):
            (entry / part / "holders").mkdir(parents=True)
            (entry / part / "partition").write_text(f"{index}\n")
            (entry / part / "dev").write_text(f"{major}:{minor + index}\n")
            self._list(part, entry / part, size_bytes)
        return self.folder / "dev" / name

    def hold(self, name, holder="dm-0"):
        """Let something (LVM, RAID) hold a disk or partition."""
        (self.folder / "sys/class/block" / name / "holders" / holder).mkdir(parents=True)

    def _list(self, name, entry, size_bytes):
        listed = self.folder / "sys/class/block"
        listed.mkdir(parents=True, exist_ok=True)
        (listed / name).symlink_to(entry)
        (self.folder / "dev").mkdir(exist_ok=True)
        with (self.folder / "dev" / name).open("wb") as file:
            file.truncate(min(size_bytes, 1 << 30))
