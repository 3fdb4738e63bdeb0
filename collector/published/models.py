"""Facts of models by their names: parameters, what a token reads at least, and operations of an inference, from `models.toml`.

A name that fits two sizes, or that says that weights were taken out, has no facts: a wrong bound is worse than none.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import msgspec

# A name or a condition with one of these has another number of weights, or of operations, than its family.
_PRUNED = re.compile(r"(?<!\bno )(?<!\bnot )(?<!without )(?:\bprun|\bspars|\b[124]:[48]\b)", re.IGNORECASE)
_CHANGED = re.compile(rf"{_PRUNED.pattern}|\bslim|\bcls\b|\b0\.(?:25|35|5|50|75)\b(?! ?b)|\b0(?:25|35|50|75)\b")
# Of a family of one size, a name with any other word may be another model: `phi-4-multimodal`.
_EXPECTED = re.compile(
    r"instruct|chat|it|hf|base|latest|gguf|ggml|awq|gptq|exl\d|mlc|mlx|onnx|rkllm|hef|v\d[\d.]*|\d+k|\d{4}|meta|microsoft|google|ai|nvidia|"
    r"[ui]q\d\w*|ud|q\d\w*|k|[smlx]+|xs|xxs|nl|0|1|int\d+|fp\d+|bf\d+|f\d+|w\d+a\d+\w*|g\d+|mxfp4|nvfp4|\d+|bits?|1t|openorca|intermediate|"
    r"step|the|model|with|on|of|quantized|quantised|dynamic|half|float\d*"
)
_EXPERTS = re.compile(r"\bmoe\b|\d+x\d+b|\ba\d+(?:\.\d+)?[bm]\b|\bexperts?\b", re.IGNORECASE)
# Bits of a weight at least. Source: block sizes of llama.cpp's ggml-quants (a file mixes these with larger types); other names by number.
_GGUF_BITS = {
    "q2_k": 2.625, "q3_k": 3.4375, "q4_k": 4.5, "q5_k": 5.5, "q6_k": 6.5625, "q8_0": 8.5, "q8_k": 8.5, "q4_0": 4.5, "q4_1": 5.0,
    "q5_0": 5.5, "q5_1": 6.0, "iq1_s": 1.5625, "iq1_m": 1.75, "iq2_xxs": 2.0625, "iq2_xs": 2.3125, "iq2_s": 2.3125, "iq2_m": 2.3125,
    "iq3_xxs": 3.0625, "iq3_xs": 3.0625, "iq3_s": 3.4375, "iq3_m": 3.4375, "iq4_xs": 4.25, "iq4_nl": 4.5, "tq1_0": 1.6875, "tq2_0": 2.0625,
    "mxfp4": 4.25, "nvfp4": 4.0, "i2_s": 1.58, "q40": 4.5, "q80": 8.5,
}  # fmt: skip
_GGUF = re.compile(rf"(?<![a-z0-9])(?:{'|'.join(sorted(_GGUF_BITS, key=len, reverse=True))})", re.IGNORECASE)
# A number of bits after a type (`int4`, `w4a16`), before the word, and as torchao (`8da4w`) and MLC (`q4f16_1`) write it.
_BITS = re.compile(
    r"(?<![a-z0-9])(?:u?int|nf|fp|b?float|f|bf|q|w)(\d{1,2})(?![0-9])|(?<![\d.])(\d{1,2}(?:\.\d+)?) ?-?(?:bits?|bpw)\b"
    r"|\bq(\d)f\d\d|(?<=da)(\d)w\b|(?<=a8)w(\d)|(?<=a16)w(\d)|(?<![.\d])(\d{1,2})/(?=\d)",
    re.IGNORECASE,
)
_WIDTHS = {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64}
_NAMED_BITS = {"half": 16.0, "ternary": 1.58, "1.58": 1.58}


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a model; None: not known. `weights_mb` is what decoding one token reads at least, `gop` by the input's side in pixels.

    `prompt_parameters` are the weights that each token of a prompt passes: without the output head, which only the last one needs.
    """

    name: str
    source: str
    parameters: float | None = None
    read_parameters: float | None = None
    prompt_parameters: float | None = None
    is_dense: bool | None = None
    weights_mb: float | None = None
    gop: dict[int, float] = {}


