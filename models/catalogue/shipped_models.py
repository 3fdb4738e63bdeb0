"""The shipped models, files with a card beside each, and a folder of them to try commands on; and cards as TOML text."""

import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.toml import toml_document
from edgemeter.agent.contract.model_card import IMAGE, Card, CardOutput, ImageInput, card_path, read_card

SHIPPED_FOLDER = Path(__file__).parents[1] / "shipped"
LANGUAGE_FOLDER = Path(__file__).parents[1] / "language"
SCENES = Path(__file__).parents[1] / "scenes"
# What the pages of the documentation call them.
SHIPPED_BY_NAME = {
    "model.onnx": "edgemeter-shapes_fp32.onnx",
    "model.tflite": "edgemeter-shapes_fp32.tflite",
    "model_int8.tflite": "edgemeter-shapes_int8.tflite",
}


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One model file with its card."""

    path: Path
    about: Card

    @property
    def format(self) -> str:
        """The file's suffix without the dot, as in records."""
        return self.path.suffix.removeprefix(".")

    @property
    def size_bytes(self) -> int:
        """The file's size."""
        return self.path.stat().st_size


def shipped_models() -> list[ModelFile]:
    """Return the shipped models, files with a card beside them, by file name.

    Raises:
        ConfigError: a card cannot be read, or its model is missing.
    """
    return [find_model(path.with_suffix("")) for path in sorted(SHIPPED_FOLDER.glob("*.toml"))]


class LanguageFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the shipped language model, as `language.toml` lists it."""

    file: str
    precision: str
    sha256: str

    @property
    def path(self) -> Path:
        """Where it is."""
        return LANGUAGE_FOLDER / self.file

    @property
    def name(self) -> str:
        """The name in commands: the file's."""
        return self.path.name


class _LanguageIndex(msgspec.Struct, frozen=True):
    name: str
    files: tuple[LanguageFile, ...]


def shipped_language() -> list[LanguageFile]:
    """Return the files of the shipped language model; none where it was left out of an installation."""
    index = LANGUAGE_FOLDER / "language.toml"
    return list(msgspec.toml.decode(index.read_bytes(), type=_LanguageIndex).files) if index.is_file() else []


def find_model(model: str | Path) -> ModelFile:
    """Return the model at this path, or the shipped one of this name.

    Raises:
        ConfigError: there is no such model, or no card beside it.
    """
    path = Path(model)
    if not path.is_file():
        path = SHIPPED_FOLDER / path
    if not path.is_file():
        names = ", ".join(sorted(p.stem for p in SHIPPED_FOLDER.glob("*.toml")))
        raise ConfigError(f"no file and no shipped model {str(model)!r}: give a path, or one of {names}")
    return ModelFile(path, read_card(card_path(path)))


def write_sample(folder: Path) -> list[str]:
    """Write the folder, whole or not at all, and return the names in it.

    Raises:
        ConfigError: the folder is there and not empty, or cannot be written.
    """
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"{str(folder)!r} is there already: name a new folder")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            draft = Path(name) / folder.name
            shutil.copytree(SCENES / "images", draft / "photos")
            shutil.copy(SCENES / "annotations.json", draft / "instances.json")
            for plain, shipped in SHIPPED_BY_NAME.items():
                shutil.copy(SHIPPED_FOLDER / shipped, draft / plain)
                shutil.copy(SHIPPED_FOLDER / f"{shipped}.toml", draft / f"{plain}.toml")
            draft.rename(folder)
    except (OSError, shutil.Error) as error:
        # That of a whole folder has a reason for each file, as text with both paths.
        text = str(error.args[0][0][-1]) if isinstance(error, shutil.Error) else error.strerror or str(error)
        reason = re.sub(r"^\[Errno \d+\] |: '.*$", "", text)
        raise ConfigError(f"cannot write the sample to {str(folder)!r} ({reason}): free some space, or choose another folder") from error
    return sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())


def card_text(model: Card) -> str:
    """Return the card as TOML, without defaults, so that the file shows what is special."""
    settings: dict[str, Any] = msgspec.to_builtins(model)
    parts = {key: value for key, value in settings.items() if isinstance(value, dict)}
    return card_tables({key: value for key, value in settings.items() if key not in parts}, parts)


def card_tables(settings: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return settings and tables as TOML, without None and a card's defaults."""
    defaults = {name: _defaults(name) for name in parts}
    special = {
        name: {key: value for key, value in table.items() if key not in defaults[name] or defaults[name][key] != value}
        for name, table in parts.items()
    }
    return toml_document({**settings, **special})


def _defaults(table: str) -> dict[str, Any]:
    """Return the defaults of a card's table."""
    if table not in ("input", "output"):
        return {}
    fields = msgspec.structs.fields(ImageInput if table == "input" else CardOutput)
    defaults = {field.encode_name: msgspec.to_builtins(field.default) for field in fields if field.default is not msgspec.NODEFAULT}
    # An image is the kind of a card that names none.
    return {"kind": IMAGE, **defaults} if table == "input" else defaults
