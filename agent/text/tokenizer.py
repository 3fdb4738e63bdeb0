"""Text becomes a model's inputs: tokens by its tokenizer.json (package tokenizers), padded or cut as its card states, by name and dtype."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edgemeter.agent.base.durable_file import sha256_of
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.plugins import import_extra
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Array, Loaded, TensorInfo
from edgemeter.agent.runtimes.adapter import describe_tensor, shape_fits

Role = Literal["ids", "mask", "types", "positions"]
# By part of an input's name, the first that fits. Names are those of BERT's own export, TensorFlow Hub's, and transformers'.
_ROLES: tuple[tuple[str, Role], ...] = (
    ("mask", "mask"), ("type", "types"), ("segment", "types"), ("position", "positions"), ("ids", "ids"), ("token", "ids"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TextWindow:
    """One call: `tokens` token ids, 1 where there is text (`mask`), and which text a token is of (`types`), all of one length.

    `offsets` are, per token, the characters of the context that it stands for (first, end), None outside the context. `most_context` says
    whether no other window has more context around this token.
    """

    tokens: tuple[int, ...]
    mask: tuple[int, ...]
    types: tuple[int, ...]
    offsets: tuple[tuple[int, int] | None, ...]
    most_context: tuple[bool, ...] = ()


class TextTokenizer:
    """Cuts texts for one model."""

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._model, self._wanted, self._loaded = model, model.text, loaded
        self._tokenizer = _read(model)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.roles = _roles(model, loaded)
        self.length = self._length()
        self._padding_id = next((n for n in map(self._tokenizer.token_to_id, ("[PAD]", "<pad>", "<PAD>")) if n is not None), 0)

    def call(self, text: str, context: str | None) -> tuple[TextWindow, bool]:
        """Return the text, or the pair of texts, as one call, and whether it had to be cut."""
        encoded = self._tokenizer.encode(text, context)
        limit = self._wanted.tokens or self.length
        if limit is None or len(encoded.ids) <= limit:
            return _window(encoded), False
        self._tokenizer.enable_truncation(limit, strategy="longest_first")
        try:
            return _window(self._tokenizer.encode(text, context)), True
        finally:
            self._tokenizer.no_truncation()

    def windows(self, question: str, context: str) -> list[TextWindow]:
        """Return the calls for a question about a passage, which is cut into windows as BERT's run_squad.py does it.

        Raises:
            ConfigError: a call has no room for the passage.
        """
        encoded = self._tokenizer.encode(question, add_special_tokens=False)
        passage = self._tokenizer.encode(context, add_special_tokens=False)
        encoded.truncate(self._wanted.question_tokens)
        limit = self._wanted.tokens or self.length
        if limit is not None:
            room = limit - len(encoded.ids) - self._tokenizer.num_special_tokens_to_add(is_pair=True)
            if room < 1:
                raise ConfigError(
                    f"model {self._model.name!r} takes {limit} tokens, a question of {len(encoded.ids)} leaves none for the passage: lower "
                    "input.question_tokens in its card"
                )
            passage.truncate(room, stride=max(room - self._wanted.stride_tokens, 0))
        parts = [passage, *passage.overflowing]
        starts = np.cumsum([0, *(min(len(part.ids), self._wanted.stride_tokens) for part in parts[:-1])])
        best = _most_context(starts.tolist(), [len(part.ids) for part in parts])
        return [_window(self._tokenizer.post_process(encoded, part), most_context) for part, most_context in zip(parts, best, strict=True)]

    def inputs(self, window: TextWindow) -> dict[str, Array]:
        """Return the model's inputs by name, [1, tokens] each (its own batch where that is fixed), int32 or int64 as it declares."""
        filled = len(window.tokens)
        length = (self.length or filled) if self._wanted.padding == "tokens" else filled
        values = {
            "ids": [*window.tokens, *[self._padding_id] * (length - filled)],
            "mask": [*window.mask, *[0] * (length - filled)],
            "types": [*window.types, *[0] * (length - filled)],
            "positions": range(length),
        }
        return {info.name: self._tensor(info, values[role]) for info, role in zip(self._loaded.inputs, self.roles, strict=True)}

    def noise(self, seed: int, count: int) -> list[dict[str, Array]]:
        """Return calls of random tokens, for timing only; 128 of them where the model takes any number."""
        draw = np.random.default_rng(seed)
        size, length = self._tokenizer.get_vocab_size(), self.length or 128
        sequences = [tuple(draw.integers(0, size, length).tolist()) for _ in range(count)]
        return [self.inputs(TextWindow(tokens, (1,) * length, (0,) * length, (None,) * length)) for tokens in sequences]

    def _tensor(self, info: TensorInfo, values: Sequence[int]) -> Array:
        batch = info.shape[0] if info.shape and info.shape[0] else 1
        return np.repeat(np.array([list(values)], np.dtype(info.dtype)), batch, axis=0)

    def _length(self) -> int | None:
        """Return the tokens of every call; None where each has its own."""
        fixed = [size for info in self._loaded.inputs if len(info.shape) == 2 and (size := info.shape[1]) is not None]
        tokens = self._wanted.tokens
        for info in self._loaded.inputs:
            if (
                len(info.shape) != 2
                or np.dtype(info.dtype).kind not in "iuf"
                or not shape_fits((info.shape[0] or 1, tokens or max(fixed, default=1)), info.shape)
            ):
                raise ConfigError(
                    f"input {info.name!r} of model {self._model.name!r} takes {describe_tensor(info.dtype, info.shape)}, its card has "
                    f"{'any number of' if tokens is None else tokens} tokens: correct input.tokens, or export it with [1, tokens]"
                )
        if fixed and self._wanted.padding == "none":
            raise ConfigError(f"model {self._model.name!r} takes {max(fixed)} tokens always: remove input.padding from its card")
        return None if self._wanted.padding == "none" else tokens or (max(fixed) if fixed else None)


