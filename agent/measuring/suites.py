"""The suite of a request: a file with cases, or models with the settings of one case."""

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.model_names import model_names, model_path
from edgemeter.agent.base.suggestions import did_you_mean
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.model_formats import is_model_file
from edgemeter.agent.contract.suite import (
    PATHS,
    Case,
    Suite,
    SuiteFile,
    expand,
    read_file,
    set_keys,
)

# How similar a name must be to one of the catalogue to be a likely typo.
NEARLY = 0.8
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def suite_of(suite: Path | None, models: Path | Sequence[Path] | None, settings: Settings) -> Suite:
    """Return the suite in a file, its keys overridden by the settings; or the suite of the models.

    A model is a path, or a name of the catalogue.

    Raises:
        ConfigError: the file or a model is wrong.
    """
    written, folder = written_suite(suite, models, settings)
    names = [Path(model).name for case in written.case for model in case.model or ()]
    return expand(written, folder, None if suite else ", ".join(names))


def written_suite(
    suite: Path | None, models: Path | Sequence[Path] | None, settings: Settings
) -> tuple[SuiteFile, Path]:
    """Return the suite that `suite_of` expands, and the folder of its relative paths."""
    # Paths in a suite are relative to its file, those of the settings to the working directory.
    paths = {
        key: str(Path(value).absolute())
        for key in PATHS
        if (value := getattr(settings, key)) is not None
    }
    settings = msgspec.structs.replace(settings, **paths)
    if suite is not None:
        written = read_file(suite)
        cases = [msgspec.structs.replace(case, **set_keys(settings)) for case in written.case]
        return msgspec.structs.replace(written, case=cases), suite.resolve().parent
    named = [models] if isinstance(models, Path) else models or ()
    files = [str(model_path(model)) for model in named]
    one_only = [key for key in ("name", "sha256") if getattr(settings, key) is not None]
    if len(files) > 1 and one_only:
        raise ConfigError(
            f"--{one_only[0]} belongs to one model, {len(files)} are given: leave it out, or "
            "write a suite"
        )
    name = "one model" if len(files) == 1 else f"{len(files)} models"
    return SuiteFile(name=name, case=[msgspec.structs.replace(settings, model=files)]), Path.cwd()


def data_options(source: Settings | Case) -> str:
    """Return the options that name the data, as given, each after a space.

    A record does not contain the path of its data.
    """
    options = {key: getattr(source, key) for key in ("data", "annotations", "subset", "seed")}
    options["questions"] = source.questions
    # The seed 0 is the default.
    return "".join(f" --{key} {shlex.quote(str(value))}" for key, value in options.items() if value)


def single_case(source: Path, settings: Settings) -> Case:
    """Return the one case of a suite (.toml), or of a model.

    Raises:
        ConfigError: the file or the model is wrong, or the suite has several cases.
    """
    is_suite = is_suite_file(source)
    cases = suite_of(source if is_suite else None, None if is_suite else source, settings).cases
    if len(cases) != 1:
        labels = ", ".join(case.label for case in cases)
        raise ConfigError(f"suite {str(source)!r} holds {len(cases)} cases ({labels}): leave one")
    return cases[0]


def is_suite_file(source: Path) -> bool:
    """Return whether this is a suite rather than a model: suites are TOML."""
    return source.suffix.lower() == ".toml"


def is_model(text: str) -> bool:
    """Return whether `text` names something to measure.

    That is a model's file, a factory, a suite, or a catalogue name, but not a file of results.
    """
    path = Path(text)
    if target := python_target.parse(text):
        with suppress(ConfigError):
            return target.file is not None or target.source.is_file()
    if path.suffix.lower() == ".toml" or is_model_file(path):
        return True
    if path.suffix.lower() == ".json":
        return False
    if path.exists() or not NAME.fullmatch(text):
        return False
    # A nearly correct name gets the message about models.
    return did_you_mean(text, model_names(), alike=NEARLY) is not None
