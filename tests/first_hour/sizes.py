"""How large the base and each extra are where the wheel is installed: MB in site-packages of a new environment, without pip.

python -m tests.first_hour.sizes WHEEL [PYTHON] [EXTRA...]    prints a row for each extra of the wheel, or for those named
"""

import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

from tests.fixtures.environments import install

# What only developers install, and what is gigabytes of libraries for one maker's GPUs.
SKIPPED = {"dev": "for developers", "tensorrt": "gigabytes of libraries for NVIDIA's GPUs"}


def extras_of(wheel: Path) -> list[str]:
    """Return the names of the extras that a wheel states."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode()).get_all("Provides-Extra", [])


def installed_mb(environment: Path) -> float:
    """Return the MB (10^6 bytes) of an environment's site-packages, each file once."""
    files = {
        (stat.st_dev, stat.st_ino): stat.st_size for path in (environment / "lib").rglob("*") if (stat := path.lstat()) and path.is_file()
    }
    return sum(files.values()) / 1e6


def main(arguments: list[str]) -> None:
    """Print the size of the base, and what each extra adds to it."""
    wheel, python, *named = [*arguments, *([sys.executable] if len(arguments) == 1 else [])]
    base_mb = None
    for extra in ["", *(named or sorted(extras_of(Path(wheel))))]:
        if extra in SKIPPED:
            print(f"{extra}\tskipped: {SKIPPED[extra]}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                install(Path(folder) / "venv", Path(wheel).resolve(), extra, python)
            except subprocess.CalledProcessError as error:
                print(f"{extra}\tcannot be installed: {error}", flush=True)
                continue
            size_mb = installed_mb(Path(folder) / "venv")
        base_mb = size_mb if base_mb is None else base_mb
        print(f"{extra or 'base'}\t{size_mb:.0f} MB\t+{size_mb - base_mb:.0f} MB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
