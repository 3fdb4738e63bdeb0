"""Tables of texts as GLUE's tasks are downloaded, and questions as SQuAD has them."""

import json

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.datasets.texts import RightAnswers
from tests.fixtures.rows import table_row

MNLI_HEADING = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1\t"
    "sentence2\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label"
)
# Heading, a line, and what comes of it: text, second text, label, metric. Source of the layouts: the files of gluebenchmark.com.
LAYOUTS = {
    "sst-2": ("sentence\tlabel", "it 's \"good\"\t1", ("it 's \"good\"", None, "1", "accuracy")),
    "cola": (None, "gj04\t0\t*\tThe sailors rode.", ("The sailors rode.", None, "0", "matthews")),
    "mrpc": ("\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", "1\t7\t8\tone\ttwo", ("one", "two", "1", "f1")),
    "qnli": ("index\tquestion\tsentence\tlabel", "0\twhat\tthis\tnot_entailment", ("what", "this", "not_entailment", "accuracy")),
    "rte": ("index\tsentence1\tsentence2\tlabel", "0\ta\tb\tentailment", ("a", "b", "entailment", "accuracy")),
    "mnli": (
        MNLI_HEADING,
        "0\t6\t6e\tslate\t(\t)\t(\t)\tfirst\tsecond\tneutral\tneutral\tneutral\tneutral\tneutral\tentailment",
        ("first", "second", "entailment", "accuracy"),
    ),
}  # fmt: skip


def test_glue_s_tables_are_read_as_they_are_downloaded(tmp_path):
    """Columns by heading, quotation marks and odd line separators are text, CoLA has no heading."""
    for ending in ["\n", "\r\n"]:
        for name, (heading, line, expected) in LAYOUTS.items():
            with table_row(name, ending):
                path = tmp_path / "dev.tsv"
                path.write_bytes(ending.join([*([heading] if heading else []), line, ""]).encode())
                data = open_folder(path)
                (item,), (target,) = data.items, data.targets.values()
                assert (item.text, item.context, target.label, target.metric) == expected


def test_groups_and_odd_line_separators_of_a_plain_table(tmp_path):
    """U+2028 is inside a text; an empty group is none."""
    path = tmp_path / "own.tsv"
    path.write_text("text\tlabel\tgroup\na\u2028b\tgood\tshort\nc\tbad\t\n", encoding="utf-8")
    data = open_folder(path)
    assert [item.text for item in data.items] == ["a\u2028b", "c"]
    assert data.groups == {data.items[0].name: "short"}


def test_a_spoilt_table_is_refused_by_its_line(tmp_path):
    """The error is one line that says what is wrong with which line of the table."""
    for text, match in [
        (b"sentence\tlabel\n", "holds no text"),
        (b"sentence\tlabel\nx\t1\nx\n", "line 3 has 1 columns, 2 are needed"),
        (b"sentence\tlabel\nx\t\n", "line 2 has no label"),
        (b"sentence\tlabel\n\t1\n", "line 2 has no text"),
        (b"sentence\tlabel\n\xff\t1\n", "is not UTF-8"),
        (b"a\tb\nx\t1\n", "no reader recognises"),
    ]:
        path = tmp_path / "dev.tsv"
        path.write_bytes(text)
        with table_row(text), pytest.raises(ConfigError, match=match) as refused:
            open_folder(path)
        assert "\n" not in str(refused.value), f"{text!r}"


def document(qas):
    """Return a document with one passage."""
    return json.dumps({"version": "x", "data": [{"title": "t", "paragraphs": [{"context": "Tea is hot.", "qas": qas}]}]})


def test_squad_s_questions_come_with_passage_and_all_right_answers(tmp_path):
    """Version 2.0: an impossible question has none, whatever plausible ones stand beside it."""
    path = tmp_path / "dev.json"
    answers = [{"text": "Tea", "answer_start": 0}, {"text": "Tea is", "answer_start": 0}]
    path.write_text(
        document(
            [
                {"id": "b", "question": "What?", "answers": answers, "is_impossible": False, "group": "drinks"},
                {"id": "a", "question": "Who?", "answers": [], "plausible_answers": answers, "is_impossible": True},
            ]
        )
    )
    data = open_folder(path)
    assert [(item.name, item.text, item.context) for item in data.items] == [("a", "Who?", "Tea is hot."), ("b", "What?", "Tea is hot.")]
    assert data.targets == {"a": RightAnswers((), may_be_none=True), "b": RightAnswers(("Tea", "Tea is"), may_be_none=True)}
    assert data.groups == {"b": "drinks"}


def test_squad_1_has_an_answer_to_every_question(tmp_path):
    """Nothing there allows an empty answer."""
    path = tmp_path / "dev.json"
    path.write_text(document([{"id": "a", "question": "What?", "answers": [{"text": "Tea", "answer_start": 0}]}]))
    assert open_folder(path).targets["a"] == RightAnswers(("Tea",), may_be_none=False)


def test_the_same_passage_with_another_question_is_other_data(tmp_path):
    """No letter can move from the question to the passage unseen."""
    hashes = []
    for question, context in (("ab", "c"), ("a", "bc")):
        path = tmp_path / "dev.json"
        questions = [{"id": "a", "question": question, "answers": []}]
        path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}))
        hashes.append(open_folder(path).items[0].sha256())
    assert hashes[0] != hashes[1]


def test_a_spoilt_document_is_refused(tmp_path):
    """With what is wrong, and where."""
    for qas, match in [
        ([], "holds no question"),
        ([{"id": "a", "question": "x", "answers": []}] * 2, "has the question 'a' twice"),
        ([{"id": "a", "answers": []}], "is not of SQuAD's form: .*question"),
    ]:
        path = tmp_path / "dev.json"
        path.write_text(document(qas))
        with table_row(qas), pytest.raises(ConfigError, match=match):
            open_folder(path)