def _read(model: Card) -> Any:
    text_input = model.text
    path = Path(text_input.tokenizer)
    library = import_extra("tokenizers", "text", "text needs tokenizers, which is not installed")
    try:
        sha256, text = sha256_of(path), path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot read the tokenizer {str(path)!r} of model {model.name!r}: {error.strerror}: put it beside the model"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the tokenizer {str(path)!r} is not UTF-8 text: give a tokenizer.json") from error
    if text_input.tokenizer_sha256 != sha256:
        card_hash = f"sha256 {text_input.tokenizer_sha256}" if text_input.tokenizer_sha256 else "no input.tokenizer_sha256"
        raise ConfigError(
            f"the tokenizer {str(path)!r} has sha256 {sha256}, the card of model {model.name!r} has {card_hash}: correct one of them"
        )
    try:
        return library.Tokenizer.from_str(text)
    except Exception as error:
        # The library raises this very class, and nothing narrower.
        if type(error) is not Exception:
            raise
        raise ConfigError(f"{str(path)!r} is no tokenizer.json: {' '.join(str(error).split())[:200]}") from error


def _roles(model: Card, loaded: Loaded) -> tuple[Role, ...]:
    """Return what each input takes, by the card or else by its name."""
    declared, names = model.text.inputs, [info.name for info in loaded.inputs]
    listed = ", ".join(map(repr, names)) or "undeclared"
    if declared and len(declared) != len(names):
        raise ConfigError(f"model {model.name!r} has {len(names)} inputs ({listed}), its card names {len(declared)}: correct input.inputs")
    if not declared and len(names) == 1:
        return ("ids",)
    roles: list[Role] = list(declared)
    if not declared:
        for name in names:
            roles += [role for part, role in _ROLES if part in name.lower()][:1]
    if len(roles) < len(names) or len(set(roles)) < len(roles) or "ids" not in roles:
        raise ConfigError(
            f"what the inputs of model {model.name!r} take ({listed}) is not clear from their names: write input.inputs in its card, e.g. "
            '["ids", "mask", "types"]'
        )
    return tuple(roles)


def _window(encoded: Any, most_context: Sequence[bool] = ()) -> TextWindow:
    of_context = [number == 1 for number in encoded.sequence_ids]
    offsets = tuple(tuple(span) if inside else None for span, inside in zip(encoded.offsets, of_context, strict=True))
    flags = iter(most_context)
    return TextWindow(
        tokens=tuple(encoded.ids),
        mask=tuple(encoded.attention_mask),
        types=tuple(encoded.type_ids),
        offsets=offsets,
        most_context=tuple(inside and next(flags, True) for inside in of_context),
    )


def _most_context(starts: Sequence[int], lengths: Sequence[int]) -> list[list[bool]]:
    """Return for each token of each window whether it is the one that sees most around it; the first of several.

    A window is as good as the fewer of the tokens to its left and right, plus a hundredth of its length.
    Source: `_check_is_max_context` of google-research/bert, run_squad.py.
    """
    best: dict[int, tuple[float, int]] = {}
    for window, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        for position in range(length):
            score = min(position, length - 1 - position) + 0.01 * length
            if start + position not in best or score > best[start + position][0]:
                best[start + position] = (score, window)
    spans: Mapping[int, tuple[int, int]] = dict(enumerate(zip(starts, lengths, strict=True)))
    return [[best[start + position][1] == window for position in range(length)] for window, (start, length) in spans.items()]
