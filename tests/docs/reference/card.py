"""The model card: every key with its type, default and meaning, and the ways a photograph gets the input's size, each with a picture.

python -m tests.docs.reference.card    makes the pictures again
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from PIL import Image

from edgemeter.agent.base.field_texts import field_texts
from edgemeter.agent.contract import model_card
from edgemeter.agent.contract.model_card import Card, CardOutput, ImageInput, Resize
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.vision.preprocess import Preprocessor
from tests.docs.reference.tables import table

ROOT = Path(__file__).resolve().parents[3]
SCENES = ROOT / "models" / "scenes" / "images"
PICTURES = ROOT / "docs" / "images"
SIDE, ENLARGED, PICTURED = 64, 3, (3, 5)
HEAD = """# The model card

`FILE.toml` beside a model, written by `edgemeter models add` and `convert`; without one a model is [recognised](../tasks/models.md). An
unknown key is an error. Examples: [vision](../tasks/vision.md), [arrays](../tasks/arrays.md).

A key without `=` is required; its default follows it (`none`: left out). `[input]` of `kind = "tensor"` has no other key.

"""
TABLES = {
    "Top": Card,
    "[input], kind = image (the default)": ImageInput,
    "[output]": CardOutput,
}
# How each shrinks, and whose models were trained and are evaluated so.
RESIZES: dict[Resize, tuple[str, str]] = {
    "stretch": ("the sides change apart; bilinear, no smoothing", "TensorFlow's and torchvision's SSD, RT-DETR"),
    "stretch-smooth": ("the same, by averages", "MLPerf Tiny, TensorFlow classifiers of classes other than ImageNet's"),
    "letterbox": ("proportions kept, margins on both sides", "Ultralytics' detectors, YOLO-NAS"),
    "letterbox-top-left": ("proportions kept, margins right and below", "YOLOX"),
    "centre-crop": ("the middle, by averages", "ImageNet's classifiers; with `crop_ratio = 1` Ultralytics'"),
}
RESIZE_TEXT = f"""
## input.resize

A model needs photographs as its training had them; `none` leaves resizing to the model (torchvision's detectors).
One picture as an input of {SIDE} x {SIDE} pixels:

"""


def page() -> str:
    """Return the page."""
    texts = field_texts(model_card)
    text = HEAD
    for heading, part in TABLES.items():
        rows = ((key, kind, texts[part.__name__][name]) for name, key, kind in _keys(part))
        text += f"## {heading}\n\n{' '.join((part.__doc__ or '').split())}\n\n{table(['key', 'type', 'meaning'], rows)}\n"
    rows = ((f"`{name}`", *words, f"![{name}](../images/{picture_name(name)})") for name, words in RESIZES.items())
    return text.rstrip("\n") + "\n" + RESIZE_TEXT + table(["resize", "what happens", "who trains so", "input"], rows)


def _keys(part: type[msgspec.Struct]) -> Iterator[tuple[str, str, str]]:
    """Yield each key, the key with its default as the page has it, and its type."""
    schema = msgspec.json.schema(part)["$defs"][part.__name__]
    for name, kind in schema["properties"].items():
        # A list is an array in TOML as in JSON; what is left out is null, or empty.
        default = msgspec.json.encode(kind.get("default")).decode().replace("null", "none")
        # What refers to another struct has a table of its own.
        if name != "kind" and "$ref" not in str(kind):
            yield name, f"`{name}`" if name in schema["required"] else f"`{name}={default}`", _type(kind)


def _type(kind: dict[str, Any]) -> str:
    if "enum" in kind:
        return ", ".join(f"`{value}`" for value in kind["enum"])
    if "anyOf" in kind:
        return " or ".join(dict.fromkeys(_type(each) for each in kind["anyOf"] if each != {"type": "null"}))
    if "prefixItems" in kind:
        return "numbers"
    if kind.get("type") == "array":
        return f"list: {_type(kind['items'])}" if "enum" in kind["items"] else "list"
    return {"object": "table", "string": "text", "boolean": "true, false"}.get(kind.get("type", "object"), kind.get("type", "table"))


def picture_name(resize: Resize) -> str:
    """Return the file of a way's picture."""
    return f"resize-{resize}.png"


def picture(resize: Resize) -> Image.Image:
    """Return two of the project's scenes side by side as a model's input has them, each pixel enlarged."""
    scenes = [Image.open(SCENES / f"scene_{number:03}.png").convert("RGB") for number in PICTURED]
    photo = Image.new("RGB", (sum(scene.width for scene in scenes), scenes[0].height))
    for number, scene in enumerate(scenes):
        photo.paste(scene, (number * scene.width, 0))
    image = ImageInput(height=SIDE, width=SIDE, layout="NHWC", resize=resize, sd=(1.0, 1.0, 1.0))
    values, _ = Preprocessor(image, TensorInfo("x", (1, SIDE, SIDE, 3), "float32")).load_photo(photo)
    pixels = values[0].astype(np.uint8)
    return Image.fromarray(pixels.repeat(ENLARGED, axis=0).repeat(ENLARGED, axis=1))


if __name__ == "__main__":
    for way in RESIZES:
        picture(way).save(PICTURES / picture_name(way), optimize=True)
