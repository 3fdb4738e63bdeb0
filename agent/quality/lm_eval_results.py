"""Results of lm-evaluation-harness, imported: figures of another tool, on its own material, which never count as measured here.

Source: lm-evaluation-harness 0.4, `results_*.json` as `--output_path` writes it.
"""

from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import parse_json, whole_number


class ImportedScore(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one task as the file states it; `filter` is how the answer was taken from the text. None is not stated."""

    task: str
    metric: str
    filter: str
    value: float
    standard_error: float | None
    is_higher_better: bool | None
    shots: int | None
    items: int | None
    task_version: str | None
    items_in_all: int | None = None


class ImportedResults(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of a file, with what it states of their origin: `model` is what was scored, `source` the tool with its version.

    `groups` are tasks that are means of others. `device` is of a model that ran in the tool's own process.
    """

    file: str
    source: str
    model: str
    date_s: float | None
    scores: tuple[ImportedScore, ...]
    groups: tuple[str, ...] = ()
    model_name: str | None = None
    runtime: str | None = None
    precision: str | None = None
    parameters: float | None = None
    batch: int | None = None
    device: str | None = None


class _Samples(msgspec.Struct):
    effective: int | None = None
    original: int | None = None


class _Config(msgspec.Struct):
    model: str = ""
    model_args: Any = None
    model_dtype: str | None = None
    model_num_parameters: float | None = None
    batch_size: Any = None
    device: str | None = None


class _ResultsFile(msgspec.Struct):
    results: dict[str, dict[str, Any]]
    config: _Config = msgspec.field(default_factory=_Config)
    versions: dict[str, Any] = {}
    shots: dict[str, int | None] = msgspec.field(default_factory=dict, name="n-shot")
    samples: dict[str, _Samples] = msgspec.field(default_factory=dict, name="n-samples")
    higher_is_better: dict[str, dict[str, bool | None]] = {}
    groups: dict[str, Any] = {}
    model_name: str | None = None
    date: float | None = None
    lm_eval_version: str | None = None


def read_results(path: Path) -> ImportedResults:
    """Return the scores in a file; raises ConfigError if it cannot be read, or is none of lm-evaluation-harness."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the results {str(path)!r}: {error.strerror}") from error
    return parse_results(content, path)


def parse_results(content: bytes | str, path: Path | None = None) -> ImportedResults:
    """Return the scores in the content of a file; raises ConfigError if it is none of lm-evaluation-harness."""
    name = "this" if path is None else repr(str(path))
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
        file = msgspec.convert(parse_json(text), _ResultsFile)
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"{name} is no file of lm-evaluation-harness ({error}): give a results_*.json of its --output_path") from error
    scores = [
        _score(file, task, name, value) for task, values in file.results.items() for name, value in values.items() if _is_score(name, value)
    ]
    if not scores:
        raise ConfigError(f"{name} holds no score: give a results_*.json of lm-evaluation-harness")
    config, arguments = file.config, file.config.model_args
    given_arguments = (
        ",".join(f"{key}={value}" for key, value in arguments.items()) if isinstance(arguments, dict) else str(arguments or "")
    )
    return ImportedResults(
        file=path.name if path else "",
        source=f"lm-evaluation-harness {file.lm_eval_version or 'of unknown version'}",
        model=" ".join(filter(None, (config.model, given_arguments))),
        date_s=file.date,
        scores=tuple(scores),
        groups=tuple(file.groups),
        model_name=file.model_name or None,
        runtime=config.model or None,
        precision=config.model_dtype.removeprefix("torch.") if config.model_dtype else None,
        parameters=config.model_num_parameters if (config.model_num_parameters or 0) > 0 else None,
        batch=whole_number(str(config.batch_size)) or None,
        # Of a server it is the tool's default.
        device=config.device if config.model_dtype else None,
    )


def _is_score(name: str, value: object) -> bool:
    return "," in name and "_stderr," not in name and isinstance(value, int | float) and not isinstance(value, bool)


def _score(file: _ResultsFile, task: str, name: str, value: float) -> ImportedScore:
    metric, _, taken_by = name.partition(",")
    standard_error = file.results[task].get(f"{metric}_stderr,{taken_by}")
    version = file.versions.get(task)
    return ImportedScore(
        task=task,
        metric=metric,
        filter=taken_by,
        value=float(value),
        # Written as text where there is none.
        standard_error=float(standard_error) if isinstance(standard_error, int | float) else None,
        is_higher_better=file.higher_is_better.get(task, {}).get(metric),
        shots=file.shots.get(task),
        items=file.samples[task].effective if task in file.samples else None,
        task_version=None if version is None else str(version),
        items_in_all=file.samples[task].original if task in file.samples else None,
    )
