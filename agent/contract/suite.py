"""Suites are TOML files of cases, and modes the lengths of runs.

Query counts and times follow MLPerf Mobile and MLPerf Inference.
"""

import itertools
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import ConfigError, utf8_text
from edgemeter.agent.base.number_text import count
from edgemeter.agent.base.toml import read_toml
from edgemeter.agent.base.types import Name
from edgemeter.agent.contract import operating_point
from edgemeter.agent.contract.case_settings import (
    MODE,
    OUTPUT_TOKENS,
    OVERLAPPING,
    PROMPT_TOKENS,
    ModeName,
    Scenario,
    Settings,
    is_video,
)
from edgemeter.agent.contract.model_formats import (
    GENERATORS,
    OUR_RUNTIMES,
    PYTHON,
    SERVED,
    reads,
    runtime_for,
)


@dataclass(frozen=True, slots=True)
class Mode:
    """The length of a run, until both `queries` and `seconds` are reached.

    Without `repeats`, the precision decides the number of runs.
    """

    queries: int
    seconds: float
    warm_up_seconds: float
    idle_seconds: float
    repeats: int | None = None


# Idle power is measured only with a sensor; the measurement rules ask for at least 30 s, which the
# two short modes do not give.
MODES: Mapping[str, Mode] = {
    "rapid": Mode(queries=64, seconds=0.0, warm_up_seconds=3.0, idle_seconds=5.0),
    "quick": Mode(queries=128, seconds=10.0, warm_up_seconds=10.0, idle_seconds=10.0),
    "normal": Mode(queries=1024, seconds=60.0, warm_up_seconds=30.0, idle_seconds=30.0),
    "full": Mode(queries=1024, seconds=600.0, warm_up_seconds=60.0, idle_seconds=60.0),
    # The warm-up is short, so that the curve begins before the board is hot.
    "sustained": Mode(
        queries=64, seconds=1800.0, warm_up_seconds=5.0, idle_seconds=60.0, repeats=1
    ),
}

# A query of a language model takes seconds, so modes have fewer queries (a median needs 11, p90
# 64).
GENERATION_QUERIES = {"rapid": 11, "quick": 11, "normal": 64, "full": 64, "sustained": 11}
TOKEN_AXES = ("prompt_tokens", "output_tokens")
# Settings for models of images; language models ignore them in the defaults.
OF_IMAGES = ("data", "annotations", "subset", "predictions")
# Settings that may be a list, with a case for each value; the model may be a list too.
AXES = (
    "runtime",
    "backend",
    "threads",
    *TOKEN_AXES,
    "concurrency",
    "rate_per_s",
    *operating_point.SETTINGS,
)
# Keys that name a file or folder: relative to the suite's own.
PATHS = ("data", "annotations", "predictions", "questions")
# Keys that belong to some scenarios only. Without a scenario, the first of these keys that is set
# chooses its first scenario.
BELONGS: Mapping[str, tuple[Scenario, ...]] = {
    "deadline": ("steady",), "rate_per_s": ("poisson", "steady"), "concurrency": ("concurrent",),
    "batch": ("offline",),
}  # fmt: skip


