"""The model card, which says what a model expects and what its outputs mean.

It is a TOML file beside the model (`FILE.toml`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_toml
from edgemeter.agent.base.types import Count, Int64, Name, Positive, Sha256
from edgemeter.agent.contract.model_file import source_of

Resize = Literal[
    "stretch", "stretch-smooth", "letterbox", "letterbox-top-left", "centre-crop", "none"
]

# The usual grey of a letterbox's margins, 0..255. Source: that of YOLOv5 and later (Ultralytics).
LETTERBOX_GREY: Final = 114
# The kind of a guess that makes the family, and so the task, doubtful.
UNSURE_FAMILY: Final = "unsure of the family"


class Guess(msgspec.Struct, frozen=True):
    """An assumption about a model.

    The file suggests it (`guessed`), or nothing confirms it (`unsure`).
    """

    occasion: str  # Such as `m.onnx has no card`.
    kind: Literal["guessed", "unsure", "unsure of the family"]
    text: str

    def __str__(self) -> str:
        return f"{self.occasion}; {self.kind}: {self.text}"


def made_by_guessing(guesses: Sequence[Guess]) -> dict[str, str]:
    """Return the facts for `[made]` in a card that is written from guesses.

    They are all guesses, and the doubt about the family.
    """
    facts = {
        "guesses": " | ".join(f"{guess.kind}: {guess.text}" for guess in guesses),
        "family_doubt": next((guess.text for guess in guesses if guess.kind == UNSURE_FAMILY), ""),
    }
    return {name: text for name, text in facts.items() if text}


class ImageInput(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="kind",
    tag="image",
):
    """How a photograph becomes the model's input.

    real value = (pixel - mean) / sd per channel, pixels 0..255. A quantised input is then quantised
    by the model's own scale and zero point. With `resize = "none"`, `height` and `width` are the
    size of random pictures.
    """

    height: Positive  # Pixels.
    width: Positive  # Pixels.
    layout: Literal["NHWC", "NCHW"]  # Channels last (NHWC) or first.
    colour: Literal["RGB", "BGR"] = "RGB"  # Order of the channels.
    resize: Resize = "stretch"  # How the image gets the input's size: see below.
    pad: Int64 = LETTERBOX_GREY  # Value of the pixels in a letterbox's margins.
    crop_ratio: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.875
    """Share of the shorter side that `centre-crop` keeps."""
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)  # Mean of each channel.
    sd: tuple[float, float, float] = (255.0, 255.0, 255.0)  # Standard deviation of each channel.


class TensorInput(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="tensor",
):
    """Arrays of the data, or what a task makes of them, as the model declares its inputs.

    There are no settings.
    """


# The default `kind` of an input in a card is image.
CardInput = ImageInput | TensorInput
IMAGE = "image"


class CardOutput(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """How outputs become predictions."""

    classes: Count | None = None  # Number of classes.
    labels: tuple[str, ...] = ()  # Names of the classes.
    label_offset: Int64 = 0  # Added to a class to get its label's index.
    score_threshold: float = 0.001  # Detections with a lower score are dropped.
    nms_iou: float | None = None  # Overlap for non-maximum suppression; none: no suppression.
    max_detections: Count = 300  # Highest number of detections per image.


class Card(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model file: identity, task, decoder family, input and output."""

    name: Name  # Name that all files of the model share.
    task: str  # Task, such as `detection`.
    family: str  # Decoder of its outputs, such as `yolov8`, or `classifier`.
    precision: str  # Precision of the file, such as `int8`.
    sha256: Sha256 | None = None  # SHA-256 of the file.
    licence: str | None = None  # Licence.
    source: str | None = None  # Origin.
    input: CardInput  # The table `[input]`.
    output: CardOutput = CardOutput()  # The table `[output]`.
    made: dict[str, str | Int64 | float] = {}  # How the file was made.
    accuracy: dict[str, str | Int64 | float] = {}
    """Its accuracy: `metric`, `value`, `dataset_sha256`."""

    @property
    def image(self) -> ImageInput:
        """The preparation of photographs; raises ConfigError if the model takes none."""
        if isinstance(self.input, ImageInput):
            return self.input
        raise ConfigError(
            f"model {self.name!r} takes an input of kind 'tensor', an image is needed here: "
            "correct input.kind in its card"
        )


def card_path(model: Path) -> Path:
    """Return the path of a model's card, which may not exist."""
    model = source_of(model)
    return model.with_name(model.name + ".toml")


def read_card(path: Path) -> Card:
    """Return the card in `path`.

    Raises:
        ConfigError: it cannot be read or has a wrong or unknown key (named with its path).
    """
    try:
        settings = decode_toml(path.read_bytes(), dict[str, Any])
        if isinstance(settings.get("input"), dict):
            settings["input"].setdefault("kind", IMAGE)
        return msgspec.convert(settings, Card)
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no model card {str(path)!r}: `edgemeter models add` writes one for a file"
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot read the model card {str(path)!r}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"model card {str(path)!r}: {error}") from error
