r"""Looks into a PyTorch file before PyTorch does, and refuses what would run code of its own while it is loaded.

A plain `torch.save` file is a pickle. A TorchScript archive is a program, judged by the operators that it calls (`torch_script.py`).
An exported program (.pt2) is data, but `torch.export.load` unpickles parts of it with `weights_only=False`, evaluates its size
expressions with sympy and resolves operator names with `getattr` from `torch` on, where `torch.os.system` lies. So only members, names,
operators and expressions of the known forms pass. Source: torch/export/pt2_archive/_package.py, torch/_export/serde/serialize.py (2.13).
"""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import torch_script, zip_texts

_EXPORT = "export the model with torch.export.save (.pt2), or with torch.jit.trace(...).save"
_TORCHVISION = re.compile(rb"\bops\.torchvision\.\w")
_SCRIPT = re.compile(r"code/.*\.py")
_SCRIPT_PICKLES = re.compile(r"[^/]+\.pkl")
_PROGRAM = re.compile(r"models/\w+\.json|serialized_exported_program\.json")
_PICKLES = re.compile(r"data/sample_inputs/\w+\.pt|serialized_(?:state_dict|constants|example_inputs)\.pt")
_CONFIGS = re.compile(r"data/(?:weights|constants)/\w+_config\.json")
_PLAIN = re.compile(
    r"data/weights/weight_\d+|data/constants/tensor_\d+|extra/.+|extra_files/.+|"
    r"archive_format|archive_version|byteorder|version|\.data/\w+|\.format_version|\.storage_alignment"
)

_OPERATORS = "add|sub|mul|truediv|floordiv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge|and_|or_|not_|xor|lshift|rshift|getitem"
_OPERATOR = re.compile(r"torch\.ops\.(\w+\.\w+)(?:\.(?!__)\w+)?")
_ARITHMETIC = re.compile(rf"_operator\.(?:{_OPERATORS})|torch\._?sym_\w+|math\.[a-z]\w*")
# Like Integer(2), Symbol('s77', positive=True), s0 + 3*s1: capitalised functions, symbols and numbers; no attribute, no other call.
_EXPRESSION = re.compile(
    r"(?:[A-Z][A-Za-z0-9]*\(|'(?:[a-z]+\d+|[-+.e\d]+)'|\b(?:positive|integer|nonnegative|real|finite|evaluate|precision)=|True|False|"
    r"\b[a-z]{1,6}\d+\b|\boo\b|\b\d+(?:\.\d+)?(?:e[-+]?\d+)?\b|(?<![\w)'])\(|[-+*/%<>=!), ])*"
)
_WORD = re.compile(r"[\w.:+\-]*")
_CONTAINERS = ("builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")
_CONTEXT = re.compile(r'null|\[(?:"\w*"(?:, )?)*\]')
_BROKEN = (*model_file.BROKEN_ZIP, KeyError, TypeError, IndexError, RecursionError)
# Not evaluated by what we call: guards (the module is made without them), and what only explains where a node came from.
_INERT = ("guards_code", "metadata", "as_string", "as_strings")


@dataclass(frozen=True, slots=True)
class TorchArchive:
    """The content of an archive: its kind, text files by name, members that hold pickled tensors, and whether it calls torchvision."""

    kind: Literal["torchscript", "exported"]
    texts: Mapping[str, str]
    pickles: tuple[str, ...]
    calls_torchvision: bool = False


def read(model: Path) -> TorchArchive:
    """Return what the archive is; raises ConfigError if it is a pickle, holds what is not run here, or is not a PyTorch file."""
    start = model_file.head(model)
    if start[:1] == b"\x80":
        raise ConfigError(_pickle(model))
    if not start.startswith(b"PK\x03\x04"):
        # Also what only ends as a zip: PyTorch may go by the beginning.
        raise ConfigError(f"{str(model)!r} is not a PyTorch model: {_EXPORT}")
    try:
        with zipfile.ZipFile(model) as archive:
            members = _members(model, archive)
            if any(_PROGRAM.fullmatch(name) for name in members):
                return _exported(model, archive, members)
            if "constants.pkl" in members and any(_SCRIPT.fullmatch(name) for name in members):
                return _torchscript(model, archive, members)
    except _BROKEN as error:
        raise ConfigError(f"{str(model)!r} is not a PyTorch model, or a truncated one ({error}): {_EXPORT}") from error
    if "data.pkl" in members:
        raise ConfigError(_pickle(model))
    raise ConfigError(f"{str(model)!r} is a zip, but neither TorchScript nor an exported program: {_EXPORT}")


