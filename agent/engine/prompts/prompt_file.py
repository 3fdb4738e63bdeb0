"""Files of prompts: JSON Lines or JSON with `prompt`, `messages` (OpenAI) or `conversations` (ShareGPT), or a prompt a line.

| form | a prompt is |
|---|---|
| `{"prompt": "..."}` | the text |
| `{"messages": [{"role", "content"}]}` | all messages up to the user's last |
| `{"conversations": [{"from": "human", "value"}]}` | the messages up to the user's first |
| a text file | each line that is not empty |

An object may also have an `id`, an `image` (a file beside this one, shown before the user's last text), and what is right: `answer` (a
text or number), `answers` (any of them), or `choices` with the letter of the right one, or its number from 0, as `answer`; the choices are
then added to the prompt, a letter before each.
"""

import hashlib
import random
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.model_names import shipped_text
from edgemeter.agent.datasets.items import json_lines, read_bytes
from edgemeter.agent.generators import ChatMessage, Picture
from edgemeter.agent.quality.answer_key import AnswerKey

_ROLES: Mapping[str, Literal["system", "user", "assistant"]] = {
    "human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant", "bard": "assistant",
    "assistant": "assistant", "system": "system",
}  # fmt: skip


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str


class _Turn(msgspec.Struct, frozen=True):
    value: str
    role: str = msgspec.field(name="from")


class _PromptEntry(msgspec.Struct, frozen=True):
    """One object of a file, of whichever form."""

    prompt: str | None = None
    image: str | None = None
    messages: tuple[_Message, ...] = ()
    conversations: tuple[_Turn, ...] = ()
    answer: str | int | float | None = None
    answers: tuple[str, ...] | None = None
    choices: tuple[str, ...] = ()
    id: str | int | None = None


@dataclass(frozen=True, slots=True)
class PromptItem:
    """One prompt, the messages of a request, with its right answer where one is stated."""

    name: str
    messages: tuple[ChatMessage, ...]
    key: AnswerKey | None = None


@dataclass(frozen=True, slots=True)
class PromptFile:
    """The prompts of a file in its order; `sha256` is that of the prompts used, with their answers, `file_sha256` that of the file."""

    name: str
    items: tuple[PromptItem, ...]
    sha256: str
    file_sha256: str

    @property
    def has_answers(self) -> bool:
        """Whether every prompt states what is right."""
        return all(item.key is not None for item in self.items)


def path_of(prompts: str) -> Path:
    """Return the file of prompts by its path, or of a shipped data set by its name; raises ConfigError if there is none."""
    path = Path(prompts)
    shipped = shipped_text(f"{path.name.removeprefix('edgemeter-')}.jsonl")
    if not path.is_file() and shipped is None:
        raise ConfigError(f"there are no prompts {prompts!r}: give a file, or edgemeter-questions")
    return path if path.is_file() or shipped is None else shipped


def files_of(prompts: str) -> list[Path]:
    """Return the file of prompts and the pictures that it names; raises ConfigError if there is none, or it cannot be read."""
    path = path_of(prompts)
    content = read_bytes(path, "the prompts")
    if b'"image"' not in content:
        return [path]
    return [path, *(path.parent / entry.image for entry in _entries(path, content) if entry.image is not None)]


def read_prompts(prompts: str, subset: int | None = None, seed: int = 0) -> PromptFile:
    """Return the prompts of a file or a shipped data set, of `subset` a random draw that is the same everywhere.

    Raises:
        ConfigError: it cannot be read, is of no form that is known, or holds no prompt; the entry is named.
    """
    path = path_of(prompts)
    content = read_bytes(path, "the prompts")
    items = [_item(path, number, entry) for number, entry in enumerate(_entries(path, content.removeprefix(b"\xef\xbb\xbf")), 1)]
    if not items:
        raise ConfigError(f"{str(path)!r} holds no prompt: give a file with at least one")
    if subset is not None and subset < len(items):
        indices = sorted(random.Random(seed).sample(range(len(items)), subset))  # noqa: S311 - a repeatable draw is wanted
        items = [items[index] for index in indices]
    return PromptFile(path.name, tuple(items), hashlib.sha256(msgspec.json.encode(items)).hexdigest(), hashlib.sha256(content).hexdigest())


def _entries(path: Path, content: bytes) -> Sequence[_PromptEntry]:
    """Return the objects of JSON Lines or of a JSON array; of another file its lines."""
    where = f"cannot read the prompts in {str(path)!r}"
    try:
        if path.suffix.lower() not in (".json", ".jsonl", ".ndjson"):
            return [_PromptEntry(prompt=line) for line in content.decode().splitlines() if line.strip()]
        if content.lstrip().startswith(b"["):
            return decode_json(content, tuple[_PromptEntry, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: {error}") from error
    return [entry for _, entry in json_lines(where, content, _PromptEntry)]


def _item(path: Path, number: int, entry: _PromptEntry) -> PromptItem:
    name = str(number if entry.id is None else entry.id)
    where = f"{str(path)!r}: prompt {name!r}"
    messages = _messages(entry, where)
    users = [index for index, message in enumerate(messages) if message.role == "user" and message.text.strip()]
    if not users:
        raise ConfigError(f"{where} holds no text of a user: give prompt, messages or conversations")
    last = users[0] if entry.conversations else users[-1]
    key, listed = _key(entry, where)
    picture = None if entry.image is None else Picture(entry.image, read_bytes(path.parent / entry.image, f"the picture of {where}"))
    request = (*messages[:last], ChatMessage("user", messages[last].text + listed, picture))
    return PromptItem(name, request, key)


def _messages(entry: _PromptEntry, where: str) -> list[ChatMessage]:
    written = [(message.role, message.content) for message in entry.messages] or [(turn.role, turn.value) for turn in entry.conversations]
    if entry.prompt is not None:
        written = [("user", entry.prompt)]
    if unknown := [role for role, _ in written if role not in _ROLES]:
        raise ConfigError(f"{where} has a message of {unknown[0]!r}: give system, user and assistant only")
    return [ChatMessage(_ROLES[role], text) for role, text in written]


def _key(entry: _PromptEntry, where: str) -> tuple[AnswerKey | None, str]:
    """Return what is right, and the choices as they are added to the prompt."""
    if not entry.choices:
        answers = entry.answers if entry.answer is None else (str(entry.answer),)
        return None if answers is None else AnswerKey(answers), ""
    letters = string.ascii_uppercase[: len(entry.choices)]
    index = letters.find(entry.answer) if isinstance(entry.answer, str) and len(entry.answer) == 1 else entry.answer
    if not isinstance(index, int) or not 0 <= index < len(letters):
        raise ConfigError(f"{where} has no choice {entry.answer!r}: give the letter of one of at most 26 choices, or its number from 0")
    lines = [f"{letter}. {choice}" for letter, choice in zip(letters, entry.choices, strict=False)]
    return AnswerKey((letters[index],), len(letters)), "\n\n" + "\n".join(lines) + "\n\nAnswer with the letter of the right choice."
