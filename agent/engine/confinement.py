"""The grant of a run in its sandbox: the files of its model and data, its accelerator, and the network for its server."""

import mmap
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from edgemeter.agent.base import python_target
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
    "metadata.yaml", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt", "merges.txt",
    "generation_config.json",
)  # fmt: skip
# A location in ONNX's TensorProto.external_data: the key `location`, then the value with its length, below 128.
_LOCATION = re.compile(rb"\n\x08location\x12([\x01-\x7f])")
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
# Labels and lists of classes, which some readers look for up to two folders above the photographs.
_DATA_COMPANIONS = ("classes.txt", "data.yaml", "data.yml", "labels", "labels.txt")
# Each link that is bound alone adds 0.3 ms to the start.
_MOST_LINKS = 200
# NAME_MAX and PATH_MAX of Linux, less room for suffixes such as `.toml`.
_LONGEST_NAME, _LONGEST_PATH = 240, 4000
# The runtimes that compute on the CPU unless a backend is named.
_ON_CPU = {"litert", "onnx", "openvino", "ncnn", "executorch", "pytorch", "replay"}

_KERNELS = {"builtin", "reference", "cpu-compiled"}


def grant_for(case: Case) -> SandboxGrant:
    """Return the grant of a run of this case; each run can also read the system and write its scratch folder.

    Raises:
        ConfigError: a server's file cannot be read, or there is no file of a plug-in.
    """
    model = Path(case.model)
    # For a name that is too long, the system reports an error.
    values = [value for value in case.options.values() if _may_be_path(os.fsencode(value))]
    read = [*model_files(model), *(Path(value) for value in values if Path(value).is_file())]
    if case.runtime == PYTHON:
        read += [Path(value) for value in values if Path(value).is_dir() and is_narrow(Path(value).resolve())]
    for target in case.plugin_files:
        read += _of_target(target)
    if case.data is not None:
        read += data_files(Path(case.data), Path(case.annotations) if case.annotations else None)
    if case.questions is not None:
        read.append(questions_path(case.questions))
    if case.runtime in ("server", "served"):
        return _server_grant(model, tuple(read))
    return replace(model_grant(model, case.runtime), read=tuple(read), accelerator=not is_on_cpu(case))


def _may_be_path(value: bytes) -> bool:
    return len(value) < _LONGEST_PATH and max(map(len, value.split(b"/"))) < _LONGEST_NAME


def is_on_cpu(case: Case) -> bool:
    """Return whether a run needs no device node: it uses the library's kernels, without a delegate or provider from a file."""
    has_cpu = case.backend in {None, "cpu", "xnnpack"} or (case.runtime == "litert" and case.backend in _KERNELS)
    is_plain = has_cpu and not any(".so" in value for value in case.options.values())
    return is_plain and case.runtime in _ON_CPU


def model_grant(model: Path, runtime: str) -> SandboxGrant:
    """Return the grant for loading a model: its files, and the bus of a Coral.

    A Coral gets another id when its firmware is loaded. Its library hears of that from the kernel, over the host's network only.
    """
    is_coral = runtime == "edgetpu"
    is_unused = is_coral and any(UNUSED_CORAL in text for text in edge_tpus(Machine()))
    return SandboxGrant(read=tuple(model_files(model)), usb=is_coral, network=is_unused)


def model_files(model: Path) -> Iterator[Path]:
    """Yield the model's file and its companions in the folder; for code, the folders from which it may import."""
    if target := python_target.parse(str(model)):
        yield from (*_of_target(target), *existing([card_path(model)]))
        return
    yield model
    stem = _SHARD.sub("", model.stem)
    try:
        companions = sorted(path for path in model.parent.iterdir() if path.name.startswith(stem) and path.is_file())
    except OSError:
        companions = []
    yield from (*companions, *existing((card_path(model), *(model.with_name(name) for name in _COMPANIONS))))
    yield from _external_data(model)


def _of_target(target: PythonTarget) -> Iterator[Path]:
    """Yield the folders that code may read: its package, or the folder on Python's path, unless that is as wide as a home."""
    top, file = target.top, target.source.resolve()
    is_beside = target.file is not None or (top.parent == Path.cwd() and str(top.parent) not in sys.path)
    folders = (top.parent, top) if is_beside or top.is_file() else (top,)
    yield next((folder for folder in folders if folder.is_dir() and is_narrow(folder.resolve())), target.source)
    if file.parent != target.source.parent.resolve():
        # The source is a link: code finds its modules next to the target.
        yield file.parent if is_narrow(file.parent) else file


def _external_data(model: Path) -> Iterator[Path]:
    """Yield the files with weights of an ONNX file that lie in its folder."""
    if model.suffix.lower() != ".onnx":
        return
    try:
        with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            names = {content[match.end() : match.end() + match[1][0]] for match in _LOCATION.finditer(content)}
    except (OSError, ValueError):
        return
    for name in sorted(names):
        location = Path(name.decode("utf-8", "replace"))
        if not location.is_absolute() and ".." not in location.parts and (model.parent / location).is_file():
            yield model.parent / location


def data_files(images: Path, annotations: Path | None) -> Iterator[Path]:
    """Yield the files and folders of a data set and its ground truth."""
    folder = images.absolute()
    yield images
    # A selection is often a folder of links: they are bound one by one, or many of them by the folders of their targets.
    with suppress(OSError), os.scandir(images) as entries:
        links = [Path(entry.path) for entry in entries if entry.is_symlink() and entry.is_file()]
        targets = {(link.parent.absolute() / link.readlink()).parent for link in links}
        yield from targets if len(links) > _MOST_LINKS and all(is_narrow(target.resolve()) for target in targets) else links
    if annotations is not None:
        yield annotations
    parts = list(folder.parts)
    if "images" in parts:
        last = len(parts) - 1 - parts[::-1].index("images")
        yield Path(*parts[:last], "labels", *parts[last + 1 :])
    for above in (folder, *(Path(annotations).absolute().parents if annotations else ())[:3], *folder.parents[:2]):
        yield from existing(above / name for name in _DATA_COMPANIONS)


def _server_grant(model: Path, read: tuple[Path, ...]) -> SandboxGrant:
    """Return the grant for a client of a server: its key, its certificates, and the network."""
    file = read_toml(model, ServerAddress, "server's file")
    secrets = [Path(name).expanduser().absolute() for name in (file.api_key_file, file.ca_file) if name]
    return SandboxGrant(read=(*read, *secrets), network=True, accelerator=False)