def _pickle(model: Path) -> str:
    return f"{str(model)!r} is a pickle, which can run any code when it is loaded, and is not opened: {_EXPORT}"


def _members(model: Path, archive: zipfile.ZipFile) -> dict[str, str]:
    """Return full member names by their name below the archive's own folder."""
    names = [info.filename for info in archive.infolist()]
    members = {name.partition("/")[2] or name: name for name in names}
    if "version" in names:
        members = {name: name for name in names}
    if len(members) != len(names) or any(info.compress_type not in zip_texts.COMPRESSIONS for info in archive.infolist()):
        raise ConfigError(f"{str(model)!r} holds two members of one name, or one packed in a rare way, and is not opened: {_EXPORT}")
    return members


def _torchscript(model: Path, archive: zipfile.ZipFile, members: Mapping[str, str]) -> TorchArchive:
    scripts = [archive.read(member) for name, member in members.items() if _SCRIPT.fullmatch(name)]
    pickles = (archive.read(member) for name, member in members.items() if _SCRIPT_PICKLES.fullmatch(name))
    if use := torch_script.refused(scripts) or next(filter(None, map(torch_script.refused_class, pickles)), None):
        raise ConfigError(f"{str(model)!r} uses {use[:80]} and is not run: a model only computes; {_EXPORT}")
    calls_torchvision = any(_TORCHVISION.search(script) for script in scripts)
    return TorchArchive("torchscript", zip_texts.texts(model, below="extra"), (), calls_torchvision)


def _exported(model: Path, archive: zipfile.ZipFile, members: Mapping[str, str]) -> TorchArchive:
    calls_torchvision = False
    for name, member in members.items():
        if _PROGRAM.fullmatch(name):
            program = archive.read(member)
            for key, text in _strings(json.loads(program), ""):
                if not _is_plain(key, text):
                    raise ConfigError(f"{str(model)!r} has {text[:80]!r} as {key}, which is not run here: {_EXPORT}")
            calls_torchvision |= _TORCHVISION.search(program) is not None
        elif _CONFIGS.fullmatch(name):
            _check_payload(model, json.loads(archive.read(member)))
        elif not (_PICKLES.fullmatch(name) or _PLAIN.fullmatch(name)):
            raise ConfigError(f"{str(model)!r} holds {name!r}, which is not part of a plain exported program, and is not opened: {_EXPORT}")
    texts = {**zip_texts.texts(model, below="extra"), **zip_texts.texts(model, below="extra_files")}
    pickles = tuple(member for name, member in members.items() if _PICKLES.fullmatch(name))
    return TorchArchive("exported", texts, pickles, calls_torchvision)


def _check_payload(model: Path, document: Any) -> None:
    """Refuse weights and constants that would be unpickled; the others are plain bytes with a shape."""
    for name, entry in document["config"].items():
        if entry["use_pickle"] or not re.fullmatch(r"(?:weight|tensor)_\d+", entry["path_name"]):
            raise ConfigError(f"{str(model)!r} holds {name!r} as a pickle and is not opened: {_EXPORT} with plain tensors only")


def _strings(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, key)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield "key", name
            if name not in _INERT:
                yield from _strings(item, name)


def _is_plain(key: str, text: str) -> bool:
    """Return whether a text has one of the forms that torch.export writes under this key."""
    if key in {"target", "as_operator"}:
        operator = _OPERATOR.fullmatch(text)
        return torch_script.is_operator(operator[1]) if operator else _ARITHMETIC.fullmatch(text) is not None
    if key in {"expr_str", "key"} and _EXPRESSION.fullmatch(text) is not None:
        return True
    if key in {"in_spec", "out_spec"}:
        return _is_plain_container(json.loads(text)[1])
    return key != "expr_str" and _WORD.fullmatch(text) is not None


def _is_plain_container(spec: Mapping[str, Any]) -> bool:
    is_known = spec["type"] is None or (spec["type"] in _CONTAINERS and _CONTEXT.fullmatch(spec["context"]) is not None)
    return is_known and all(map(_is_plain_container, spec["children_spec"]))