Matters = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class SuiteFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    name: Name
    case: Annotated[list[Settings], msgspec.Meta(min_length=1)]
    defaults: Settings = Settings()
    matters_ratio: Matters | None = None
    """Measure until it is decided how each case differs from the first, where a difference above
    this ratio matters."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to measure: model x runtime x backend x threads x scenario x data."""

    model: str
    runtime: str
    queries: int
    seconds: float
    warm_up_seconds: float
    idle_seconds: float
    repeats: int | None = None  # None: as many as the precision needs, within the time.
    time_s: float = 120.0
    precision_ratio: float | None = None
    sha256: str | None = None
    name: str | None = None
    task: str | None = None
    backend: str | None = None
    options: dict[str, str] = {}
    threads: int = 1
    scenario: Scenario = "single_stream"
    mode: ModeName = MODE
    data: str | None = None
    annotations: str | None = None
    predictions: str | None = None
    seed: int = 0
    batch: int | None = None
    rate_per_s: float | None = None  # None in steady with a video: its own.
    deadline_ms: float | None = None  # None in steady: the time between two frames.
    concurrency: int | None = None
    cpus: tuple[int, ...] = ()
    subset: int | None = None
    power_mode: str | None = None
    governor: str | None = None
    together: str | None = None  # The group of cases that run at the same time.
    # Language models: exact lengths of prompt and output.
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    questions: str | None = None

    @property
    def token_lengths(self) -> str:
        """The lengths of a query of a language model, empty for other models."""
        if self.questions is not None:
            return f"{Path(self.questions).name}, at most {self.output_tokens} tokens"
        return (
            ""
            if self.output_tokens is None
            else f"{self.prompt_tokens}+{self.output_tokens} tokens"
        )

    @property
    def label(self) -> str:
        path, is_python = Path(self.model), self.runtime == PYTHON
        return " ".join(
            filter(
                None,
                (
                    self.name or path.name,
                    path.name.rpartition(":")[0].removesuffix(".py").rpartition(".")[2]
                    if self.name and is_python
                    else "",
                    python_target.plain_name(self.runtime),
                    self.backend,
                    # With `python`, one thread may mean that it is not set.
                    "" if is_python and self.threads == 1 else count(self.threads, "thread"),
                    self.token_lengths,
                    f"kv {self.options['kv_type']}" if "kv_type" in self.options else "",
                    count(self.concurrency, "user") if self.concurrency else "",
                    f"{self.rate_per_s:g} a second" if self.rate_per_s else "",
                    "" if self.deadline_ms is None else f"deadline {self.deadline_ms:g} ms",
                    self.operating_point.words if self.operating_point else "",
                ),
            )
        )

    @property
    def plugin_files(self) -> tuple[python_target.PythonTarget, ...]:
        """The user's files with its runtime and its task."""
        return tuple(
            target
            for name in (self.runtime, self.task or "")
            if (target := python_target.of_file(name))
        )

    @property
    def operating_point(self) -> operating_point.OperatingPoint | None:
        """The operating point to set for a run, None if there is none."""
        values = {
            key: value
            for key in operating_point.SETTINGS
            if (value := getattr(self, key)) is not None
        }
        return operating_point.OperatingPoint(**values) if values else None


@dataclass(frozen=True, slots=True)
class Suite:
    """The cases of one file.

    It also has the combinations that were left out because the runtime does not read the format.

    With `matters_ratio`, the smallest ratio that matters, cases are measured until their
    differences from the first are decided.
    """

    name: str
    cases: tuple[Case, ...]
    left_out: tuple[str, ...] = ()
    matters_ratio: float | None = None


def read_file(path: Path) -> SuiteFile:
    """Return the suite in a TOML file.

    Raises:
        ConfigError: it cannot be read, or a key is unknown or has a wrong value.
    """
    return read_toml(path, SuiteFile, "suite")


def expand(written: SuiteFile, folder: Path, models: str | None = None) -> Suite:
    """Return the single cases of a suite; errors name the `models` of a command without a suite.

    Raises:
        ConfigError: a case names no model or an unsupported file, the name of a file is not UTF-8,
            or no combination is left.
    """
    cases: dict[bytes, Case] = {}
    left_out: list[str] = []
    title = models or f"suite {written.name!r}"
    for number, case in enumerate(written.case):
        set_values = set_keys(case)
        merged = msgspec.structs.replace(written.defaults, **set_values)
        if merged.scenario is None and (
            key := next((key for key in BELONGS if getattr(merged, key) is not None), None)
        ):
            merged = msgspec.structs.replace(merged, scenario=BELONGS[key][0])
        where = models or f"{title}, case {number + 1}"
        if not merged.model:
            raise ConfigError(f'{where} names no model: add model = "FILE"')
        _refuse_idle_keys(merged, where)
        lists = [
            value if isinstance(value := getattr(merged, key), list) else [value]
            for key in ("model", *AXES)
        ]
        for model, *values in itertools.product(*lists):
            single = _single(
                merged,
                set_values,
                folder,
                str(model),
                where,
                **dict(zip(AXES, values, strict=True)),
            )
            if reads(single.runtime, Path(single.model)):
                with utf8_text():
                    cases[msgspec.json.encode(single)] = single
            else:
                unread = f"{single.runtime} does not read {Path(single.model).name}"
                left_out.append(
                    f"{unread}, {runtime_for(Path(single.model))} does"
                    if models
                    else f"case {number + 1}: {unread}"
                )
    if not cases:
        unreadable = "; ".join(left_out)
        raise ConfigError(
            f"{unreadable}: choose another --runtime, or leave it out"
            if models
            else f"{title} leaves nothing to measure: {unreadable}"
        )
    _check_together([*cases.values()], title)
    _check_predictions([*cases.values()], title)
    return Suite(written.name, tuple(cases.values()), tuple(left_out), written.matters_ratio)


