"""The model card: what a model expects and what its outputs mean; a TOML file beside the model (`FILE.toml`)."""

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.types import Name, Sha256

Resize = Literal["stretch", "stretch-smooth", "letterbox", "letterbox-top-left", "centre-crop", "none"]


class ImageInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="image"):
    """How a photograph becomes the model's input.

    real value = (pixel - mean) / sd per channel, pixels 0..255; a quantised input is then quantised by the model's own scale and
    zero point. `pad` is the letterbox's pixel value. `centre-crop` takes the central `crop_ratio` of the shorter side.
    `stretch-smooth` averages the pixels that become one, as the training of classifiers does; `stretch` does not, as detectors' does not.
    `none` leaves photographs their own size, for a model that resizes them itself; `height` and `width` are then those of random pictures.
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


class Features(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Audio features that a model takes instead of samples: a mel spectrogram, or its cepstral coefficients.

    Frames of `window` samples, one each `hop`, go through a Fourier transform of `fft` points; `bands` filters between `low_hz` and
    `high_hz` (None: half the sample rate) on the scale `mel` sum its magnitudes to the power `power`. `log` is `natural` (of the sum plus
    `offset`), `decibel` or `whisper`. `coefficients`, where there are any, are the first so many of the cosine transform. `centred` frames
    begin half a transform before the recording. Frames `first_frame` to `end_frame` are used; `frames` of them make one call, the next
    call begins one frame later; None: all make one. `samples_scale` is what samples are divided by first. An integer input is quantised
    to the `nearest` value, or as MLPerf Tiny does it to the next one towards 0 (`truncate`).
    """

    window: Annotated[int, msgspec.Meta(gt=0)]
    hop: Annotated[int, msgspec.Meta(gt=0)]
    fft: Annotated[int, msgspec.Meta(gt=0)]
    bands: Annotated[int, msgspec.Meta(gt=0)]
    low_hz: float = 0.0
    high_hz: float | None = None
    mel: Literal["htk", "slaney"] = "htk"
    power: Literal[1, 2] = 2
    log: Literal["natural", "decibel", "whisper"] = "natural"
    offset: float = 1e-6
    centred: bool = False
    coefficients: Annotated[int, msgspec.Meta(gt=0)] | None = None
    first_frame: Annotated[int, msgspec.Meta(ge=0)] = 0
    end_frame: Annotated[int, msgspec.Meta(gt=0)] | None = None
    frames: Annotated[int, msgspec.Meta(gt=0)] | None = None
    layout: Literal["frames-first", "bands-first"] = "frames-first"
    samples_scale: Literal["none", "maximum"] = "none"
    quantised: Literal["nearest", "truncate"] = "nearest"


class AudioInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="audio"):
    """Audio input of a model: one channel of so many samples per second; `samples` of them, None for any length.

    A shorter recording is continued with silence, a longer one is cut. Without `features` the model takes the samples (-1..1) themselves.
    """

    sample_rate_hz: Annotated[int, msgspec.Meta(gt=0)]
    samples: Annotated[int, msgspec.Meta(gt=0)] | None = None
    features: Features | None = None


class TextInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="text"):
    """Text input of a model: split into `tokens` by `tokenizer` (a tokenizer.json in the model's folder); None for any number.

    With `padding` = `tokens` shorter texts are padded to that length, with `none` each has its own. What is longer is cut, the longer of
    two texts first; of a question about a passage the passage is cut into windows (calls) that begin `stride_tokens` after each other,
    the question to `question_tokens`, and an answer has at most `answer_tokens`. `inputs` says, in the model's order, what each of its
    inputs is, where their names do not.
    """

    tokenizer: Annotated[str, msgspec.Meta(min_length=1)]
    tokenizer_sha256: Sha256 | None = None
    tokens: Annotated[int, msgspec.Meta(gt=0)] | None = None
    padding: Literal["tokens", "none"] = "tokens"
    stride_tokens: Annotated[int, msgspec.Meta(gt=0)] = 128
    question_tokens: Annotated[int, msgspec.Meta(gt=0)] = 64
    answer_tokens: Annotated[int, msgspec.Meta(gt=0)] = 30
    inputs: tuple[Literal["ids", "mask", "types", "positions"], ...] = ()


class TensorInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="tensor"):
    """Tensors that the task makes as the model declares them; they have no settings."""


# `kind` in a card; a card without one is of an image.
CardInput = ImageInput | AudioInput | TextInput | TensorInput
IMAGE = "image"


class CardOutput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How outputs become predictions. `label_offset` is added to a class index to give its place in the label map.

    `depth` is what a model of depth gives: metres, or inverse depth without scale.
    """

    classes: int | None = None
    labels: tuple[str, ...] = ()
    label_offset: int = 0
    score_threshold: float = 0.001
    nms_iou: float | None = None
    max_detections: int = 300
    strides: tuple[int, ...] = ()
    depth: Literal["metres", "inverse"] = "metres"


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
        """Return how a photograph becomes the model's input; raises ConfigError if the model takes none."""
        if isinstance(self.input, ImageInput):
            return self.input
        raise self._other("an image")

    @property
    def text(self) -> TextInput:
        """Return what text the model takes; raises ConfigError if it takes none."""
        if isinstance(self.input, TextInput):
            return self.input
        raise self._other("a text")

    def _other(self, needed_kind: str) -> ConfigError:
        kind = self.input.__struct_config__.tag
        return ConfigError(
            f"model {self.name!r} takes an input of kind {kind!r}, and {needed_kind} is needed here: correct input.kind in its card"
        )

    def beside(self, model: Path) -> "Card":
        """Return the card with the path of the tokenizer, which lies beside the model."""
        if not isinstance(self.input, TextInput):
            return self
        path = tokenizer_path(model, self.input)
        return msgspec.structs.replace(self, input=msgspec.structs.replace(self.input, tokenizer=str(path)))


# Of two models with different files of one name, an order puts the beginning of the model's hash before its files' names.
_PREFIX = re.compile(r"[0-9a-f]{8}-")


def tokenizer_path(model: Path, text: TextInput) -> Path:
    """Return where the tokenizer of `model` lies, whether or not it is there."""
    path, prefix = model.parent / text.tokenizer, _PREFIX.match(model.name)
    places = [*([model.with_name(prefix[0] + path.name)] if prefix else []), path, model.with_name(path.name)]
    return next((path for path in places if path.exists()), path)


def card_path(model: Path) -> Path:
    """Return where the card of `model` lies, whether or not it is there."""
    return model.with_name(model.name + ".toml")


def read_card(path: Path) -> Card:
    """Return the card in `path`; raises ConfigError if it cannot be read or has a wrong or unknown key (named with its path)."""
    try:
        settings = msgspec.toml.decode(path.read_bytes())
        if isinstance(settings.get("input"), dict):
            settings["input"].setdefault("kind", IMAGE)
        return msgspec.convert(settings, Card)
    except OSError as error:
        raise ConfigError(f"cannot read the model card {str(path)!r}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"model card {str(path)!r}: {error}") from error
