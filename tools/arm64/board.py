"""An emulated board: qemu's `virt` machine with a Cortex-A72, a card, and a network.

Through the network the host is 10.0.2.2.
"""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tools.arm64 import card, emulation

HOST = "10.0.2.2"
MEMORY_MB = 1024


@dataclass(slots=True)
class Board:
    """One board with the card at `image`; what it prints goes to `console`.

    `cut` takes its power away.
    """

    image: Path
    initrd: Path
    console: Path
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    def power_on(self) -> None:
        """Start it as the firmware does: with the kernel command line of the boot partition."""
        command_line = card.boot_file(self.image, "cmdline.txt").strip()
        command = [
            *(
                "qemu-system-aarch64",
                "-M",
                "virt",
                "-cpu",
                "cortex-a72",
                "-smp",
                "2",
                "-m",
                str(MEMORY_MB),
                "-nographic",
                "-no-reboot",
            ),
            *(
                "-kernel",
                str(emulation.folder() / "kernel/vmlinuz"),
                "-initrd",
                str(self.initrd),
                "-append",
                command_line,
            ),
            # Writes that the board did not flush are lost with its power: qemu's own cache outlives
            # it only when the host does not die.
            *(
                "-drive",
                f"file={self.image},format=raw,if=none,id=card,cache=writeback",
                "-device",
                "virtio-blk-pci,drive=card",
            ),
            *("-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="),
            *("-device", "virtio-rng-pci"),
        ]
        with self.console.open("ab") as log:
            log.write(b"\n==== power on ====\n")
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def cut(self) -> None:
        """Take its power away, in the middle of whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def is_on(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def said(self) -> str:
        """Return what it has printed since the last power-on."""
        return self.console.read_text(errors="replace").rpartition("==== power on ====")[2]
