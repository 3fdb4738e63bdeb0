"""The model card: what a model expects and what its outputs mean; a TOML file beside the model (`FILE.toml`)."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.types import Name, Sha256

Resize = Literal["stretch", "letterbox", "letterbox-top-left", "centre-crop"]


class ImageInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="image"):
    """How a photograph becomes the model's input.

    real value = (pixel - mean) / sd per channel, pixels 0..255; a quantised input is then quantised by the model's own scale and
    zero point. `pad` is the letterbox's pixel value. `centre-crop` takes the central `crop_ratio` of the shorter side.
    """

    height: Annotated[int, msgspec.Meta(gt=0)]
    width: Annotated[int, msgspec.Meta(gt=0)]
    layout: Literal["NHWC", "NCHW"]
    colour: Literal["RGB", "BGR"] = "RGB"
    resize: Resize = "stretch"
    pad: int = 114
    crop_ratio: float = 0.875
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    sd: tuple[float, float, float] = (255.0, 255.0, 255.0)


class AudioInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="audio"):
    """What recording the model takes: one channel of so many samples per second; `samples` of them, None for any length."""

    sample_rate_hz: Annotated[int, msgspec.Meta(gt=0)]
    samples: Annotated[int, msgspec.Meta(gt=0)] | None = None


class TextInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="text"):
    """What text the model takes: `tokens` of it, None for any number, as `tokenizer`, a file beside the model, cuts it."""

    tokenizer: Annotated[str, msgspec.Meta(min_length=1)]
    tokens: Annotated[int, msgspec.Meta(gt=0)] | None = None


class TensorInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="tensor"):
    """Tensors that the task makes as the model declares them: there is nothing more to say of them."""


# `kind` in a card; a card without one is of an image.
CardInput = ImageInput | AudioInput | TextInput | TensorInput
IMAGE = "image"


class CardOutput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How outputs become predictions. `label_offset` is added to a class index to give its place in the label map."""

    classes: int | None = None
    labels: tuple[str, ...] = ()
    label_offset: int = 0
    score_threshold: float = 0.001
    nms_iou: float | None = None
    max_detections: int = 300
    strides: tuple[int, ...] = ()


class Card(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model file: identity, task, decoder family, input and output.

    `made` says how it was made, `accuracy` how good it is, `parity` how far it is from the file it was converted from.
    """

    name: Name
    task: str
    family: str
    precision: str
    sha256: Sha256 | None = None
    licence: str | None = None
    source: str | None = None
    input: CardInput
    output: CardOutput = CardOutput()
    made: dict[str, str | int | float] = {}
    accuracy: dict[str, str | int | float] = {}
    parity: dict[str, str | int | float] = {}

    @property
    def image(self) -> ImageInput:
        """Return how a photograph becomes the model's input.

        Raises:
            ConfigError: the model takes none.
        """
        if isinstance(self.input, ImageInput):
            return self.input
        kind = self.input.__struct_config__.tag
        raise ConfigError(
            f"model {self.name!r} takes an input of kind {kind!r}, and an image is needed here: correct input.kind in its card"
        )


def card_path(model: Path) -> Path:
    """Return where the card of `model` lies, whether or not it is there."""
    return model.with_name(model.name + ".toml")


def read_card(path: Path) -> Card:
    """Return the card in `path`.

    Raises:
        ConfigError: it cannot be read or has a wrong or unknown key (named with its path).
    """
    try:
        settings = msgspec.toml.decode(path.read_bytes())
        if isinstance(settings.get("input"), dict):
            settings["input"].setdefault("kind", IMAGE)
        return msgspec.convert(settings, Card)
    except OSError as error:
        raise ConfigError(f"cannot read the model card {str(path)!r}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"model card {str(path)!r}: {error}") from error
