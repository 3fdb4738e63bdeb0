"""The texts of the language model, and its vocabulary."""

import json

import msgspec
import pytest

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.contract import model_file
from edgemeter.models.builder import notes
from edgemeter.models.builder.vocabulary import learn_vocabulary
from edgemeter.models.catalogue.shipped_models import LANGUAGE_FOLDER

INDEX = msgspec.toml.decode((LANGUAGE_FOLDER / "language.toml").read_bytes())


def test_the_shipped_questions_are_those_of_the_grammar():
    """Questions come out of the seed again, byte by byte; to ask for more than there are is an error."""
    recipe = INDEX["made"]
    questions = [json.loads(line) for line in (LANGUAGE_FOLDER / "questions.jsonl").read_text().splitlines()]
    assert questions == notes.questions(recipe["seed"], recipe["questions"])
    assert len({item["prompt"] for item in notes.questions(1, 48)}) == 48
    with pytest.raises(MeasurementError, match="49"):
        notes.questions(1, 49)


def test_the_shipped_files_are_those_of_the_index_and_small():
    """Hashes match, and all files together have less than 2 MB: they are part of the wheel."""
    assert {entry["file"]: entry["sha256"] for entry in INDEX["files"]} == {
        path.name: model_file.sha256(path) for path in LANGUAGE_FOLDER.glob("*.gguf")
    }
    assert sum(path.stat().st_size for path in LANGUAGE_FOLDER.rglob("*") if path.is_file()) < 2_000_000


def test_tokens_spell_the_text():
    """What is encoded decodes to itself, unknown characters byte by byte."""
    vocabulary = learn_vocabulary(notes.training_text(1, 20_000), 400)
    text = "The thermometer reads 21 degrees.\nGrüße!"
    spelt = b"".join(
        bytes([int(token[3:5], 16)]) if token.startswith("<0x") else token.replace("\u2581", " ").encode()
        for token in (vocabulary.tokens[index] for index in vocabulary.encode(text))
    )
    assert spelt.decode() == text
    assert len(set(vocabulary.tokens)) == len(vocabulary.tokens) == 400
    assert len(vocabulary.encode("The thermometer reads 21 degrees.")) < 24