def _check_together(cases: Sequence[Case], title: str) -> None:
    for name in dict.fromkeys(case.together for case in cases if case.together):
        where, members = (
            f"{title}: together {name!r}",
            [case for case in cases if case.together == name],
        )
        if len(members) < 2:
            raise ConfigError(
                f"{where} names one case ({members[0].label}): give it to two or more (a model "
                "twice needs another name or cpus)"
            )
        if any(case.operating_point for case in members):
            raise ConfigError(
                f"{where}: power mode and governor are not changed for models that run together: "
                "set them before"
            )


def _check_predictions(cases: Sequence[Case], title: str) -> None:
    writing = [case for case in cases if case.predictions]
    for case in writing:
        where = f"{title}: predictions of {case.label}"
        if Path(case.annotations or "").suffix.lower() != ".json":
            raise ConfigError(
                f"{where} are scored COCO results: give annotations = FILE.json of COCO"
            )
        if sharing := [
            other.label
            for other in writing
            if other is not case and other.predictions == case.predictions
        ]:
            raise ConfigError(
                f"{where} and of {sharing[0]} go to the same file: measure one model, or name a "
                "file for each case"
            )


def parse_deadline_ms(text: str) -> float:
    """Return a time such as `60ms` or `1.5s` in ms.

    Raises:
        ConfigError: it is not from a microsecond to an hour.
    """
    written = re.fullmatch(r"([0-9]*\.?[0-9]+) *(us|ms|s)", text.strip().lower())
    deadline_ms = (
        float(written[1]) * {"us": 1e-3, "ms": 1.0, "s": 1000.0}[written[2]] if written else 0.0
    )
    if not 1e-3 <= deadline_ms <= 3_600_000.0:
        raise ConfigError(
            f"deadline {text.strip()[:40]!r} is not a time from 1us to 3600s: write "
            "500us, 60ms or 1.5s"
        )
    return deadline_ms


def set_keys(settings: msgspec.Struct) -> dict[str, Any]:
    return {
        key: value for key, value in msgspec.structs.asdict(settings).items() if value is not None
    }


def _refuse_idle_keys(merged: Settings, where: str) -> None:
    scenario = merged.scenario or "single_stream"
    for key, owners in BELONGS.items():
        is_set, owner = getattr(merged, key) is not None, " or ".join(owners)
        if is_set and scenario not in owners:
            raise ConfigError(
                f"{where}: {key} is for {owner}, not for {scenario}: leave it out, "
                f"or choose {owner}"
            )
        is_of_video = scenario == "steady" and is_video(merged.data or "")
        if (
            key in ("rate_per_s", "concurrency")
            and scenario in owners
            and not is_set
            and not is_of_video
        ):
            raise ConfigError(
                f"{where}: {scenario} needs {key}: add {key} = NUMBER "
                f"(--{key.removesuffix('_per_s')} NUMBER)"
            )
    if merged.annotations is not None and merged.data is None:
        raise ConfigError(
            f"{where}: annotations need data: give --data PATH (data = PATH in a suite), or "
            "leave them out"
        )


