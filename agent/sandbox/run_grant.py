"""The grant of a run in its sandbox.

It grants the files of its model and data, its accelerator, and the network for its server.
"""

import mmap
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from edgemeter.agent.base import python_target
from edgemeter.agent.base.links import check_target, is_of_known_type, leads_out, links_out_of
from edgemeter.agent.base.model_names import questions_path
from edgemeter.agent.base.python_target import PythonTarget
from edgemeter.agent.base.server_address import ServerAddress
from edgemeter.agent.base.toml import read_toml
from edgemeter.agent.contract.model_card import card_path
from edgemeter.agent.contract.model_formats import PYTHON
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.machine.attached import UNUSED_CORAL, edge_tpus
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.sandbox.bubblewrap import SandboxGrant, existing, is_narrow

# Files with fixed names that formats keep next to the model.
_COMPANIONS = (
    "metadata.yaml", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json",
    "vocab.txt", "merges.txt", "generation_config.json",
)  # fmt: skip
# A location in ONNX's TensorProto.external_data: the key `location`, then the value with its
# length, below 128.
_LOCATION = re.compile(rb"\n\x08location\x12([\x01-\x7f])")
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
# Labels and lists of classes, which some readers look for up to two folders above the photographs.
_DATA_COMPANIONS = ("classes.txt", "data.yaml", "data.yml", "labels", "labels.txt")
# NAME_MAX and PATH_MAX of Linux, less room for suffixes such as `.toml`.
_LONGEST_NAME, _LONGEST_PATH = 240, 4000
# The runtimes that compute on the CPU unless a backend is named.
_ON_CPU = {"litert", "onnx", "openvino", "ncnn", "executorch", "pytorch", "replay"}

_KERNELS = {"builtin", "reference", "cpu-compiled"}


def grant_for(case: Case) -> SandboxGrant:
    """Return the grant of a run of this case.

    Each run can also read the system and write its scratch folder.

    Raises:
        ConfigError: a server's file cannot be read, there is no file of a plug-in, or a link is not
            to be followed (`links`).
    """
    model = Path(case.model)
    # For a name that is too long, the system reports an error.
    values = [value for value in case.options.values() if _may_be_path(os.fsencode(value))]
    read = [*model_files(model), *(Path(value) for value in values if Path(value).is_file())]
    if case.runtime == PYTHON:
        read += [
            Path(value)
            for value in values
            if Path(value).is_dir() and is_narrow(Path(value).resolve())
        ]
    for target in case.plugin_files:
        read += _of_target(target)
    if case.data is not None:
        read += data_files(Path(case.data), Path(case.annotations) if case.annotations else None)
    if case.questions is not None:
        read.append(questions_path(case.questions))
    named = {
        model,
        *(Path(name) for name in (case.data, case.annotations, *case.options.values()) if name),
    }
    unnamed = (path for path in dict.fromkeys(read) if path not in named)
    links = tuple(path for path in unnamed if path.is_symlink() and leads_out(path, path.parent))
    if case.runtime in ("server", "served"):
        return replace(_server_grant(model, tuple(read)), links=links)
    # A Coral gets another id when its firmware is loaded. Its library hears of that from the
    # kernel, over the host's network only.
    is_coral = case.runtime == "edgetpu"
    return SandboxGrant(
        read=tuple(read),
        links=links,
        network=is_coral and any(UNUSED_CORAL in text for text in edge_tpus(Machine())),
        accelerator=not is_on_cpu(case),
        usb=is_coral,
    )


def _may_be_path(value: bytes) -> bool:
    return len(value) < _LONGEST_PATH and max(map(len, value.split(b"/"))) < _LONGEST_NAME


def is_on_cpu(case: Case) -> bool:
    """Return whether a run needs no device node.

    It uses the library's kernels, without a delegate or provider from a file.
    """
    has_cpu = case.backend in {None, "cpu", "xnnpack"} or (
        case.runtime == "litert" and case.backend in _KERNELS
    )
    is_plain = has_cpu and not any(".so" in value for value in case.options.values())
    return is_plain and case.runtime in _ON_CPU