class _Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parameters: int
    vocabulary: int = 0
    width: int = 0
    is_tied: bool = False
    read: int | None = None

    def facts(self, name: str, source: str, bits: float | None) -> ModelFacts:
        table = self.vocabulary * self.width
        read = self.read or self.parameters - (0 if self.is_tied else table)
        # Of a mixture the head is not known: it is less than half of what is read.
        prompt = read / 2 if self.read else read - table
        return ModelFacts(
            name=name, source=source, parameters=self.parameters, read_parameters=read, prompt_parameters=prompt,
            is_dense=self.read is None, weights_mb=None if bits is None else read * bits / 8e6,
        )  # fmt: skip


class _LanguageFamily(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    words: tuple[str, ...]
    source: str
    sizes: dict[str, _Size]


class _VisionFamily(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    words: tuple[str, ...]
    source: str
    side: int
    gop: dict[str, float]


class _ModelFile(msgspec.Struct, forbid_unknown_fields=True):
    language: tuple[_LanguageFamily, ...]
    vision: tuple[_VisionFamily, ...]


@lru_cache(maxsize=1)
def _families() -> _ModelFile:
    return msgspec.toml.decode(Path(__file__).with_name("models.toml").read_bytes(), type=_ModelFile)


def least_bits(precision: str) -> float | None:
    """Return the bits that a weight has at least by the precision as stated; of several types the fewest; None where none is named."""
    numbers = [_GGUF_BITS[match.lower()] for match in _GGUF.findall(precision)]
    numbers += [float(next(group for group in match.groups() if group)) for match in _BITS.finditer(_GGUF.sub(" ", precision))]
    numbers = numbers or [bits for name, bits in _NAMED_BITS.items() if name in precision.casefold()]
    return min((number for number in numbers if number in _WIDTHS or (number > 1 and number % 1)), default=None)


def is_pruned(text: str) -> bool:
    """Return whether a text says that weights were taken out, so that the facts of the family do not hold."""
    return _PRUNED.search(text) is not None


def is_mixture(name: str) -> bool:
    """Return whether a name says that the model is a mixture of experts, of which a token passes a part."""
    return _EXPERTS.search(name) is not None


@lru_cache(maxsize=1024)
def facts_of(name: str, precision: str | None) -> ModelFacts | None:
    """Return the facts of a model by its name; None where it is not known, or the name fits several.

    Without a precision that of the name counts (`...-Q4_K_M`); where there is none either, `weights_mb` is not known.
    """
    text = " ".join(re.sub(r"[-_:/,()]", " ", name.casefold()).split())
    if _CHANGED.search(text):
        return None
    bits = least_bits(precision) if precision else least_bits(name)
    for family in _families().language:
        if (remainder := _without(family.words, text)) is not None:
            tags = [tag for tag in family.sizes if re.search(rf"(?<![a-z0-9.]){re.escape(tag)}(?![a-z0-9])", text)]
            any_tag = re.search(r"(?<![a-z0-9.])\d+(?:\.\d+)?[bm](?![a-z0-9])", remainder)
            is_only = len(family.sizes) == 1 and all(_EXPECTED.fullmatch(word.strip(".")) for word in remainder.replace(".", " ").split())
            tags = tags or ([*family.sizes] if is_only and not any_tag else [])
            is_expected = len(tags) == 1 and (family.sizes[tags[0]].read is not None or not is_mixture(text))
            return family.sizes[tags[0]].facts(name, family.source, bits) if is_expected else None
    for vision in _longest_first(_families().vision):
        if (gop := _gop(vision, text)) is not None:
            return ModelFacts(name=name, source=vision.source, gop={vision.side: gop})
    return None


def _pattern(word: str) -> str:
    return re.escape(word).replace(r"\ ", " ?")


def _without(words: Iterable[str], text: str) -> str | None:
    """Return the text without the words of a family; None if it has none of them."""
    pattern = "|".join(_pattern(word) for word in sorted(words, key=len, reverse=True))
    remainder, count = re.subn(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9]|\.\d)", " ", text)
    return remainder if count else None


def _longest_first(families: Iterable[_VisionFamily]) -> list[_VisionFamily]:
    return sorted(families, key=lambda family: -max(map(len, family.words)))


def _gop(family: _VisionFamily, text: str) -> float | None:
    """Return the operations of a member of the family; a letter after the words says which (`yolo11n`)."""
    letters = f" ?([{''.join(family.gop)}])?" if "" not in family.gop else "()"
    words = "|".join(map(_pattern, family.words))
    match = re.search(rf"(?<![a-z0-9])(?:{words}){letters}(?![a-z0-9]| ?v\d)", text)
    return family.gop.get(match[1] or "") if match else None
