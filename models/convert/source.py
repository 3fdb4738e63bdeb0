"""The source file of a conversion, with the known facts about its model and images.

The images are to calibrate and to compare on.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.model_names import model_path
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import Card, Guess, card_path
from edgemeter.agent.contract.model_formats import runtime_for
from edgemeter.agent.datasets.dataset import Dataset, open_folder
from edgemeter.agent.recognition import recognise
from edgemeter.agent.runtimes import Loaded
from edgemeter.models.catalogue.shipped_models import SCENES, SHIPPED_FOLDER, find_model
from edgemeter.models.convert import formats
from edgemeter.models.convert.converter_output import quiet


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model file: its form, the loaded model, and its card.

    The form is a format's name, or `torch`; the card is None if the model is unknown. `guesses` are
    the basis of the card; `unknown` is why there is none.
    """

    path: Path
    form: str
    loaded: Loaded
    about: Card | None
    guesses: tuple[Guess, ...]
    unknown: str | None
    sha256: str

    @property
    def name(self) -> str:
        """The name of the files made from it."""
        return self.about.name if self.about else recognise.name_of(self.path)

    @property
    def is_shipped(self) -> bool:
        """Whether it is a shipped model, for which scenes to score on ship too."""
        return self.path.parent == SHIPPED_FOLDER

    def shape(self) -> tuple[int, ...]:
        """Return the shape of its one input, batch 1.

        Raises:
            ConfigError: it has several inputs, or neither the file nor a card has the shape.
        """
        if len(self.loaded.inputs) > 1:
            names = ", ".join(info.name for info in self.loaded.inputs)
            raise ConfigError(
                f"{str(self.path)!r} takes {len(self.loaded.inputs)} inputs ({names}): export it "
                "with one tensor as input"
            )
        sizes = [
            1 if index == 0 and size is None else size
            for info in self.loaded.inputs
            for index, size in enumerate(info.shape)
        ]
        if self.about is not None and (not sizes or None in sizes):
            image = self.about.image
            return (
                (1, 3, image.height, image.width)
                if image.layout == "NCHW"
                else (1, image.height, image.width, 3)
            )
        if not sizes or None in sizes:
            raise ConfigError(
                f"{str(self.path)!r} does not declare the shape of its input: write a card next "
                f"to it, {card_path(self.path).name!r}"
            )
        return tuple(size for size in sizes if size is not None)


def find_source(source: str) -> Path:
    """Return the file of a conversion's source.

    It is given by a path, by a name of the catalogue or of a shipped file, or by the shipped
    model's name for its PyTorch file.

    Raises:
        ConfigError: there is no such file.
    """
    path = Path(source)
    shipped = SHIPPED_FOLDER / f"{source}_fp32.torchscript"
    if not path.exists() and shipped.is_file():
        return shipped
    path = path if path.is_file() else model_path(source)
    return path if path.is_file() else find_model(source).path


def load_source(path: Path) -> ModelSource:
    """Return the source, inspected by its own runtime.

    Raises:
        EdgemeterError: the runtime is not installed, or the file is broken.
    """
    name = runtime_for(path)
    runtime = runtimes.create(name)
    try:
        with quiet():
            loaded = runtime.load(path, runtimes.Options(sha256=model_file.sha256(path)))
    finally:
        runtime.close()
    about: Card | None = None
    guesses: tuple[Guess, ...] = ()
    unknown: str | None = None
    try:
        about, guesses = recognise.card_for(path, loaded)
    except ConfigError as error:
        if card_path(path).exists():
            raise
        unknown = str(error)
    return ModelSource(
        path, _form(path, name, loaded), loaded, about, guesses, unknown, model_file.sha256(path)
    )


def _form(path: Path, runtime: str, loaded: Loaded) -> str:
    """Return the form of the file, as a format's name."""
    if runtime == "pytorch":
        return formats.TORCH
    if runtime in ("onnx", "litert"):
        return f"{runtime}-{loaded.precision or 'unknown'}"
    raise ConfigError(
        f"{str(path)!r} is for the runtime {runtime!r}, whose files cannot be converted: give a "
        "PyTorch, ONNX or LiteRT file"
    )


def shipped_scenes() -> Dataset:
    return replace(
        open_folder(SCENES / "images", SCENES / "annotations.json"), name="shipped scenes"
    )


def open_calibration(source: ModelSource, folder: Path | None, limit: int) -> Dataset | None:
    """Return the folder's images, at most `limit`.

    Without a folder they are the shipped scenes for a shipped model, None for another.

    Raises:
        ConfigError: a folder is given for an unknown model, or it cannot be read.
    """
    if folder is None:
        return shipped_scenes() if source.is_shipped else None
    if source.unknown is not None:
        raise ConfigError(source.unknown)
    images = open_folder(folder)
    return images if len(images.items) <= limit else open_folder(folder, subset=limit)
