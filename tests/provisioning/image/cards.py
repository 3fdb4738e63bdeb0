"""A small release whose agent does not join, and disks made by `sfdisk`, `mkfs.vfat` and mtools."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from edgemeter.provisioning.release import release_file
from tests import requirements
from tests.fixtures import small_release
from tests.fixtures.command import edgemeter
from tests.fixtures.pip_wheel import compiled_pip

OFFSET = 8 << 20
# The mark of a test that makes or reads such disks.
on_disk = pytest.mark.needs("sfdisk", "mkfs.vfat", "mcopy", "mtype", "mdir", "fsck.fat", "openssl")
# Stands for the agent: its `join` goes to no broker, wants a token that was not used, and takes a
# moment.
AGENT = """
import sys, time
from pathlib import Path

def main():
    if sys.argv[1:] == ["--version"]:
        print("edgemeter, version 0.0.1")
        return 0
    text = Path(sys.argv[3]).read_text()
    home, config = Path(sys.argv[5]), Path(sys.argv[7])
    expected = ["agent", "join", "--home", "--config", "--timeout"]
    if sys.argv[1:3] + sys.argv[4::2] != expected or 'token = "' not in text:
        print("Error: the token has been used", file=sys.stderr)
        return 1
    if (home / "refuse").exists():
        print("Error: " + (home / "refuse").read_text(), file=sys.stderr)
        return 1
    time.sleep(0.1)
    (home / "identity").mkdir(exist_ok=True)
    (home / "identity" / "device.crt").write_text("a certificate")
    config.write_text("device = 'pi5-01'")
    (home / "joined").touch()
    return 0
"""


def release(folder: Path, key: Path, version: str = "0.0.1") -> Path:
    """Return a signed release for this machine.

    It has pip, the small agent, the real installer, supervisor and units.
    """
    release_folder = folder / f"release-{version}"
    (release_folder / "wheels").mkdir(parents=True)
    shutil.copy2(compiled_pip(), release_folder / "wheels")
    files = {
        "small_agent.py": AGENT,
        # The installer runs it; there are no runtimes here.
        "edgemeter/agent/update/imports.py": "",
        "INFO/entry_points.txt": "[console_scripts]\nedgemeter = small_agent:main\n",
    }
    small_release.write_wheel(release_folder / "wheels", "edgemeter", version, files=files)
    release_file.add_scripts(release_folder)
    release_file.seal_release(release_folder, small_release.this_target(), version, key)
    return small_release.pack(release_folder)


def run(*command: str | Path, **settings) -> str:
    program, *arguments = command
    words = [requirements.program(str(program)), *arguments]
    completed = subprocess.run(
        words, capture_output=True, check=False, timeout=900, text=True, **settings
    )
    assert completed.returncode == 0, (command, completed.stdout, completed.stderr)
    return completed.stdout


def disk(
    path: Path,
    files: dict[str, str],
    *,
    size_mb: int = 64,
    bits: int = 32,
    sectors: int = 1,
    table: str = "dos",
) -> Path:
    """Make a disk image: a FAT partition at 8 MiB with these files, and one of Linux behind it.

    Without `table` it is the FAT file system alone.
    """
    offset = OFFSET if table else 0
    with path.open("wb") as file:
        file.truncate((size_mb << 20) + (2 * OFFSET if table else 0))
    if table:
        kinds = {"dos": ("c", "83"), "gpt": ("U", "L")}[table]
        layout = (
            f"label: {table}\nstart={OFFSET // 512},size={size_mb * 2048},type={kinds[0]}\n"
            f"size=4M,type={kinds[1]}\n"
        )
        run("sfdisk", "-q", path, input=layout)
    offset_option = ["--offset", str(offset // 512)] if table else []
    run(
        "mkfs.vfat",
        "-F",
        str(bits),
        "-s",
        str(sectors),
        "-n",
        "BOOTFS" if table else "CIDATA",
        *offset_option,
        path,
        str(size_mb * 1024),
    )
    source = path.with_suffix(".source")
    for name, text in files.items():
        source.write_bytes(text.encode())
        run("mcopy", "-o", "-i", f"{path}@@{offset}", source, f"::{name}")
    return path


def mtype(image: Path, name: str, offset: int = OFFSET) -> str:
    return run("mtype", "-i", f"{image}@@{offset}", f"::{name}")


def mtools_tree(image: Path, target: Path, offset: int = OFFSET) -> dict[str, bytes]:
    target.mkdir()
    run("mcopy", "-s", "-n", "-i", f"{image}@@{offset}", "::*", target)
    return {
        path.relative_to(target).as_posix(): path.read_bytes()
        for path in sorted(target.rglob("*"))
        if path.is_file()
    }


def fsck(
    image: Path, offset: int = OFFSET, size_bytes: int | None = None
) -> subprocess.CompletedProcess[str]:
    part = image.with_suffix(".part") if offset else image
    if offset:
        with image.open("rb") as source, part.open("wb") as target:
            source.seek(offset)
            target.write(source.read(size_bytes if size_bytes is not None else -1))
    return subprocess.run(
        [requirements.program("fsck.fat"), "-nv", str(part)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def card(
    folder: Path, target: Path, *further_options: str | Path
) -> subprocess.CompletedProcess[str]:
    """Return how `edgemeter fleet card TARGET` ended, with the files of a fleet's folder.

    These are its release and its join file; of repeated options the last one counts.
    """
    options = ["--release", folder / "release-0.0.1.tar", "--join", folder / "pi5-01.join.toml"]
    return edgemeter("fleet", "--folder", folder, "card", target, *options, *further_options)


def prepare(folder: Path, target: Path, *further_options: str | Path) -> dict:
    process = card(folder, target, *further_options, "--format", "json")
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def token(join_file: str) -> str:
    return join_file.partition('token = "')[2].partition('"')[0]


def as_bookworm_does(boot: Path):
    """Rewrite the paths and the end of the script, as the initramfs of Bookworm does.

    It does so where the kernel's line names /boot/firstrun.sh.
    """
    line, script = boot / "cmdline.txt", boot / "firstrun.sh"
    line.write_text(line.read_text().replace("/boot/", "/boot/firmware/"))
    lines = []
    for text in script.read_text().splitlines():
        if "rm" in text and text.endswith("firstrun.sh"):
            break
        lines.append(text)
    script.write_text(
        "\n".join(
            [
                *lines,
                "rm -f /boot/firmware/firstrun.sh",
                "sed -i 's| systemd.[^ ]*||g' /boot/firmware/cmdline.txt",
                "exit 0",
                "",
            ]
        )
    )
