"""The texts of the language model, and its vocabulary."""

import json

import pytest

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.contract import model_file
from tests.shipped_models import notes
from tests.shipped_models.language_folder import SHIPPED, shipped_index
from tests.shipped_models.vocabulary import learn_vocabulary


def test_the_shipped_texts_are_those_of_the_grammar():
    """Text and questions come out of the seed again, byte by byte."""
    recipe = shipped_index()["made"]
    assert (SHIPPED / "held_out.txt").read_text() == notes.held_out_text(recipe["seed"], recipe["held_out_bytes"])
    questions = [json.loads(line) for line in (SHIPPED / "questions.jsonl").read_text().splitlines()]
    assert questions == notes.questions(recipe["seed"], recipe["questions"])


def test_the_shipped_files_are_those_of_the_index_and_small():
    """Hashes match, and all files together have less than 2 MB: they are part of the wheel."""
    for entry in shipped_index()["files"]:
        assert model_file.sha256(SHIPPED / entry["file"]) == entry["sha256"], entry["file"]
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file()) < 2_000_000


def test_no_held_out_note_was_trained_on():
    """Facts come up in both, whole notes do not; questions are the same ones everywhere."""
    trained = set(notes.training_text(20, 400_000).splitlines())
    held_out = notes.held_out_text(20, 32_000).splitlines()
    assert not [note for note in held_out if note in trained and not note.startswith("Question")]


def test_there_are_only_so_many_questions():
    """More than there are is an error, not a repetition."""
    assert len({item["prompt"] for item in notes.questions(1, 48)}) == 48
    with pytest.raises(MeasurementError, match="the notes know 48 questions, not 49"):
        notes.questions(1, 49)


def test_tokens_spell_the_text():
    """What is encoded decodes to itself, unknown characters byte by byte."""
    vocabulary = learn_vocabulary(notes.training_text(1, 20_000), 400)
    text = "The thermometer reads 21 degrees.\nGrüße!"
    spelt = b"".join(
        bytes([int(token[3:5], 16)]) if token.startswith("<0x") else token.replace("\u2581", " ").encode()
        for token in (vocabulary.tokens[index] for index in vocabulary.encode(text))
    )
    assert spelt.decode() == text
    assert len(vocabulary.tokens) == 400
    assert len(set(vocabulary.tokens)) == 400
    assert len(vocabulary.encode("The thermometer reads 21 degrees.")) < 24
