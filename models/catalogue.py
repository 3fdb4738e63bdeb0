"""The models that ship: files with a card beside each."""

from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card

FOLDER = Path(__file__).parent / "shipped"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One model file with its card."""

    path: Path
    about: card.Card

    @property
    def format(self) -> str:
        """The file's suffix without the dot, which is the record's word for its format."""
        return self.path.suffix.removeprefix(".")

    @property
    def size_bytes(self) -> int:
        """The file's size."""
        return self.path.stat().st_size


def models(folder: Path = FOLDER) -> list[ModelFile]:
    """Return the models in `folder` by file name; a model is a file with a card beside it.

    Raises:
        ConfigError: a card cannot be read, or its model is missing.
    """
    return [find(path.with_suffix("")) for path in sorted(folder.glob("*.toml"))]


def find(model: str | Path) -> ModelFile:
    """Return the model at this path, or the shipped one of this name.

    Raises:
        ConfigError: there is no such model, or no card beside it.
    """
    path = Path(model)
    if not path.is_file():
        path = FOLDER / path
    if not path.is_file():
        names = ", ".join(sorted(p.stem for p in FOLDER.glob("*.toml")))
        message = f"there is no model {str(model)!r} here, and none of that name ships: give a path, or one of {names}"
        raise ConfigError(message)
    return ModelFile(path, card.read(card.beside(path)))
