"""Texts: tables with a class each, those of GLUE's tasks as they are downloaded and plain ones, and questions about passages (SQuAD).

| task | columns | classes | metric |
|---|---|---|---|
| SST-2 | sentence, label | 0, 1 | accuracy |
| CoLA | source, label, mark, sentence; no heading | 0, 1 | Matthews correlation |
| MRPC | Quality, #1 ID, #2 ID, #1 String, #2 String | 0, 1 | F1 of class 1 |
| QQP | id, qid1, qid2, question1, question2, is_duplicate | 0, 1 | F1 of class 1 |
| STS-B | index, ..., sentence1, sentence2, score | a number, 0..5 | Pearson's correlation |
| QNLI | index, question, sentence, label | entailment, not_entailment | accuracy |
| RTE | index, sentence1, sentence2, label | entailment, not_entailment | accuracy |
| MNLI | index, ..., sentence1, sentence2, ..., gold_label | contradiction, entailment, neutral | accuracy |

A plain table has a heading with `sentence` or `text` (or `sentence1` and `sentence2`) and `label`, or `score` for a number; a column
`group` names the group of a text. Quotation marks stand for themselves. Source of layouts and metrics: A. Wang et al., GLUE
(arXiv:1804.07461), gluebenchmark.com.

SQuAD 1.1 and 2.0 are nested JSON, an item per question:
{"version", "data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text", "answer_start"}],
"is_impossible"}]}]}]}. A question without answers has none (2.0). A question's `group`, which is ours, names its group.
"""

from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.datasets import GroundTruth, Targets
from edgemeter.agent.datasets.coco import decode_problem
from edgemeter.agent.datasets.items import Item, head_of, is_number, read_bytes, read_text

