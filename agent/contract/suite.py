"""Suites: TOML files of cases.

And the modes that set how long a run measures (query counts and times follow MLPerf Mobile and MLPerf Inference).
"""

import itertools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.field_texts import field_texts
from edgemeter.agent.base.toml import read_toml
from edgemeter.agent.base.types import Name
from edgemeter.agent.contract import case_settings, operating_point
from edgemeter.agent.contract.case_settings import AccuracyWhen, ModeName, Scenario, Settings, is_video
from edgemeter.agent.contract.generation_settings import GENERATION_QUERIES, TOKEN_AXES, generating_settings
from edgemeter.agent.contract.model_formats import GENERATORS, PYTHON, SERVED, reads, runtime_for
from edgemeter.agent.contract.record_accuracy import GATE_RATIO
from edgemeter.agent.contract.record_conditions import Role
from edgemeter.agent.contract.slo import parse_duration_ms, parse_slo


@dataclass(frozen=True, slots=True)
class Mode:
    """How much of everything: a run lasts until both `queries` and `seconds` are reached."""

    queries: int
    seconds: float
    warm_up_seconds: float
    idle_seconds: float
    repeats: int


# Idle power is only taken where a sensor is; measurement-rules ask for >= 30 s of it, which the two short modes do not give.
MODES: Mapping[str, Mode] = {
    "rapid": Mode(queries=64, seconds=0.0, warm_up_seconds=3.0, idle_seconds=5.0, repeats=3),
    "quick": Mode(queries=128, seconds=10.0, warm_up_seconds=10.0, idle_seconds=10.0, repeats=3),
    "normal": Mode(queries=1024, seconds=60.0, warm_up_seconds=30.0, idle_seconds=30.0, repeats=5),
    "full": Mode(queries=1024, seconds=600.0, warm_up_seconds=60.0, idle_seconds=60.0, repeats=5),
    # One long run: how a board holds out. A short warm-up, so that the curve begins before it is hot.
    "sustained": Mode(queries=64, seconds=1800.0, warm_up_seconds=5.0, idle_seconds=60.0, repeats=1),
}

# Steps of a search for the highest rate: a p90 needs so many queries.
SEARCH_QUERIES = 64

SAMPLE = Path(__file__).with_name("sample_suite.toml")
MLPERF_TINY = Path(__file__).with_name("mlperf_tiny_suite.toml")
DETECTOR_STUDY = Path(__file__).with_name("detector_study_suite.toml")
CAMERA = Path(__file__).with_name("camera_suite.toml")

# MLPerf Inference, MultiStream.
SAMPLES_PER_QUERY = 8
COOL_DOWN_LIMIT_S = 300.0
SETTLE_LIMIT_S = 60.0  # Longest wait for the board to settle at another power mode or clock.

# Settings, beside the model, of which a list stands for a case each.
AXES = ("runtime", "backend", "precision", "threads", *TOKEN_AXES, "concurrency", "rate_per_s", *operating_point.SETTINGS)
# Keys that name a file or folder: relative to the suite's own.
PATHS = ("data", "annotations", "predictions", "prompts")
# Keys of some scenarios or modes only: with others they have no effect. The first is chosen where none is named.
BELONGS: Mapping[str, tuple[str, ...]] = {
    "samples_per_query": ("multi_stream",), "batch": ("offline",), "rate_per_s": ("poisson", "steady"), "concurrency": ("concurrent",),
    "minutes": ("sustained", "steady"),
    "deadline": ("steady",), "queue_frames": ("steady",),
}  # fmt: skip
# Keys that their scenario cannot do without, as options.
_NEEDED = {"rate_per_s": "--rate NUMBER", "concurrency": "--concurrency NUMBER"}
# Keys that choose a scenario where none is named.
_CHOOSING = ("deadline", "queue_frames", "rate_per_s", "concurrency")


class SuiteFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file as it is written."""

    name: Name
    case: Annotated[list[Settings], msgspec.Meta(min_length=1)]
    defaults: Settings = Settings()


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to measure: model x runtime x backend x precision x threads x scenario x data."""

    model: str
    runtime: str
    repeats: int
    queries: int
    seconds: float
    warm_up_seconds: float
    idle_seconds: float
    sha256: str | None = None
    name: str | None = None
    task: str | None = None
    backend: str | None = None
    options: dict[str, str] = {}
    precision: str | None = None
    threads: int = 1
    scenario: Scenario = "single_stream"
    mode: ModeName = "quick"
    data: str | None = None
    annotations: str | None = None
    accuracy: AccuracyWhen = "every"
    predictions: str | None = None
    reference_accuracy: float | None = None
    gate: float = GATE_RATIO
    agreement: AccuracyWhen = "never"
    role: Role = "device"
    seed: int = 0
    samples_per_query: int = SAMPLES_PER_QUERY
    batch: int | None = None
    rate_per_s: float | None = None  # None in poisson: the session finds it; in steady with a video: its own.
    deadline_ms: float | None = None  # None in steady: the time between two frames.
    queue_frames: int = 1
    concurrency: int | None = None
    slo: dict[str, float] = {}  # Limits of a request in ms, by metric.
    cpus: tuple[int, ...] = ()
    start_below_c: float | None = None
    cool_down_limit_s: float = COOL_DOWN_LIMIT_S
    subset: int | None = None
    reader: str | None = None  # Of the ground truth's format; None: the one that recognises it.
    estimate_power_w: float | None = None  # Assumed power without a sensor: the energy is then labelled estimated.
    power_mode: str | None = None
    governor: str | None = None
    cpu_max_hz: float | None = None
    gpu_max_hz: float | None = None
    memory_max_hz: float | None = None
    together: str | None = None  # The group of cases that run at the same time.
    # Of a language model: exact lengths of the prompt and of the output. None for others.
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    prompts: str | None = None

    @property
    def token_lengths(self) -> str:
        """Return the lengths of a query of a language model, empty for other models."""
        if self.prompts is not None:
            return f"{Path(self.prompts).name}, at most {self.output_tokens} tokens"
        return "" if self.output_tokens is None else f"{self.prompt_tokens}+{self.output_tokens} tokens"

    @property
    def label(self) -> str:
        """Return what a person calls the case."""
        path = Path(self.model)
        name = self.name or path.name
        factory = path.name.rpartition(":")[0].removesuffix(".py").rpartition(".")[2] if self.name and self.runtime == PYTHON else ""
        cache = f"kv {self.options['kv_type']}" if "kv_type" in self.options else ""
        role, threads = "(reference)" if self.role == "reference" else "", f"{self.threads} thread{'s' * (self.threads > 1)}"
        if self.runtime == PYTHON and self.threads == 1:
            # Nobody may have set it.
            threads = ""
        users = f"{self.concurrency} user{'s' * (self.concurrency > 1)}" if self.concurrency else ""
        rate = f"{self.rate_per_s:g} a second" if self.rate_per_s else "at the highest rate" if self.scenario == "poisson" else ""
        deadline = f"deadline {self.deadline_ms:g} ms" if self.deadline_ms is not None else ""
        queue = f"{self.queue_frames} frames may wait" if self.queue_frames > 1 else ""
        point = self.operating_point.words if self.operating_point else ""
        frames = (rate, deadline, queue)
        runtime = python_target.plain_name(self.runtime)
        parts = (name, factory, runtime, self.backend, threads, self.token_lengths, cache, users, *frames, point, role)
        return " ".join(filter(None, parts))

    @property
    def plugin_files(self) -> tuple[python_target.PythonTarget, ...]:
        """Return the classes of files that run it: a runtime, a task."""
        return tuple(target for name in (self.runtime, self.task or "") if (target := python_target.of_file(name)))

    @property
    def scored_on(self) -> str | None:
        """Return the data that the predictions are scored on; None without any, and of a video."""
        return None if is_video(self.data or "") else self.data

    @property
    def operating_point(self) -> operating_point.OperatingPoint | None:
        """Return what the board is to be set to for a run; None where nothing is."""
        values = {key: value for key in operating_point.SETTINGS if (value := getattr(self, key)) is not None}
        return operating_point.OperatingPoint(**values) if values else None


def seeks_rate(case: Case) -> bool:
    """Return whether the session is to find the highest rate that is held."""
    return case.scenario == "poisson" and case.rate_per_s is None


@dataclass(frozen=True, slots=True)
class Suite:
    """The cases of one file, and the combinations that were left out because the runtime does not read the format."""

    name: str
    cases: tuple[Case, ...]
    left_out: tuple[str, ...] = ()


def read_file(path: Path) -> SuiteFile:
    """Return the suite in a TOML file as it is written.

    Raises:
        ConfigError: it cannot be read, or a key is unknown or has a wrong value (named with its path).
    """
    return read_toml(path, SuiteFile, "suite")