def _placed(name: str, folder: Path) -> str:
    """Return the name of a plug-in; the path of a file is relative to the suite."""
    target = python_target.of_file(name)
    return (
        name
        if target is None or target.file is None
        else f"{folder / target.file}:{target.attribute}"
    )


def _single(
    merged: Settings,
    set_values: Collection[str],
    folder: Path,
    model: str,
    where: str,
    **axes: object,
) -> Case:
    mode = merged.mode or MODE
    target = python_target.parse(model)
    # A module has no path.
    path = Path(model) if target and target.module else folder / model
    runtime = _placed(str(axes["runtime"] or runtime_for(path)), folder)
    by_mode = asdict(MODES[mode])
    if (
        runtime in GENERATORS
        or merged.questions
        or any(axes[key] is not None for key in TOKEN_AXES)
    ):
        merged = _generating_settings(merged, set_values, runtime, axes, where)
        by_mode["queries"] = GENERATION_QUERIES[mode]
        axes["prompt_tokens"] = merged.prompt_tokens
    elif runtime != SERVED and axes["concurrency"]:
        raise ConfigError(
            f"{where}: concurrency is for language models and servers, {runtime} runs one call "
            "in this process: leave it out"
        )
    if merged.scenario == "steady" and merged.seconds is not None:
        # The run has exactly this length, even at one frame a minute.
        by_mode["queries"] = 1
    values = set_keys(merged) | {axis: value for axis, value in axes.items() if value is not None}
    values |= {key: str(folder / values[key]) for key in PATHS if key in values}
    values |= {
        "model": str(path),
        "runtime": runtime,
        "task": None if merged.task is None else _placed(merged.task, folder),
        # A sandbox has another home.
        "options": {
            key: os.path.expanduser(value)  # noqa: PTH111 - not all are paths
            for key, value in (merged.options or {}).items()
        },
        "deadline_ms": parse_deadline_ms(merged.deadline) if merged.deadline else None,
        "cpus": sorted({*(merged.cpus or ())}),
    }
    if merged.scenario == "steady" and isinstance(rate_per_s := axes["rate_per_s"], float | int):
        length = by_mode | values
        values["seconds"] = max(length["seconds"], length["queries"] / rate_per_s)
    # `deadline` is not a key of a case, and is dropped.
    return msgspec.convert(by_mode | values, Case)


def _generating_settings(
    merged: Settings,
    set_values: Collection[str],
    runtime: str,
    axes: Mapping[str, object],
    where: str,
) -> Settings:
    """Return the settings of a case that generates text.

    It has one length of prompt and output, and no settings for images.
    """
    if runtime in OUR_RUNTIMES - GENERATORS - {"replay"}:
        named = " and ".join(
            key for key in (*TOKEN_AXES, "questions") if getattr(merged, key) is not None
        )
        raise ConfigError(
            f"{where}: only language models take {named}, and {runtime} runs none: leave that out"
        )
    if merged.scenario in OVERLAPPING and runtime != "server":
        raise ConfigError(
            f"{where}: {runtime} answers one query after the other: leave {merged.scenario} out, "
            "or measure a server (NAME.server)"
        )
    if merged.scenario not in (None, "single_stream", *OVERLAPPING):
        raise ConfigError(
            f"{where}: a language model runs in single_stream, behind a server also in "
            f"{', '.join(OVERLAPPING)}, "
            f"not {merged.scenario}: leave it out"
        )
    if useless := [
        key for key in OF_IMAGES if key in set_values and not (key == "subset" and merged.questions)
    ]:
        raise ConfigError(f"{where}: {useless[0]} is not for language models: leave it out")
    if merged.questions and "prompt_tokens" in set_values:
        raise ConfigError(
            f"{where}: questions have lengths of their own: leave prompt_tokens or questions out"
        )
    settings = {
        **dict.fromkeys(OF_IMAGES),
        "prompt_tokens": axes["prompt_tokens"] or (None if merged.questions else PROMPT_TOKENS),
        "output_tokens": axes["output_tokens"] or OUTPUT_TOKENS,
        "subset": merged.subset if merged.questions else None,
    }
    return msgspec.structs.replace(merged, **settings)