TextMetric = Literal["accuracy", "f1", "matthews", "pearson"]
_TABLE_HEAD_BYTES = 65536
_COLA_COLUMNS = 4
_FIRST = ("sentence", "text", "sentence1", "question", "#1 String", "question1")
_SECOND = ("sentence2", "sentence", "#2 String", "question2")
# Its metric, by the heading of the column that holds the label.
_LABEL: Mapping[str, TextMetric] = {
    "gold_label": "accuracy", "label": "accuracy", "Quality": "f1", "is_duplicate": "f1", "score": "pearson",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TextClass:
    """The class of a text by its name (of `pearson` the number meant), and the metric that the table's task is scored by."""

    label: str
    metric: TextMetric = "accuracy"


@dataclass(frozen=True, slots=True)
class _ColumnLayout:
    """In which columns of a table what stands; `names` are those of a heading, `first_row` is that of the first text."""

    columns: int
    first: int
    second: int | None
    label: int
    names: dict[str, int]
    metric: TextMetric
    first_row: int


class Glue:
    """A table of texts (.tsv): `--data dev.tsv`, no annotations."""

    def recognises(self, folder: Path, annotations: Path | None) -> bool:
        """Return whether the data is one .tsv file whose first line is one of these."""
        if annotations is not None or folder.suffix.lower() != ".tsv" or not folder.is_file():
            return False
        head = head_of(folder, _TABLE_HEAD_BYTES).decode("utf-8-sig", errors="replace")
        return _layout(head.split("\n", 1)[0].rstrip("\r").split("\t")) is not None

    def read(self, folder: Path, _annotations: Path | None) -> GroundTruth:
        """Return the texts with their classes."""
        rows = _rows(folder)
        layout = _layout(rows[0])
        if layout is None:
            raise ConfigError(
                f"{str(folder)!r} has the columns {', '.join(rows[0])[:80]!r}: give one of GLUE's tables, or sentence and label"
            )
        items, values = [], {}
        fields: dict[str, dict[str, str]] = {name: {} for name in layout.names}
        for number, row in enumerate(rows[layout.first_row :], layout.first_row + 1):
            if len(row) != layout.columns:
                raise ConfigError(f"{str(folder)!r}: line {number} has {len(row)} columns, {layout.columns} are needed: correct it")
            if not row[layout.label].strip() or not row[layout.first].strip():
                raise ConfigError(f"{str(folder)!r}: line {number} has no {'label' if row[layout.first].strip() else 'text'}: correct it")
            if layout.metric == "pearson" and not is_number(row[layout.label]):
                raise ConfigError(
                    f"{str(folder)!r}: line {number} has the score {row[layout.label][:40]!r}, which is no number: correct it"
                )
            name = f"{number:08d}"
            second = None if layout.second is None else row[layout.second]
            items.append(Item(name, folder, "text", row[layout.first], second))
            values[name] = TextClass(row[layout.label].strip(), layout.metric)
            for field_name, column in layout.names.items():
                if row[column].strip():
                    fields[field_name][name] = row[column].strip()
        if not items:
            raise ConfigError(f"{str(folder)!r} holds no text: give a table with at least one")
        return GroundTruth(Targets(values, fields.get("group", {})), folder, items=tuple(items), fields=fields)


def _rows(path: Path) -> list[list[str]]:
    text = read_text(path, "the texts")
    # Not `splitlines`: sentences hold characters that it takes for the end of a line.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return [line.split("\t") for line in lines] or [[]]


def _layout(heading: Sequence[str]) -> _ColumnLayout | None:
    if len(heading) == _COLA_COLUMNS and heading[1] in ("0", "1") and heading[2] in ("", "*"):
        return _ColumnLayout(_COLA_COLUMNS, 3, None, 1, {}, "matthews", 0)
    columns = {name: number for number, name in reversed(list(enumerate(heading)))}
    label = next((columns[name] for name in _LABEL if name in columns), None)
    first = next((name for name in _FIRST if name in columns and not (name == "sentence" and "question" in columns)), None)
    if label is None or first is None:
        return None
    second = (
        next((columns[name] for name in _SECOND if name in columns and name != first), None) if first not in ("sentence", "text") else None
    )
    return _ColumnLayout(len(heading), columns[first], second, label, columns, _LABEL[heading[label]], 1)


_DOCUMENT_HEAD_BYTES = 4096


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
    title: str = ""


class _SquadDocument(msgspec.Struct, frozen=True):
    data: tuple[_Article, ...]


@dataclass(frozen=True, slots=True)
class RightAnswers:
    """The answers of a question, each of them right; none where it has none. `may_be_none`: some question of the data has none."""

    texts: tuple[str, ...]
    may_be_none: bool


class Squad:
    """A file of SQuAD (.json): `--data dev-v1.1.json`, no annotations."""

    def recognises(self, folder: Path, annotations: Path | None) -> bool:
        """Return whether the data is one .json file that begins as SQuAD's do."""
        if annotations is not None or folder.suffix.lower() != ".json" or not folder.is_file():
            return False
        head = head_of(folder, _DOCUMENT_HEAD_BYTES)
        return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and b'"data"' in head and b'"paragraphs"' in head

    def read(self, folder: Path, _annotations: Path | None) -> GroundTruth:
        """Return the questions with their passages and right answers."""
        content = read_bytes(folder, "the questions").removeprefix(BOM_UTF8)
        try:
            document = decode_json(content, _SquadDocument)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{str(folder)!r} is not of SQuAD's form: {decode_problem(content, error)}") from error
        questions = [(question, part.context) for article in document.data for part in article.paragraphs for question in part.qas]
        if not questions:
            raise ConfigError(f"{str(folder)!r} holds no question: give a file with at least one")
        may_be_none = any(question.is_impossible or not question.answers for question, _ in questions)
        items: dict[str, Item] = {}
        for question, context in questions:
            if question.id in items:
                raise ConfigError(f"{str(folder)!r} has the question {question.id!r} twice: leave one of them")
            items[question.id] = Item(question.id, folder, "text", question.question, context)
        values = {
            question.id: RightAnswers(() if question.is_impossible else tuple(x.text for x in question.answers), may_be_none)
            for question, _ in questions
        }
        groups = {question.id: question.group for question, _ in questions if question.group is not None}
        titles = {question.id: of.title for of in document.data for part in of.paragraphs for question in part.qas if of.title}
        return GroundTruth(Targets(values, groups), folder, items=tuple(items.values()), fields={"title": titles} if titles else {})