def read(path: Path) -> Suite:
    """Return the cases of the suite in a TOML file; its paths are relative to the file. Raises ConfigError as `read_file` and `expand`."""
    return expand(read_file(path), path.resolve().parent)


def expand(written: SuiteFile, folder: Path) -> Suite:
    """Return the single cases of a suite; raises ConfigError if a case names no model or an unsupported file, or no combination is left."""
    cases: dict[bytes, Case] = {}
    left_out: list[str] = []
    for number, case in enumerate(written.case):
        set_values = set_keys(case)
        merged = msgspec.structs.replace(written.defaults, **set_values)
        if merged.scenario is None and (key := next((key for key in _CHOOSING if getattr(merged, key) is not None), None)):
            merged = msgspec.structs.replace(merged, scenario=BELONGS[key][0])
        where = f"suite {written.name!r}: case[{number}]"
        if not merged.model:
            raise ConfigError(f'{where} names no model: add model = "FILE"')
        _refuse_idle_keys(merged, where)
        lists = [value if isinstance(value := getattr(merged, key), list) else [value] for key in ("model", *AXES)]
        for model, *values in itertools.product(*lists):
            single = _single(merged, set_values, folder, str(model), where, **dict(zip(AXES, values, strict=True)))
            if reads(single.runtime, Path(single.model)):
                cases[msgspec.json.encode(single)] = single
            else:
                left_out.append(f"case[{number}]: {single.runtime} does not read {Path(single.model).name}")
    if not cases:
        raise ConfigError(f"suite {written.name!r} leaves nothing to measure: {'; '.join(left_out)}")
    _check_together([*cases.values()], written.name)
    _check_predictions([*cases.values()], written.name)
    return Suite(written.name, tuple(cases.values()), tuple(left_out))


def groups_of(cases: Iterable[Case]) -> dict[str | None, list[Case]]:
    """Return the cases by the group in which they run together; None: apart, as does one that is left of a group."""
    listed = [*cases]
    sizes = Counter(case.together for case in listed)
    groups: dict[str | None, list[Case]] = {}
    for case in listed:
        groups.setdefault(case.together if sizes[case.together] > 1 else None, []).append(case)
    return groups


def blocks_of(members: int) -> list[tuple[int, ...]]:
    """Return the blocks of a round, the members that run at the same time: each alone, of three or more each pair, and all."""
    return [block for size in sorted({1, 2, members}) for block in itertools.combinations(range(members), size)]


def _check_together(cases: Sequence[Case], suite: str) -> None:
    for name in dict.fromkeys(case.together for case in cases if case.together):
        where, members = f"suite {suite!r}: together {name!r}", [case for case in cases if case.together == name]
        if len(members) < 2:
            raise ConfigError(
                f"{where} names one case ({members[0].label}): give it to two or more (a model twice needs another name or cpus)"
            )
        if any(map(seeks_rate, members)):
            raise ConfigError(f"{where}: models that run together have a stated rate: give rate_per_s = NUMBER")
        if any(case.operating_point for case in members):
            raise ConfigError(f"{where}: power mode and clocks are not changed for models that run together: set them before")


def _check_predictions(cases: Sequence[Case], suite: str) -> None:
    writing = [case for case in cases if case.predictions]
    for case in writing:
        where = f"suite {suite!r}: predictions of {case.label}"
        if Path(case.annotations or "").suffix.lower() != ".json" or case.accuracy == "never":
            raise ConfigError(f"{where} are scored COCO results: give annotations = FILE.json of COCO, and leave accuracy = never out")
        if sharing := [other.label for other in writing if other is not case and other.predictions == case.predictions]:
            raise ConfigError(f"{where} and of {sharing[0]} go to the same file: measure one model, or name a file for each case")


def set_keys(settings: msgspec.Struct) -> dict[str, Any]:
    """Return the keys that were given a value, with it."""
    return {key: value for key, value in msgspec.structs.asdict(settings).items() if value is not None}


@cache
def setting_texts() -> Mapping[str, str]:
    """Return what each key of a case means, with its default."""
    texts = field_texts(case_settings)["Settings"]
    defaults = {field.name: field.default for field in msgspec.structs.fields(Case)}
    for key, text in texts.items():
        default = defaults.get(key)
        if "Default: " not in text and isinstance(default, str | float | int):
            texts[key] = f"{text} Default: {default if isinstance(default, str) else f'{default:g}'}."
    return texts


