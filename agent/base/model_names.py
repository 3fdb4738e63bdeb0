"""Finds the models of a command: paths, or names of the catalogue.

It also finds the text that ships for scoring language models. Only this module names the
catalogue's, as text: agent and collector run without it until a model is named.
"""

from pathlib import Path
from pkgutil import resolve_name

from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import ConfigError

_NAMES = "edgemeter.models.fetch.local_files:known_names"
_FILE = "edgemeter.models.fetch.local_files:named_model"
_TEXT = "edgemeter.models.catalogue.shipped_models:LANGUAGE_FOLDER"


def model_names() -> list[str]:
    names: list[str] = resolve_name(_NAMES)()
    return names


def model_path(model: str | Path) -> Path:
    """Return the file of a model.

    It is the path or factory address itself, or the shipped, fetched or added model of that name.

    Raises:
        ConfigError: a name is unknown, or its model is not on this machine.
    """
    path = Path(model).expanduser()
    if python_target.parse(str(path)):
        return path
    if path.exists() or path.parent != Path():
        return path
    file: Path = resolve_name(_FILE)(path.name)
    return file


def questions_path(questions: str) -> Path:
    """Return the file of questions, by its path or by the name of a shipped data set.

    Raises:
        ConfigError: there is none.
    """
    path = Path(questions)
    folder: Path = resolve_name(_TEXT)
    shipped = folder / f"{path.name.removeprefix('edgemeter-')}.jsonl"
    for file in (path, shipped):
        if file.is_file():
            return file
    raise ConfigError(f"there are no questions {questions!r}: give a file, or edgemeter-questions")
