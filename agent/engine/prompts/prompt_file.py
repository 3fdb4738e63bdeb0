"""Files of prompts: JSON Lines or JSON with `prompt`, `messages` (OpenAI) or `conversations` (ShareGPT), SQuAD, or a prompt a line.

| form | a prompt is |
|---|---|
| `{"prompt": "..."}`, also with `id` and `answers` | the text |
| `{"messages": [{"role", "content"}]}` | all messages up to the user's last |
| `{"conversations": [{"from": "human", "value"}]}` | the messages up to the user's first; of a conversation all of the user's are asked in turn |
| SQuAD's `{"data": [{"paragraphs"}]}` | passage and question |
| a text file | each line that is not empty |
"""

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.items import read_bytes
from edgemeter.agent.datasets.texts import RightAnswers, Squad
from edgemeter.agent.generators import ChatMessage
from edgemeter.agent.quality.short_answers import Question

# Data sets that come with the agent, by name.
SHIPPED: Mapping[str, Path] = {"edgemeter-questions": Path(__file__).resolve().parents[3] / "models" / "language" / "questions.jsonl"}
_ROLES: Mapping[str, Literal["system", "user", "assistant"]] = {
    "human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant", "bard": "assistant",
    "assistant": "assistant", "system": "system",
}  # fmt: skip


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str


class _Said(msgspec.Struct, frozen=True):
    value: str
    role: str = msgspec.field(name="from")


class _Entry(msgspec.Struct, frozen=True):
    """One object of a file, of whichever form."""

    prompt: str | None = None
    messages: tuple[_Message, ...] = ()
    conversations: tuple[_Said, ...] = ()
    answers: tuple[str, ...] | None = None
    id: str | int | None = None


@dataclass(frozen=True, slots=True)
class PromptItem:
    """One prompt, and the question that it asks where right answers are stated.

    `messages` are those of a request; `turns` are all that the user says in the conversation that it begins.
    """

    messages: tuple[ChatMessage, ...]
    turns: tuple[str, ...]
    question: Question | None = None

    @property
    def text(self) -> str:
        """Return the prompt without a template: the texts, an empty line between two."""
        return "\n\n".join(message.text for message in self.messages)


@dataclass(frozen=True, slots=True)
class PromptFile:
    """The prompts of a file in its order; `sha256` is that of the prompts used, with their answers."""

    name: str
    items: tuple[PromptItem, ...]
    sha256: str

    @property
    def questions(self) -> tuple[Question, ...]:
        """Return the questions with their right answers; empty unless all prompts are such."""
        questions = tuple(item.question for item in self.items if item.question is not None)
        return questions if len(questions) == len(self.items) else ()


def path_of(named: str) -> Path:
    """Return the file of a data set by its name or path; raises ConfigError if there is none."""
    path = SHIPPED.get(Path(named).name, Path(named))
    if not path.is_file():
        raise ConfigError(f"there are no prompts {named!r}: give a file, or one of {', '.join(SHIPPED)}")
    return path


def read_prompts(named: str, subset: int | None = None, seed: int = 0) -> PromptFile:
    """Return the prompts of a file or a shipped data set, of `subset` a random draw that is the same everywhere.

    Raises:
        ConfigError: it cannot be read, is of no form that is known, or holds no prompt; the entry is named.
    """
    path = path_of(named)
    if Squad().recognises(path, None):
        items = _squad_items(path)
    else:
        content = read_bytes(path, "the prompts").removeprefix(b"\xef\xbb\xbf")
        entries = _lines(path, content) if path.suffix.lower() not in (".json", ".jsonl", ".ndjson") else _entries(path, content)
        items = [_item(path, number, entry) for number, entry in enumerate(entries, 1)]
    if not items:
        raise ConfigError(f"{str(path)!r} holds no prompt: give a file with at least one")
    if subset is not None and subset < len(items):
        chosen = sorted(random.Random(seed).sample(range(len(items)), subset))  # noqa: S311 - a repeatable draw is wanted
        items = [items[index] for index in chosen]
    return PromptFile(path.name, tuple(items), hashlib.sha256(msgspec.json.encode(items)).hexdigest())


def _lines(path: Path, content: bytes) -> list[_Entry]:
    try:
        return [_Entry(prompt=line) for line in content.decode().splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read the prompts in {str(path)!r}: {error}") from error


def _entries(path: Path, content: bytes) -> list[_Entry]:
    """Return the objects of a JSON array, or of JSON Lines."""
    try:
        if content.lstrip().startswith(b"["):
            return list(msgspec.json.decode(content, type=tuple[_Entry, ...]))
        lines = [(number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip()]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the prompts in {str(path)!r}: {error}") from error
    entries = []
    for number, line in lines:
        try:
            entries.append(msgspec.json.decode(line, type=_Entry))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(f"{str(path)!r}, line {number}: {error}") from error
    return entries


def _item(path: Path, number: int, entry: _Entry) -> PromptItem:
    identity = str(number if entry.id is None else entry.id)
    written: Sequence[tuple[str, str]] = (
        [("user", entry.prompt)]
        if entry.prompt is not None
        else [(message.role, message.content) for message in entry.messages] or [(message.role, message.value) for message in entry.conversations]
    )
    if unknown := [role for role, _ in written if role not in _ROLES]:
        raise ConfigError(f"{str(path)!r}: prompt {identity!r} has a message of {unknown[0]!r}: give system, user and assistant only")
    messages = [ChatMessage(_ROLES[role], text) for role, text in written]
    users = [index for index, message in enumerate(messages) if message.role == "user" and message.text.strip()]
    if not users:
        raise ConfigError(f"{str(path)!r}: prompt {identity!r} holds no text of a user: give prompt, messages or conversations")
    last = users[0] if entry.conversations else users[-1]
    text = entry.prompt if entry.prompt is not None else messages[last].text
    question = None if entry.answers is None else Question(id=identity, prompt=text, answers=entry.answers)
    return PromptItem(tuple(messages[: last + 1]), tuple(messages[index].text for index in users), question)


def _squad_items(path: Path) -> list[PromptItem]:
    truth = Squad().read(path, None)
    items = []
    for item in truth.items:
        text = f"{item.context}\n\nQuestion: {item.text}\nAnswer:"
        right: Any = truth.targets.values[item.name]
        answers = right.texts if isinstance(right, RightAnswers) else ()
        items.append(PromptItem((ChatMessage("user", text),), (text,), Question(id=item.name, prompt=text, answers=answers)))
    return items
