from collections.abc import Iterator
from typing import Any

import msgspec

from edgemeter.agent.base.field_texts import field_texts
from edgemeter.agent.base.variables import VARIABLES
from edgemeter.agent.contract import model_card
from edgemeter.agent.contract.model_card import Card, CardOutput, ImageInput, Resize
from edgemeter.agent.settings.files import FILES
from tools.reference.tables import table

HEAD = """# Configuration

Options take precedence over environment variables, the configuration file and defaults, in this
order. `edgemeter config show` lists every setting with its value and source.

The agent reads the first of these files:

1. the file in `--config` or `EDGEMETER_CONFIG`;
2. `$XDG_CONFIG_HOME/edgemeter/config.toml`, by default `~/.config/edgemeter/config.toml`;
3. `/etc/edgemeter/config.toml`.

## Files

`edgemeter config sample KIND` prints a sample with every key. `##` marks an explanation, `#` a
commented default.

"""
PURPOSES = {
    "agent": "Configuration of the agent: of every command that measures or delivers.",
    "suite": "Suite of cases, for `edgemeter run FILE`.",
    "mlperf-tiny": "Suite: four tasks of MLPerf Tiny with their quality targets, unofficial.",
    "camera": "Suite: a camera for an hour, with a deadline and several power modes.",
    "detector-study": "Suite: eight detectors behind HTTP, as in a published study.",
    "alerts": "Rules and channels of alerts, for `--rules FILE`.",
    "fleet": "Devices and service of a fleet: `fleet.toml`, written by `edgemeter fleet init`.",
}
ENVIRONMENT = """
## Environment variables

`edgemeter config show` warns of unknown variables that begin with `EDGEMETER_`. The last two are
for the first boot of a board.

"""
CARD = """
## The model card

The model card is a TOML file next to the model: `model.onnx.toml` for `model.onnx`.
`edgemeter models add` and `edgemeter models convert` write it; `edgemeter models sample` has
examples. Without a card, the model is [recognised](../tasks/models.md). Keys without `=` are
required; the others show their default.
"""
PARTS = {
    "Top level": (Card, ""),
    "[input]": (
        ImageInput,
        (
            "For images: value = (pixel - mean) / sd, with pixels 0..255. Models that take "
            'arrays have `kind = "tensor"` and no other key.'
        ),
    ),
    "[output]": (CardOutput, ""),
}
RESIZE = """
### resize

Choose the value with which the model was trained.

"""
# How each resizes, and which models are trained with it.
RESIZES: dict[Resize, tuple[str, str]] = {
    "stretch": ("to the input's size, bilinear", "SSD of TensorFlow and torchvision, RT-DETR"),
    "stretch-smooth": (
        "to the input's size, averaging pixels",
        "MLPerf Tiny, small TensorFlow classifiers",
    ),
    "letterbox": ("keeps proportions, margins on both sides", "Ultralytics' detectors, YOLO-NAS"),
    "letterbox-top-left": ("keeps proportions, margins right and below", "YOLOX"),
    "centre-crop": (
        "the middle, averaging pixels",
        "classifiers of ImageNet; `crop_ratio = 1`: Ultralytics'",
    ),
    "none": ("none: the model resizes", "torchvision's detectors"),
}


def page() -> str:
    text = (
        HEAD
        + table(
            ["sample", "what it is"],
            ((f"[{kind}](samples/{kind}.toml)", PURPOSES[kind]) for kind in FILES),
        )
        + ENVIRONMENT
    )
    variables = {name: variable for group in VARIABLES.values() for name, variable in group.items()}
    rows = (
        (f"`{name}`", entry.meaning + (" (secret)" if entry.secret else ""), entry.default)
        for name, entry in variables.items()
    )
    text += table(["variable", "what it sets", "default"], rows) + CARD
    texts = field_texts(model_card)
    for heading, (part, words) in PARTS.items():
        rows_of_part = ((key, texts[part.__name__][name]) for name, key in _keys(part))
        text += f"\n### {heading}\n\n{words}\n\n".replace("\n\n\n\n", "\n\n") + table(
            ["key", "meaning"], rows_of_part
        )
    return (
        text
        + RESIZE
        + table(
            ["resize", "how", "models"], ((f"`{name}`", *words) for name, words in RESIZES.items())
        )
    )


def _keys(part: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    """Yield each key, and how the page shows it: with its default, or with its choices."""
    schema: dict[str, Any] = msgspec.json.schema(part)["$defs"][part.__name__]
    for name, kind in schema["properties"].items():
        # Keys that refer to another struct have a table of their own.
        if name == "kind" or "$ref" in str(kind):
            continue
        # A list is an array in TOML as in JSON; what is left out is null, or empty.
        default = msgspec.json.encode(kind.get("default")).decode().replace("null", "none")
        choices = f" ({', '.join(kind['enum'])})" if "enum" in kind and name != "resize" else ""
        yield name, (f"`{name}`" if name in schema["required"] else f"`{name}={default}`") + choices