def model_files(model: Path) -> Iterator[Path]:
    """Yield the model's file and its companions in the folder.

    For code, yield the folders from which it may import.

    Raises:
        ConfigError: a companion is a link to a file of another type than its name says.
    """
    if target := python_target.parse(str(model)):
        yield from (*_of_target(target), *_followed(existing([card_path(model)])))
        return
    yield model
    stem = _SHARD.sub("", model.stem)
    try:
        companions = sorted(
            path for path in model.parent.iterdir() if path.name.startswith(stem) and path.is_file()
        )
    except OSError:
        companions = []
    companions += existing((card_path(model), *(model.with_name(name) for name in _COMPANIONS)))
    yield from _followed(path for path in companions if path != model)
    yield from _external_data(model)


def _followed(files: Iterable[Path]) -> Iterator[Path]:
    """Yield files beside a model, without links to what no format reads.

    Links within the folder count too, because the run sees single files of it, and it may be a
    home. Raises ConfigError as `check_target`.
    """
    for file in files:
        if not file.is_symlink():
            yield file
        elif is_of_known_type(file):
            check_target(file)
            yield file


def _of_target(target: PythonTarget) -> Iterator[Path]:
    """Yield the folders that code may read.

    They are its package, or the folder on Python's path, unless that is as wide as a home.
    """
    top, file = target.top, target.source.resolve()
    is_beside = target.file is not None or (
        top.parent == Path.cwd() and str(top.parent) not in sys.path
    )
    folders = (top.parent, top) if is_beside or top.is_file() else (top,)
    yield next(
        (folder for folder in folders if folder.is_dir() and is_narrow(folder.resolve())),
        target.source,
    )
    if file.parent != target.source.parent.resolve():
        # The source is a link: code finds its modules next to the target.
        yield file.parent if is_narrow(file.parent) else file


def _external_data(model: Path) -> Iterator[Path]:
    """Yield the files with weights of an ONNX file that lie in its folder.

    Raises ConfigError as `check_target`.
    """
    if model.suffix.lower() != ".onnx":
        return
    try:
        with (
            model.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            names = {
                content[match.end() : match.end() + match[1][0]]
                for match in _LOCATION.finditer(content)
            }
    except (OSError, ValueError):
        return
    for name in sorted(names):
        location = Path(name.decode("utf-8", "replace"))
        weights = model.parent / location
        if not location.is_absolute() and ".." not in location.parts and weights.is_file():
            if weights.resolve() != model.parent.resolve() / location:
                check_target(weights)
            yield weights


def data_files(images: Path, annotations: Path | None) -> Iterator[Path]:
    """Yield the files and folders of a data set and its ground truth, one by one.

    The targets of links below them are among them.

    Raises:
        ConfigError: a link is not to be followed.
    """
    folder = images.absolute()
    parts = list(folder.parts)
    folders = [images, *([] if annotations is None else [annotations])]
    if "images" in parts:
        last = len(parts) - 1 - parts[::-1].index("images")
        labels = Path(*parts[:last], "labels", *parts[last + 1 :])
        folders += [] if leads_out(labels, Path(*parts[:last])) else existing([labels])
    for above in (
        folder,
        *(Path(annotations).absolute().parents if annotations else ())[:3],
        *folder.parents[:2],
    ):
        # Nobody named these: a link out of the folder is not followed.
        folders += [
            path
            for path in existing(above / name for name in _DATA_COMPANIONS)
            if not leads_out(path, above)
        ]
    for path in folders:
        yield path
        yield from links_out_of(path)


def _server_grant(model: Path, read: tuple[Path, ...]) -> SandboxGrant:
    """Return the grant for a client of a server: its key, its certificates, and the network."""
    file = read_toml(model, ServerAddress, "server's file")
    secrets = [
        Path(name).expanduser().absolute() for name in (file.api_key_file, file.ca_file) if name
    ]
    return SandboxGrant(read=(*read, *secrets), network=True, accelerator=False)