def _refuse_idle_keys(merged: Settings, where: str) -> None:
    scenario_and_mode = {merged.scenario or "single_stream", merged.mode or "quick"}
    for key, owners in BELONGS.items():
        if getattr(merged, key) is not None and not scenario_and_mode & {*owners}:
            owner = " or ".join(owners)
            raise ConfigError(
                f"{where}: {key} is for {owner}, not for {' and '.join(sorted(scenario_and_mode))}: leave it out, or choose {owner}"
            )
    for key, option in _NEEDED.items():
        has_own = merged.scenario == "steady" and is_video(merged.data or "")
        if merged.scenario in BELONGS[key] and getattr(merged, key) is None and not has_own:
            raise ConfigError(f"{where}: {merged.scenario} needs {key}: add {key} = {option.split()[1]} ({option})")
    if merged.annotations is not None and merged.data is None:
        raise ConfigError(f"{where}: annotations are of data: add data = PATH (--data PATH), or leave them out")


def _placed(name: str, folder: Path) -> str:
    """Return the name of a plug-in; the path of one in a file is relative to the suite."""
    target = python_target.of_file(name)
    return name if target is None or target.file is None else f"{folder / target.file}:{target.attribute}"


def _single(merged: Settings, set_values: Collection[str], folder: Path, model: str, where: str, **axes: object) -> Case:
    mode = merged.mode or "quick"
    precision = axes["precision"]
    model = model.replace("{precision}", str(precision)) if precision else model
    target = python_target.parse(model)
    # The address of a module is no path.
    path = Path(model) if target and target.module else folder / model
    runtime = _placed(str(axes["runtime"] or runtime_for(path)), folder)
    by_mode = asdict(MODES[mode]) | {"agreement": "never" if mode == "rapid" else "first"}
    by_mode |= {"repeats": 1} if merged.minutes else {}
    if runtime in GENERATORS or merged.prompts or any(axes[key] is not None for key in TOKEN_AXES):
        merged = generating_settings(merged, set_values, runtime, axes, where)
        by_mode["queries"] = GENERATION_QUERIES[mode]
        axes["prompt_tokens"] = merged.prompt_tokens
    elif runtime == SERVED:
        by_mode["agreement"] = "never"
        if unknown := [name for name in parse_slo(merged.slo or "latency=1s") if name != "latency"]:
            raise ConfigError(f"{where}: slo {unknown[0]} is of tokens, which {runtime} has none of: give latency=50ms alone")
    elif useless := next((key for key in ("slo", "concurrency") if getattr(merged, key) is not None or axes.get(key)), None):
        raise ConfigError(f"{where}: {useless} is for language models and servers, {runtime} runs one call in this process: leave it out")
    elif axes["rate_per_s"] == "auto":
        raise ConfigError(f"{where}: the rate of {runtime} is not searched for: give rate_per_s = NUMBER (--rate NUMBER)")
    if axes["rate_per_s"] == "auto":
        if merged.scenario == "steady":
            raise ConfigError(f"{where}: the rate of frames is the camera's and not searched for: give rate_per_s = NUMBER (--rate NUMBER)")
        by_mode |= {"queries": max(by_mode["queries"], SEARCH_QUERIES), "repeats": 1}
    if merged.minutes is not None:
        merged = msgspec.structs.replace(merged, seconds=merged.minutes * 60)
        # At a frame in a minute, too, the run has the length that was asked for.
        by_mode |= {"queries": 1} if merged.scenario == "steady" else {}
    values = set_keys(merged) | {axis: None if value == "auto" else value for axis, value in axes.items() if value is not None}
    values |= {key: str(folder / values[key]) for key in PATHS if key in values}
    values |= {
        "model": str(path),
        "runtime": runtime,
        "task": None if merged.task is None else _placed(merged.task, folder),
        # Before a sandbox has another home.
        "options": {key: os.path.expanduser(value) for key, value in (merged.options or {}).items()},  # noqa: PTH111 - not all are paths
        "slo": parse_slo(merged.slo) if merged.slo else {},
        "deadline_ms": parse_duration_ms(merged.deadline, "deadline") if merged.deadline else None,
        "cpus": sorted({*(merged.cpus or ())}),
    }
    if merged.scenario == "steady" and isinstance(rate_per_s := axes["rate_per_s"], float | int):
        length = by_mode | values
        values["seconds"] = max(length["seconds"], length["queries"] / rate_per_s)
    # `minutes` and `deadline` are no keys of a case, and left out.
    return msgspec.convert(by_mode | values, Case)
