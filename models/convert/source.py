"""The file that a conversion starts from: where it is, what it is, and what is known of the model in it."""

from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent import runtimes
from edgemeter.agent.engine.suites import runtime_for
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card, recognise
from edgemeter.agent.runtimes import Loaded, model_file
from edgemeter.models import catalogue
from edgemeter.models.convert import formats
from edgemeter.models.quiet import quiet

_SHIPPED = Path(catalogue.__file__).parent / "shipped"


@dataclass(frozen=True, slots=True)
class Source:
    """The file, the form that it has (a format's name, or `torch`), what its runtime found, and its card: None where it is unknown.

    `guesses` say what the card was made up from; `unknown` why there is none.
    """

    path: Path
    form: str
    loaded: Loaded
    about: card.Card | None
    guesses: tuple[str, ...]
    unknown: str | None
    sha256: str

    @property
    def name(self) -> str:
        """What the files made from it are called."""
        return self.about.name if self.about else recognise.name_of(self.path)

    @property
    def is_shipped(self) -> bool:
        """Whether it is one of the models that ship, for which scenes ship too."""
        return self.path.parent == _SHIPPED

    def shape(self) -> tuple[int, ...]:
        """Return the shape of its one input, batch 1.

        Raises:
            ConfigError: it has several inputs, or neither the file nor a card says the shape.
        """
        if len(self.loaded.inputs) > 1:
            names = ", ".join(info.name for info in self.loaded.inputs)
            message = f"{str(self.path)!r} takes {len(self.loaded.inputs)} inputs ({names}): export it with one tensor as input"
            raise ConfigError(message)
        sizes = [1 if place == 0 and size is None else size for info in self.loaded.inputs for place, size in enumerate(info.shape)]
        if self.about is not None and (not sizes or None in sizes):
            wanted = self.about.input
            return (1, 3, wanted.height, wanted.width) if wanted.layout == "NCHW" else (1, wanted.height, wanted.width, 3)
        if not sizes or None in sizes:
            message = f"{str(self.path)!r} does not say the shape of its input: write a card beside it, {card.beside(self.path).name!r}"
            raise ConfigError(message)
        return tuple(size for size in sizes if size is not None)


def find(source: str) -> Path:
    """Return the file: a path, the name of one that ships, or the shipped model's name for its PyTorch file.

    Raises:
        ConfigError: there is none of that name.
    """
    path = Path(source)
    shipped = _SHIPPED / f"{source}_fp32.torchscript"
    if not path.exists() and shipped.is_file():
        return shipped
    return path if path.is_file() else catalogue.find(source).path


def load(path: Path) -> Source:
    """Return the source, looked at by its own runtime.

    Raises:
        EdgemeterError: the runtime is not installed, or the file is broken.
    """
    name = runtime_for(path)
    runtime = runtimes.create(name)
    try:
        with quiet():
            loaded = runtime.load(path, runtimes.Options())
    finally:
        runtime.close()
    about, guesses, unknown = _known(path, loaded)
    return Source(path, _form(path, name, loaded), loaded, about, guesses, unknown, model_file.sha256(path))


def _known(path: Path, loaded: Loaded) -> tuple[card.Card | None, tuple[str, ...], str | None]:
    try:
        about, guesses = recognise.card_for(path, loaded)
    except ConfigError as error:
        if card.beside(path).exists():
            raise
        return None, (), str(error)
    return about, tuple(guesses), None


def _form(path: Path, runtime: str, loaded: Loaded) -> str:
    """Return what the file is, as a format's name."""
    if runtime == "pytorch":
        return formats.TORCH
    if runtime in ("onnx", "litert"):
        return f"{runtime}-{loaded.precision or 'unknown'}"
    message = f"{str(path)!r} is run by {runtime!r}, from which nothing is converted: give a PyTorch, ONNX or LiteRT file"
    raise ConfigError(message)
