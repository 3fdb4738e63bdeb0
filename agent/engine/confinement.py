"""The grant of a run in its sandbox: the files of its model and its data, its accelerator, the address of its server."""

import mmap
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from edgemeter.agent.base import python_target
from edgemeter.agent.base.python_target import PythonTarget
from edgemeter.agent.base.server_address import ServerAddress
from edgemeter.agent.base.toml import read_toml
from edgemeter.agent.contract.model_card import card_path
from edgemeter.agent.contract.model_formats import PYTHON
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine.prompts.question_file import path_of
from edgemeter.agent.machine.attached import UNUSED_CORAL, edge_tpus
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.sandbox.bubblewrap import SandboxGrant, existing, is_narrow

# What formats keep beside their file, by names of their own.
_BESIDE = (
    "metadata.yaml", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt", "merges.txt",
    "generation_config.json",
)  # fmt: skip
# A location in ONNX's TensorProto.external_data: the key `location`, then the value with its length, below 128.
_LOCATION = re.compile(rb"\n\x08location\x12([\x01-\x7f])")
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
# Labels and lists of classes, which some readers look for up to two folders above the photographs.
_OF_DATA = ("classes.txt", "data.yaml", "data.yml", "labels", "labels.txt")
# Each that is shown alone costs 0.3 ms of the start.
_MOST_LINKS = 200
# NAME_MAX and PATH_MAX of Linux, less what names beside a file have more, as `.toml`.
_LONGEST_NAME, _LONGEST_PATH = 240, 4000
# The runtimes that compute on the CPU unless a backend is named.
_ON_CPU = {"litert", "onnx", "openvino", "ncnn", "executorch", "pytorch", "replay"}

_KERNELS = {"builtin", "reference", "cpu-compiled"}


def grant_for(case: Case) -> SandboxGrant:
    """Return what a run of this case may reach beside the system and its scratch folder.

    Raises:
        ConfigError: a server's file cannot be read, or there is no file of a plug-in.
    """
    model = Path(case.model)
    # Of what is too long for a path the system reports an error, not that it is absent.
    values = [value for value in case.options.values() if _may_be_path(os.fsencode(value))]
    read = [*model_files(model), *(Path(value) for value in values if Path(value).is_file())]
    if case.runtime == PYTHON:
        read += [Path(value) for value in values if Path(value).is_dir() and is_narrow(Path(value).resolve())]
    for target in case.plugin_files:
        read += _of_target(target)
    if case.data is not None:
        read += data_files(Path(case.data), Path(case.annotations) if case.annotations else None)
    if case.questions is not None:
        read.append(path_of(case.questions))
    if case.runtime in ("server", "served"):
        return _server_grant(model, tuple(read))
    return replace(model_grant(model, case.runtime), read=tuple(read), accelerator=not is_on_cpu(case))


def _may_be_path(value: bytes) -> bool:
    return len(value) < _LONGEST_PATH and max(map(len, value.split(b"/"))) < _LONGEST_NAME


def is_on_cpu(case: Case) -> bool:
    """Return whether a run needs no device node: the library's own kernels, without a delegate or provider from a file."""
    has_cpu = case.backend in {None, "cpu", "xnnpack"} or (case.runtime == "litert" and case.backend in _KERNELS)
    is_plain = has_cpu and not any(".so" in value for value in case.options.values())
    return is_plain and case.runtime in _ON_CPU


def model_grant(model: Path, runtime: str) -> SandboxGrant:
    """Return what the runtime may reach to load a model: its files, and the bus of a Coral.

    A Coral gets another id when its firmware is loaded, which its library learns from the kernel over the host's network only.
    """
    is_coral = runtime == "edgetpu"
    is_unused = is_coral and any(UNUSED_CORAL in text for text in edge_tpus(Machine()))
    return SandboxGrant(read=tuple(model_files(model)), usb=is_coral, network=is_unused)


def model_files(model: Path) -> Iterator[Path]:
    """Yield the model's file and what belongs to it in its folder; of code what it may import."""
    if target := python_target.parse(str(model)):
        yield from (*_of_target(target), *existing([card_path(model)]))
        return
    yield model
    stem = _SHARD.sub("", model.stem)
    try:
        companions = sorted(path for path in model.parent.iterdir() if path.name.startswith(stem) and path.is_file())
    except OSError:
        companions = []
    yield from (*companions, *existing((card_path(model), *(model.with_name(name) for name in _BESIDE))))
    yield from _external_data(model)


def _of_target(target: PythonTarget) -> Iterator[Path]:
    """Yield what code may read beside its file: its package, or the folder in which Python looks for it; of a home only its package."""
    top, file = target.top, target.source.resolve()
    is_beside = target.file is not None or (top.parent == Path.cwd() and str(top.parent) not in sys.path)
    folders = (top.parent, top) if is_beside or top.is_file() else (top,)
    yield next((folder for folder in folders if folder.is_dir() and is_narrow(folder.resolve())), target.source)
    if file.parent != target.source.parent.resolve():
        # A link: code finds its modules beside the file itself.
        yield file.parent if is_narrow(file.parent) else file


def _external_data(model: Path) -> Iterator[Path]:
    """Yield the files that an ONNX file keeps weights in: those in its own folder, never one that lies above it or elsewhere."""
    if model.suffix.lower() != ".onnx":
        return
    try:
        with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            names = {content[match.end() : match.end() + match[1][0]] for match in _LOCATION.finditer(content)}
    except (OSError, ValueError):
        return
    for name in sorted(names):
        location = name.decode("utf-8", "replace")
        if _is_within(location) and (model.parent / location).is_file():
            yield model.parent / location


def _is_within(location: str) -> bool:
    """Return whether a path that a model names lies in the model's folder, by its words."""
    return not Path(location).is_absolute() and ".." not in Path(location).parts


def data_files(images: Path, annotations: Path | None) -> Iterator[Path]:
    """Yield where the items of a data set and its ground truth lie."""
    folder = images.absolute()
    yield images
    # A selection is often a folder of links; of many, the folders that they point into are shown.
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
        yield from existing(above / name for name in _OF_DATA)


def _server_grant(model: Path, read: tuple[Path, ...]) -> SandboxGrant:
    """Return what a client of a server needs: its key, names and certificates, and the network."""
    file = read_toml(model, ServerAddress, "server's file")
    secrets = [Path(name).expanduser().absolute() for name in (file.api_key_file, file.ca_file) if name]
    return SandboxGrant(read=(*read, *secrets), network=True, accelerator=False)
