"""Questions about passages as SQuAD 1.1 and 2.0 write them: nested JSON, an item per question.

{"version", "data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text", "answer_start"}],
"is_impossible"}]}]}]}. A question without answers has none (2.0). A question's `group`, which is ours, names its group.
"""

from codecs import BOM_UTF8
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets import GroundTruth, Targets
from edgemeter.agent.datasets.items import Item, read_bytes

_HEAD_BYTES = 4096


class _Answer(msgspec.Struct, frozen=True):
    text: str


class _Question(msgspec.Struct, frozen=True):
    id: str
    question: str
    answers: tuple[_Answer, ...]
    is_impossible: bool = False
    group: str | None = None


class _Paragraph(msgspec.Struct, frozen=True):
    context: str
    qas: tuple[_Question, ...]


class _Article(msgspec.Struct, frozen=True):
    paragraphs: tuple[_Paragraph, ...]


class _SquadDocument(msgspec.Struct, frozen=True):
    data: tuple[_Article, ...]


@dataclass(frozen=True, slots=True)
class RightAnswers:
    """The answers of a question, each of them right; none where it has none. `may_be_none`: some question of the data has none."""

    texts: tuple[str, ...]
    may_be_none: bool


class Squad:
    """A file of SQuAD (.json): `--images dev-v1.1.json`, no annotations."""

    def recognises(self, folder: Path, annotations: Path | None) -> bool:
        """Return whether the data is one .json file that begins as SQuAD's do."""
        if annotations is not None or folder.suffix.lower() != ".json" or not folder.is_file():
            return False
        try:
            with folder.open("rb") as file:
                head = file.read(_HEAD_BYTES)
        except OSError:
            return False
        return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and b'"data"' in head and b'"paragraphs"' in head

    def read(self, folder: Path, _annotations: Path | None) -> GroundTruth:
        """Return the questions with their passages and right answers."""
        try:
            document = msgspec.json.decode(read_bytes(folder, "the questions").removeprefix(BOM_UTF8), type=_SquadDocument)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(f"{str(folder)!r} is not of SQuAD's form: {error}") from error
        asked = [(one, part.context) for article in document.data for part in article.paragraphs for one in part.qas]
        if not asked:
            raise ConfigError(f"{str(folder)!r} holds no question: give a file with at least one")
        may_be_none = any(one.is_impossible or not one.answers for one, _ in asked)
        items: dict[str, Item] = {}
        for one, context in asked:
            if one.id in items:
                raise ConfigError(f"{str(folder)!r} has the question {one.id!r} twice: leave one of them")
            items[one.id] = Item(one.id, folder, "text", one.question, context)
        values = {one.id: RightAnswers(() if one.is_impossible else tuple(x.text for x in one.answers), may_be_none) for one, _ in asked}
        groups = {one.id: one.group for one, _ in asked if one.group is not None}
        return GroundTruth(Targets(values, groups), folder, items=tuple(items.values()))
