"""The shipped models with their cards, and cards as TOML text.

The models are also written to a folder to try commands on.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.base.toml import parse_toml, toml_document
from edgemeter.agent.contract.model_card import IMAGE, Card, card_path, read_card

SHIPPED_FOLDER = Path(__file__).parents[1] / "shipped"
LANGUAGE_FOLDER = Path(__file__).parents[1] / "language"
SCENES = Path(__file__).parents[1] / "scenes"
# The names of the files in the documentation.
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


def shipped_models() -> list[ModelFile]:
    """Return the shipped models with their cards, by file name.

    Raises:
        ConfigError: a card cannot be read, or its model is missing.
    """
    return [find_model(path.with_suffix("")) for path in sorted(SHIPPED_FOLDER.glob("*.toml"))]


def shipped_language() -> list[dict[str, str]]:
    """Return file, precision, sha256 and licence of each file of the shipped language model.

    There are none if the installation lacks the model.
    """
    index = LANGUAGE_FOLDER / "language.toml"
    document = parse_toml(index, "index of language models") if index.is_file() else {"files": []}
    return [{**file, "licence": document["licence"]} for file in document["files"]]


def shipped_files() -> dict[str, Path]:
    language = {row["file"]: LANGUAGE_FOLDER / row["file"] for row in shipped_language()}
    return {model.path.name: model.path for model in shipped_models()} | language


def find_model(model: str | Path) -> ModelFile:
    """Return the model at this path, or the shipped one of this name.

    Raises:
        ConfigError: there is no such model, or it has no card.
    """
    path = Path(model)
    if not path.is_file():
        path = SHIPPED_FOLDER / path
    if not path.is_file():
        names = ", ".join(sorted(p.stem for p in SHIPPED_FOLDER.glob("*.toml")))
        raise ConfigError(
            f"no file and no shipped model {str(model)!r}: give a path, or one of {names}"
        )
    return ModelFile(path, read_card(card_path(path)))


def write_sample(folder: Path) -> list[str]:
    """Write the folder, atomically, and return the names in it.

    Raises:
        ConfigError: the folder exists and is not empty, or cannot be written.
    """
    with os_error_as(
        ConfigError,
        f"cannot write the sample to {str(folder)!r}",
        "free some space, or choose another folder",
    ):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"{str(folder)!r} is there already: name a new folder")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            draft = Path(name) / folder.name
            (draft / "photos").mkdir(parents=True)
            for photo in (SCENES / "images").iterdir():
                shutil.copy(photo, draft / "photos")
            shutil.copy(SCENES / "annotations.json", draft / "instances.json")
            for plain, shipped in SHIPPED_BY_NAME.items():
                shutil.copy(SHIPPED_FOLDER / shipped, draft / plain)
                shutil.copy(SHIPPED_FOLDER / f"{shipped}.toml", draft / f"{plain}.toml")
            draft.rename(folder)
    return sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())


def card_text(card: Card) -> str:
    """Return the card as TOML, without defaults, so that the file shows only what is special."""
    settings = msgspec.to_builtins(card)
    if settings["input"]["kind"] == IMAGE:
        # An image is the default kind of a card.
        del settings["input"]["kind"]
    return toml_document(settings)
