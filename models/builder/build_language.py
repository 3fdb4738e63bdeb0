"""The shipped language model from nothing: write notes, learn a vocabulary, train and export."""

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import tomli_w

from edgemeter.agent.base.progress import Tell
from edgemeter.agent.contract import model_file
from edgemeter.models.builder import language, language_files, notes
from edgemeter.models.builder.language import LanguageRecipe
from edgemeter.models.builder.vocabulary import learn_vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

QUESTIONS, INDEX = "questions.jsonl", "language.toml"
# Merges settle long before the end of the text.
_VOCABULARY_BYTES = 1_000_000


def build_language(folder: Path, recipe: LanguageRecipe, report: Tell) -> None:
    """Make `folder`: GGUF files, the questions to score them with, and an index of how they were made."""
    folder.mkdir(parents=True, exist_ok=True)
    text = notes.training_text(recipe.seed, recipe.training_bytes)
    vocabulary = learn_vocabulary(text[:_VOCABULARY_BYTES], recipe.vocabulary)
    model = language.train(recipe, vocabulary.encode(text), len(vocabulary.tokens), report)
    arrays = language_files.weights(model)
    for precision in language_files.GGUF_TYPES:
        language_files.write_gguf(_gguf(folder, precision), arrays, vocabulary, precision)
    items = notes.questions(recipe.seed, recipe.questions)
    (folder / QUESTIONS).write_bytes(b"".join(msgspec.json.encode(item) + b"\n" for item in items))
    _write_index(folder, recipe, sum(parameter.numel() for parameter in model.parameters()))


def _gguf(folder: Path, precision: str) -> Path:
    return folder / f"{language_files.LANGUAGE_NAME}_{precision}.gguf"


def _write_index(folder: Path, recipe: LanguageRecipe, parameters: int) -> None:
    files: list[Mapping[str, Any]] = []
    for precision in language_files.GGUF_TYPES:
        path = _gguf(folder, precision)
        files.append({"file": path.name, "precision": precision, "sha256": model_file.sha256(path)})
    index = {
        "name": language_files.LANGUAGE_NAME,
        "licence": "Apache-2.0",
        "source": "trained on workshop notes: models/builder/notes.py",
        "made": {
            "by": "make models",
            **msgspec.to_builtins(recipe),
            "parameters": parameters,
            "with": ", ".join(f"{package} {version(package)}" for package in ("torch", "gguf")),
        },
        "files": files,
    }
    (folder / INDEX).write_text(tomli_w.dumps(index), encoding="utf-8")
