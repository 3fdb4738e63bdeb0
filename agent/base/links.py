"""Symbolic links that lead out of a folder which the user named.

Each is followed alone, to a file of the type of its name, or refused.

Data sets and models are often folders of links: selections, git-annex, the cache of Hugging Face.
They are other people's work too, and such a link may lead to a key. Images, arrays and sound must
begin as theirs do. Text and weights have no beginning of their own: their target must end as the
link does, or lie in a store that names files by their hash, and be text, or not be text.
"""

import codecs
import os
import re
import stat
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError

_IMAGE = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM", b"RIFF", b"GIF8", b"II*\0", b"MM\0*")
_BEGINNINGS = {
    **dict.fromkeys((".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff"), _IMAGE),
    ".npy": (b"\x93NUMPY",), ".npz": (b"PK\x03\x04", b"PK\x05\x06"), ".wav": (b"RIFF",),
    ".flac": (b"fLaC",),
}  # fmt: skip
_TEXT = {
    ".txt",
    ".csv",
    ".tsv",
    ".json",
    ".jsonl",
    ".yaml",
    ".yml",
    ".toml",
    ".xml",
    ".param",
    ".names",
}
_DATA = {*_BEGINNINGS, *_TEXT, ".bin"}
_WEIGHTS = {
    ".bin", ".data", ".onnx_data", ".pb", ".weight", ".weights", ".safetensors", ".model", ".onnx",
    ".ort", ".tflite", ".pt", ".pth", ".torchscript", ".pt2", ".pte", ".ptd", ".engine", ".plan",
    ".gguf", ".hef",
}  # fmt: skip
# The end of a name in a store of Hugging Face, DVC or git-annex.
_HASH = re.compile(r"[0-9a-f]{30,}$")
_HEAD_BYTES = 4096


def leads_out(path: Path, folder: Path) -> bool:
    """Return whether a path in a folder leads out of it, by a link.

    It does so too if its target is absent.
    """
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def is_of_known_type(path: Path) -> bool:
    """Return whether the name of a file beside a model tells what it holds."""
    return path.suffix.lower() in {*_TEXT, *_WEIGHTS}


def check_target(link: Path) -> None:
    """Check that the target of a link is a regular file of the type of the link's name.

    Raises:
        ConfigError: it is not.
    """
    target, fault = Path(os.path.realpath(link)), None
    try:
        mode = target.stat().st_mode
        if stat.S_ISDIR(mode):
            fault = "which is a folder"
        elif not stat.S_ISREG(mode):
            fault = "which is no regular file"
        elif not _fits(link.suffix.lower(), target):
            fault = f"which is not known to be a {link.suffix or 'data'} file"
    except OSError as error:
        fault = f"which cannot be read ({error.strerror})"
    if fault:
        raise ConfigError(
            f"the link {str(link)!r} leads to {str(target)!r}, {fault}: put a copy in its place, "
            "or remove the link"
        )


def _fits(suffix: str, target: Path) -> bool:
    with target.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if suffix in _BEGINNINGS:
        return head.startswith(_BEGINNINGS[suffix]) and not _is_text(head)
    is_alike = suffix in {*_TEXT, *_WEIGHTS} and target.suffix.lower() == suffix
    return (is_alike or _HASH.search(target.name) is not None) and _is_text(head) == (
        suffix in _TEXT
    )


def _is_text(head: bytes) -> bool:
    try:
        # Incremental, as the last letter may be cut.
        return "\0" not in codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False


def links_out_of(folder: Path) -> list[Path]:
    """Return the links below a folder that are followed out of it, sorted; none if it is a file.

    Links to files that no reader of data knows by their name are left out, as are those without a
    target.

    Raises:
        ConfigError: one leads to a folder or device, or to a file of another type than its name
            says.
    """
    links, folders = [], [str(folder)] if folder.is_dir() else []
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        links.append(Path(entry.path))
                    elif entry.is_dir():
                        folders.append(entry.path)
        except OSError:
            # Not for this user: a file in it that is named is reported when it is opened.
            continue
    outward = [
        link
        for link in sorted(links)
        # `os.path.exists` is False also for a loop.
        if os.path.exists(link) and leads_out(link, folder)  # noqa: PTH110
    ]
    followed = [link for link in outward if link.suffix.lower() in _DATA or not link.is_file()]
    for link in followed:
        check_target(link)
    return followed
