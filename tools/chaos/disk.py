"""A disk that can be filled at once.

It is a small tmpfs, where we may mount one; its size shrinks to what is used, and back.
"""

import os
import subprocess
from pathlib import Path

PAGE_BYTES = 4096


class Disk:
    """A file system of its own at `folder`, of `size_mb`.

    It is an ordinary folder where nothing may be mounted (`can_fill` is False).
    """

    def __init__(self, folder: Path, size_mb: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.size_mb = size_mb
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "none", str(folder)],
            capture_output=True,
            check=False,
            timeout=100,
        )
        self.can_fill = mounted.returncode == 0

    def fill(self) -> None:
        used = os.statvfs(self.folder)
        # Other writes make the size too small, which the kernel refuses: try again.
        for extra_pages in (0, 16, 64):
            pages = used.f_blocks - used.f_bfree + extra_pages
            if self._resize(f"{pages * PAGE_BYTES // 1024}k"):
                return

    def free(self) -> None:
        self._resize(f"{self.size_mb}m")

    def remove(self) -> None:
        """Unmount it; what lay there is gone."""
        if self.can_fill:
            subprocess.run(["umount", "-l", str(self.folder)], check=False, timeout=100)

    def _resize(self, size: str) -> bool:
        command = ["mount", "-o", f"remount,size={size}", str(self.folder)]
        return (
            self.can_fill
            and subprocess.run(command, capture_output=True, check=False, timeout=100).returncode
            == 0
        )
