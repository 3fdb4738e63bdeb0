"""Facts of models by their names, from `models.toml`.

An unknown part of a name means no facts: a wrong bound is worse than none.
"""

import re
from functools import lru_cache
from pathlib import Path

import msgspec

# Words that do not change the number of weights or operations.
_HARMLESS = re.compile(
    r"instruct|chat|it|hf|base|latest|gguf|ggml|awq|gptq|mlc|mlx|onnx|rkllm|hef|tflite|"
    r"litertlm|meta|microsoft|google|nvidia|ultralytics|"
    r"v\d[\d.]*|\d+k|\d{4}|i?q\d\w*|[a-z]{1,2}q\d\w*|k|[smlx]|xs|xxs|nl|[01]|int\d+|u?int\d+|"
    r"fp\d+|bf\d+|f\d+|w\d+a\d+|mxfp4|nvfp4|"
    r"\d{1,2}|bits?|\d{1,2}bit|half|quantized|dynamic|(?:224|256|300|320|416|512|640)(?:x\d+)*"
)
# The least bits of a weight. Source: block sizes of llama.cpp's ggml-quants (a file mixes these
# with larger types); other names by number.
_GGUF_BITS = {
    "q2_k": 2.625, "q3_k": 3.4375, "q4_k": 4.5, "q5_k": 5.5, "q6_k": 6.5625, "q8_0": 8.5,
    "q4_0": 4.5, "q4_1": 5.0, "q5_0": 5.5, "q5_1": 6.0, "iq1": 1.5625, "iq2": 2.0625, "iq3": 3.0625,
    "iq4": 4.25, "tq1_0": 1.6875, "tq2_0": 2.0625, "mxfp4": 4.25, "nvfp4": 4.0,
}  # fmt: skip
_GGUF = re.compile(rf"(?<![a-z0-9])(?:{'|'.join(_GGUF_BITS)})")
_BITS = re.compile(
    r"(?<![a-z0-9])(?:u?int|nf|fp|bf|f|float|q|w)(\d{1,2})(?![0-9])|(?<![\d.])(\d{1,2}) ?-?bits?\b"
)


class ModelFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model, with the weights read for a token or the operations of an inference.

    The weights are those read for a token, or used for a prompt's token. The operations, 10^9, are
    at a side in pixels.
    """

    names: tuple[str, ...]
    source: str
    reads: float | None = None
    prompts: float | None = None
    side: int = 0
    gop: float | None = None


class _ModelFile(msgspec.Struct, forbid_unknown_fields=True):
    language: tuple[ModelFacts, ...]
    vision: tuple[ModelFacts, ...]


@lru_cache(maxsize=1)
def _by_name() -> tuple[tuple[re.Pattern[str], ModelFacts], ...]:
    content = msgspec.toml.decode(
        Path(__file__).with_name("models.toml").read_bytes(), type=_ModelFile
    )
    longest_first = sorted(
        [(name, model) for model in (*content.language, *content.vision) for name in model.names],
        key=lambda pair: -len(pair[0]),
    )
    patterns = ((re.escape(name).replace(r"\ ", " ?"), model) for name, model in longest_first)
    return tuple(
        (re.compile(rf"(?<![a-z0-9.]){pattern}(?![a-z0-9]|\.\d)"), model)
        for pattern, model in patterns
    )


@lru_cache(maxsize=4096)
def facts_of(name: str) -> ModelFacts | None:
    """Return the facts of a model by its name; None if it is unknown, or has unknown parts."""
    text = " ".join(re.split(r"[^a-z0-9.]+", name.casefold()))
    for pattern, model in _by_name():
        remainder, count = pattern.subn(" ", text)
        if count and all(
            _HARMLESS.fullmatch(word.strip(".")) for word in re.split(r"[ .]+", remainder) if word
        ):
            return model
    return None


def least_bits(precision: str) -> float | None:
    """Return the least bits of a weight by the stated precision; None if none is named.

    Of several types it is the fewest.
    """
    text = precision.casefold()
    numbers = [_GGUF_BITS[name] for name in _GGUF.findall(text)]
    numbers += [float(first or second) for first, second in _BITS.findall(_GGUF.sub(" ", text))]
    return min(
        (number for number in numbers if number in {1, 2, 3, 4, 5, 6, 8, 16, 32, 64} or number % 1),
        default=None,
    )
