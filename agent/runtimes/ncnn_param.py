"""Reads an ncnn .param file without running it: is it whole, which layers it has, what its inputs and outputs are called, and their shapes.

It is text: the mark 7767517, a line with the number of layers and of blobs, then one line a layer: type, name, number of inputs and
outputs, their names, and `key=value`. An Input may say width, height, depth and channels (keys 0, 1, 11, 2), any layer the shapes of
its outputs (key -23330: for each one dims, w, h, c). Source: https://github.com/Tencent/ncnn/wiki/param-and-model-file-structure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.runtimes import model_file

_MARK = b"7767517"
_MOST_BYTES = 64 << 20
_SHAPES = "-23330"
_NUMBERED = re.compile(r"(?:in|out)(\d+)")

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """One line of the file."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NcnnParam:
    """What the file holds. `inputs` and `outputs` are shapes by name, without batch, [c, h, w]; None where the file tells none."""

    kinds: frozenset[str]
    inputs: Mapping[str, Shape | None]
    outputs: Mapping[str, Shape | None]


def read(model: Path) -> NcnnParam:
    """Return what the file holds; the weights beside it are not looked at.

    Raises:
        ConfigError: it is no ncnn .param file, is truncated or garbled.
    """
    if model_file.head(model).lstrip().split(maxsplit=1)[:1] != [_MARK]:
        message = f"{str(model)!r} is not an ncnn model, it lacks the mark 7767517: give the text file .param, with .bin beside it"
        raise ConfigError(message)
    try:
        with model.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8")
        # A line that ends early may still be one: 0=64 cut to 0=6.
        if not text.endswith("\n"):
            raise ValueError("it ends in the middle of a line")  # noqa: TRY301, TRY003, EM101 - one place for all that is wrong with the file
        layers = _layers(text.splitlines())
        return _described(layers)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        message = f"the model {str(model)!r} is truncated or garbled ({error}): fetch it again"
        raise ConfigError(message) from error


def _layers(lines: Sequence[str]) -> list[Layer]:
    rows = [line.split() for line in lines if line.strip()]
    counts = [int(word) for word in rows[1]] if len(rows) > 1 else []
    if len(counts) != 2 or counts[0] != len(rows) - 2:
        message = f"it announces {counts[0] if counts else 'no'} layers and has {max(0, len(rows) - 2)}"
        raise ValueError(message)
    return [_layer(row) for row in rows[2:]]


def _layer(row: Sequence[str]) -> Layer:
    is_whole = len(row) >= 4 and row[2].isdigit() and row[3].isdigit() and len(row) >= 4 + int(row[2]) + int(row[3])
    if not is_whole:
        message = f"a layer has too few words: {' '.join(row)[:60]!r}"
        raise ValueError(message)
    first, last = 4 + int(row[2]), 4 + int(row[2]) + int(row[3])
    settings = dict(word.partition("=")[::2] for word in row[last:])
    return Layer(row[0], tuple(row[4:first]), tuple(row[first:last]), settings)


def _described(layers: Sequence[Layer]) -> NcnnParam:
    taken = {name for layer in layers for name in layer.inputs}
    inputs = {
        name: _input_shape(layer) or _hint(layer, place)
        for layer in layers
        if layer.kind == "Input"
        for place, name in enumerate(layer.outputs)
    }
    outputs = {name: _hint(layer, place) for layer in layers for place, name in enumerate(layer.outputs) if name not in taken}
    if not inputs or not outputs:
        message = "it has no Input, or nothing comes out of it"
        raise ValueError(message)
    return NcnnParam(frozenset(layer.kind for layer in layers), _in_order(inputs), _in_order(outputs))


def _input_shape(layer: Layer) -> Shape | None:
    """Return the shape that an Input says, outermost first; 0 is a size that it leaves open."""
    sizes = [int(layer.settings.get(key, 0)) for key in ("2", "11", "1", "0")]
    known = tuple(size for size in sizes if size > 0)
    return known or None


def _hint(layer: Layer, place: int) -> Shape | None:
    """Return the shape that the layer notes of one output, outermost first."""
    numbers = [int(word) for word in layer.settings.get(_SHAPES, "").split(",") if word]
    one = numbers[1 + 4 * place : 5 + 4 * place]
    if len(one) != 4 or not 1 <= one[0] <= 3:
        return None
    return tuple(reversed(one[1 : 1 + one[0]]))


def _in_order(shapes: dict[str, Shape | None]) -> dict[str, Shape | None]:
    """Return them as the model numbers them (pnnx: in0, out0, out1), else as the file has them."""
    matches = {name: _NUMBERED.fullmatch(name) for name in shapes}
    if not all(matches.values()):
        return shapes
    return dict(sorted(shapes.items(), key=lambda item: int(match[1]) if (match := matches[item[0]]) else 0))
