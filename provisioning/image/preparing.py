"""Prepares a boot partition: the payload, then the files of its first-boot format.

The payload is the same for every system; the files of the format start it.
"""

import filecmp
import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError, UnavailableError, os_error_as
from edgemeter.agent.contract.identity import read_join_file
from edgemeter.provisioning.apply import on_device
from edgemeter.provisioning.image import cloudinit, detect, firstrun
from edgemeter.provisioning.image.adapter_text import PAYLOAD, BootFormat
from edgemeter.provisioning.image.boot_partition import BootPartition, files_below
from edgemeter.provisioning.image.wifi import Wifi
from edgemeter.provisioning.release import install, release_file

HERE = Path(__file__).parent
PROGRAMS = (
    HERE / "firstboot.sh",
    HERE / "edgemeter-firstboot.service",
    Path(on_device.__file__),
    Path(install.__file__),
)
NOT_YET = """Edgemeter, first boot
state:   prepared
step:    none yet: the board has not started from this card, or its system did not call our script
"""
# For partial clusters, the folders, and the status file.
SPARE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class PreparedCard:
    """A written card.

    `first_boot_files` are those of the first-boot format, which was chosen because of `why`.
    """

    first_boot: BootFormat
    why: str
    release: str
    board: str
    warnings: list[str]
    first_boot_files: list[str]
    files: int
    size_bytes: int


def prepare_card(
    boot: BootPartition,
    tar: Path,
    public_key: Path,
    join: Path,
    wifi: Wifi | None,
    requested_form: BootFormat | None,
) -> PreparedCard:
    """Write the card with the release `tar` and the join file, and read every byte back.

    Raises:
        ConfigError: the release, the join file or the card is invalid, or its format is unknown.
        UnavailableError: there is not enough room, or a file reads back differently.
    """
    form, why = (
        (requested_form, "--first-boot requests it")
        if requested_form
        else detect.choose_format(boot)
    )
    release = release_file.read_release(tar, public_key)
    if not read_join_file(join).token:
        raise ConfigError(
            f"the join file {str(join)!r} has no token, or it has been used: make a new one "
            "(`edgemeter fleet token DEVICE`)"
        )
    if form == "firstrun":
        adapter = firstrun.adapter_files(boot, wifi)
    else:
        # With another token, release or network it is another instance.
        contents = (
            join.read_bytes()
            + release.document
            + repr((wifi, wifi.psk_hex) if wifi else None).encode()
        )
        adapter = cloudinit.adapter_files(
            boot, wifi, f"edgemeter-{hashlib.sha256(contents).hexdigest()[:16]}"
        )
    warnings = detect.misfits(boot, form, release.manifest.arch, release.manifest.python)
    with tempfile.TemporaryDirectory(prefix="edgemeter-card-") as scratch:
        staged = Path(scratch) / "staged"
        payload = staged / PAYLOAD
        payload.mkdir(parents=True)
        for program in PROGRAMS:
            shutil.copyfile(program, payload / program.name)
        for source, name in (
            (tar, "release.tar"),
            (join, "join.toml"),
            (public_key, "release.pub"),
        ):
            shutil.copyfile(source, payload / name)
        (payload / "status.txt").write_text(NOT_YET)
        for name, text in adapter.items():
            (staged / name).write_bytes(text.encode())
        size_bytes = sum(file.stat().st_size for file in files_below(staged))
        _write(boot, staged, [PAYLOAD, *(name for name in adapter if "/" not in name)], size_bytes)
        _verify(boot, staged, Path(scratch) / "read")
        return PreparedCard(
            form,
            why,
            release.manifest.version,
            release.manifest.board,
            warnings,
            list(adapter),
            len(list(files_below(staged))),
            size_bytes,
        )


def _write(boot: BootPartition, staged: Path, names: list[str], size_bytes: int) -> None:
    """Write the payload first and the files that start it last."""
    with os_error_as(
        UnavailableError,
        f"cannot write to the boot partition {str(boot.path)!r}",
        "mount it writable for this user",
    ):
        boot.remove_folder(PAYLOAD)
        missing = size_bytes + SPARE_BYTES - boot.free_bytes()
        if missing > 0:
            raise UnavailableError(
                f"the boot partition {str(boot.path)!r} is too full: {missing / 1e6:,.1f} MB "
                "more are needed; "
                "take a smaller release, or delete files there"
            )
        for name in names:
            boot.write(staged, name)


def _verify(boot: BootPartition, staged: Path, scratch: Path) -> None:
    """Compare every byte after reading it back, as some cards lose acknowledged writes.

    Raises:
        UnavailableError: a byte differs.
    """
    scratch.mkdir()
    read = boot.read_back([path.name for path in staged.iterdir()], scratch)
    for file in files_below(staged):
        name = file.relative_to(staged)
        if not (read / name).is_file() or not filecmp.cmp(file, read / name, shallow=False):
            raise UnavailableError(
                f"{str(name)!r} on {str(boot.path)!r} reads back differently: the card or its "
                "reader is faulty"
            )
