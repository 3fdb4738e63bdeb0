"""Suites: TOML files of cases.

And the modes that set how long a run measures (query counts and times follow MLPerf Mobile and MLPerf Inference).
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.toml import read_toml
from edgemeter.agent.base.types import Name, Sha256
from edgemeter.agent.contract.model_file import FOLDER_CONFIG
from edgemeter.agent.contract.record_accuracy import GATE_RATIO
from edgemeter.agent.contract.record_conditions import Role


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

FORMATS = {
    ".tflite": "litert",
    ".onnx": "onnx",
    ".pt": "pytorch",
    ".pth": "pytorch",
    ".torchscript": "pytorch",
    ".pt2": "pytorch",
    ".pte": "executorch",
    ".xml": "openvino",
    ".param": "ncnn",
    ".engine": "tensorrt",
    ".plan": "tensorrt",
    ".json": "replay",
    ".gguf": "llama",
    ".server": "server",
}

# Generators: runtimes that only generate text, prompt and output as long as a case says. `replay` plays both kinds.
GENERATORS = frozenset({"genai", "llama", "server"})
PROMPT_TOKENS = 512
OUTPUT_TOKENS = 128
# A query of a language model is many steps and takes seconds: a mode asks for fewer (a median needs 11 queries, p90 64).
GENERATION_QUERIES = {"rapid": 11, "quick": 11, "normal": 64, "full": 64, "sustained": 11}

# Which runtimes read which file: a combination of a matrix that cannot work is left out of the suite, not failed.
READERS = {suffix: {runtime} for suffix, runtime in FORMATS.items()} | {
    ".tflite": {"litert", "edgetpu"},
    ".onnx": {"onnx", "openvino"},
    ".json": {"replay", "genai"},
}

SAMPLE = Path(__file__).with_name("sample_suite.toml")
MLPERF_TINY = Path(__file__).with_name("mlperf_tiny_suite.toml")

# MLPerf Inference, MultiStream.
SAMPLES_PER_QUERY = 8
COOL_DOWN_LIMIT_S = 300.0

# Settings, beside the model, of which a list stands for a case each.
AXES = ("runtime", "backend", "precision", "threads", "prompt_tokens", "output_tokens")

# Settings for models of images: of the defaults they do not reach a language model.
OF_IMAGES = ("images", "annotations", "reader", "subset", "corrupt", "reference_accuracy", "agreement")

# Keys of one scenario or mode only: with another they have no effect.
BELONGS = {"samples_per_query": "multi_stream", "batch": "offline", "rate_per_s": "poisson", "minutes": "sustained"}

Tokens = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
Threads = Annotated[int, msgspec.Meta(ge=1, le=1024)]
AccuracyWhen = Literal["every", "first", "never"]

# What items can be corrupted with, by their kind, in the order of the tables; audio/, vision/corruptions.py and text/typos.py do it.
CORRUPTIONS: Mapping[str, tuple[str, ...]] = {
    "image": (
        "gaussian_noise",
        "shot_noise",
        "impulse_noise",
        "defocus_blur",
        "gaussian_blur",
        "motion_blur",
        "brightness",
        "contrast",
        "pixelate",
        "jpeg_compression",
    ),
    "audio": ("white_noise", "reverberation"),
    "text": ("character_swap", "character_drop"),
}
EVERY_CORRUPTION = tuple(name for names in CORRUPTIONS.values() for name in names)


def corruption_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the corruptions that were asked for, in the order of the table; `all` stands for every one that fits the data.

    Raises:
        ConfigError: one is unknown.
    """
    unknown = [name for name in names if name != "all" and name not in EVERY_CORRUPTION]
    if unknown:
        raise ConfigError(f"no corruption is called {unknown[0]!r}: choose from {', '.join(EVERY_CORRUPTION)}, or all")
    return tuple(name for name in EVERY_CORRUPTION if name in names or "all" in names)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a `[[case]]` or `[defaults]` may say; a list stands for each of its values."""

    model: str | list[str] | None = None
    sha256: Sha256 | None = None
    name: Name | None = None
    runtime: str | list[str] | None = None
    backend: str | list[str] | None = None
    options: dict[str, str] | None = None
    precision: str | list[str] | None = None
    threads: Threads | list[Threads] | None = None
    prompt_tokens: Tokens | list[Tokens] | None = None
    output_tokens: Tokens | list[Tokens] | None = None
    scenario: Literal["single_stream", "multi_stream", "offline", "poisson"] | None = None
    samples_per_query: Annotated[int, msgspec.Meta(ge=1, le=65536)] | None = None
    batch: Annotated[int, msgspec.Meta(ge=1, le=65536)] | None = None
    rate_per_s: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    mode: Literal["rapid", "quick", "normal", "full", "sustained"] | None = None
    minutes: Annotated[float, msgspec.Meta(gt=0)] | None = None
    repeats: Annotated[int, msgspec.Meta(ge=1)] | None = None
    queries: Annotated[int, msgspec.Meta(ge=1)] | None = None
    seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    idle_seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    cpus: Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=4095)]], msgspec.Meta(min_length=1)] | None = None
    start_below_c: float | None = None
    cool_down_limit_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    images: str | None = None
    annotations: str | None = None
    reader: str | None = None
    subset: Annotated[int, msgspec.Meta(ge=1)] | None = None
    corrupt: list[str] | None = None
    accuracy: AccuracyWhen | None = None
    reference_accuracy: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    gate: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    agreement: AccuracyWhen | None = None
    role: Role | None = None
    estimate_power_w: Annotated[float, msgspec.Meta(gt=0, le=1e5)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None


class SuiteFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file as it is written."""

    name: Name
    case: Annotated[list[Settings], msgspec.Meta(min_length=1)]
    defaults: Settings = Settings()


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to measure: model x runtime x backend x precision x threads x scenario x data."""

    model: str
    sha256: str | None
    name: str | None
    runtime: str
    backend: str | None
    options: dict[str, str]
    precision: str | None
    threads: int
    scenario: str
    mode: str
    repeats: int
    queries: int
    seconds: float
    warm_up_seconds: float
    idle_seconds: float
    images: str | None
    annotations: str | None
    accuracy: AccuracyWhen
    reference_accuracy: float | None = None
    gate: float = GATE_RATIO
    agreement: AccuracyWhen = "never"
    role: Role
    seed: int
    samples_per_query: int = SAMPLES_PER_QUERY
    batch: int | None = None
    rate_per_s: float | None = None
    cpus: tuple[int, ...] = ()
    start_below_c: float | None = None
    cool_down_limit_s: float = COOL_DOWN_LIMIT_S
    subset: int | None = None
    # Of the ground truth's format; None: the one that recognises it.
    reader: str | None = None
    corrupt: tuple[str, ...] = ()
    # Assumed power without a sensor: the energy is then labelled estimated.
    estimate_power_w: float | None = None
    # Of a language model: exact lengths of prompt and output. None for a model of one call.
    prompt_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def label(self) -> str:
        """Return what a person calls the case."""
        parts = [self.name or Path(self.model).name, self.runtime, self.backend or "", f"{self.threads} thread{'s' * (self.threads > 1)}"]
        if self.output_tokens is not None:
            parts.append(f"{self.prompt_tokens}+{self.output_tokens} tokens")
        return " ".join([*filter(None, parts), *(["(reference)"] if self.role == "reference" else [])])


@dataclass(frozen=True, slots=True)
class Suite:
    """The cases of one file, and the combinations that were left out because the runtime does not read the format."""

    name: str
    cases: tuple[Case, ...]
    left_out: tuple[str, ...] = ()


def read(path: Path, instead: Settings = Settings()) -> Suite:  # noqa: B008 - frozen
    """Return the suite in a TOML file; paths in it are relative to the file; `instead` overrides the settings of every case.

    Raises:
        ConfigError: it cannot be read, or a key is unknown or has a wrong value (named with its path).
    """
    return expand(read_toml(path, SuiteFile, "suite"), path.resolve().parent, instead)


def expand(written: SuiteFile, folder: Path, instead: Settings = Settings()) -> Suite:  # noqa: B008 - frozen
    """Return the single cases of a suite.

    Raises:
        ConfigError: a case names no model or an unsupported file, or no combination is left.
    """
    cases: dict[bytes, Case] = {}
    left_out: list[str] = []
    for place, case in enumerate(written.case):
        stated = _said(case) | _said(instead)
        merged = msgspec.structs.replace(written.defaults, **stated)
        where = f"suite {written.name!r}: case[{place}]"
        if not merged.model:
            raise ConfigError(f'{where} names no model: add model = "FILE"')
        for model, *values in itertools.product(_each(merged.model), *(_each(getattr(merged, axis)) for axis in AXES)):
            _refuse_idle_keys(merged, where)
            one = _single(merged, stated, folder, str(model), where, **dict(zip(AXES, values, strict=True)))
            if reads(one.runtime, Path(one.model)):
                cases[msgspec.json.encode(one)] = one
            else:
                left_out.append(f"case[{place}]: {one.runtime} does not read {Path(one.model).name}")
    if not cases:
        raise ConfigError(f"suite {written.name!r} leaves nothing to measure: {'; '.join(left_out)}")
    return Suite(written.name, tuple(cases.values()), tuple(left_out))


def _said(settings: Settings) -> dict[str, object]:
    return {key: value for key, value in msgspec.structs.asdict(settings).items() if value is not None}


def _refuse_idle_keys(merged: Settings, where: str) -> None:
    chosen = {merged.scenario or "single_stream", merged.mode or "quick"}
    for key, wanted in BELONGS.items():
        if getattr(merged, key) is not None and wanted not in chosen:
            raise ConfigError(f"{where}: {key} is for {wanted}, not for {' and '.join(sorted(chosen))}: leave it out, or choose {wanted}")
    if merged.scenario == "poisson" and merged.rate_per_s is None:
        raise ConfigError(f"{where}: poisson needs a rate: add rate_per_s = NUMBER (--rate NUMBER)")


def _seconds(merged: Settings, by_mode: float) -> float:
    if merged.minutes is not None:
        return merged.minutes * 60
    return by_mode if merged.seconds is None else merged.seconds


def _each(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else [value]


def _single(merged: Settings, stated: Collection[str], folder: Path, model: str, where: str, **axes: object) -> Case:
    mode = MODES[merged.mode or "quick"]
    precision = axes["precision"]
    path = folder / model.replace("{precision}", str(precision)) if precision else folder / model
    runtime = str(axes["runtime"] or runtime_for(path))
    queries = mode.queries
    if runtime in GENERATORS or axes["prompt_tokens"] or axes["output_tokens"]:
        merged = _generating(merged, stated, runtime, axes, where)
        queries = GENERATION_QUERIES[merged.mode or "quick"]
    return msgspec.convert(
        {
            "model": str(path),
            "sha256": merged.sha256,
            "name": merged.name,
            "runtime": runtime,
            "backend": axes["backend"],
            "options": merged.options or {},
            "precision": precision,
            "threads": axes["threads"] or 1,
            "scenario": merged.scenario or "single_stream",
            "mode": merged.mode or "quick",
            "repeats": merged.repeats or mode.repeats,
            "queries": merged.queries or queries,
            "seconds": _seconds(merged, mode.seconds),
            "warm_up_seconds": mode.warm_up_seconds,
            "idle_seconds": mode.idle_seconds if merged.idle_seconds is None else merged.idle_seconds,
            "images": None if merged.images is None else str(folder / merged.images),
            "annotations": None if merged.annotations is None else str(folder / merged.annotations),
            "subset": merged.subset,
            "reader": merged.reader,
            "corrupt": corruption_names(merged.corrupt or ()),
            "accuracy": merged.accuracy or "every",
            "reference_accuracy": merged.reference_accuracy,
            "gate": merged.gate or GATE_RATIO,
            "agreement": merged.agreement or ("never" if merged.mode == "rapid" else "first"),
            "role": merged.role or "device",
            "seed": merged.seed or 0,
            "estimate_power_w": merged.estimate_power_w,
            "samples_per_query": merged.samples_per_query or SAMPLES_PER_QUERY,
            "batch": merged.batch,
            "rate_per_s": merged.rate_per_s,
            "cpus": sorted(set(merged.cpus or ())),
            "start_below_c": merged.start_below_c,
            "cool_down_limit_s": COOL_DOWN_LIMIT_S if merged.cool_down_limit_s is None else merged.cool_down_limit_s,
            "prompt_tokens": merged.prompt_tokens,
            "output_tokens": merged.output_tokens,
        },
        Case,
    )


def _generating(merged: Settings, stated: Collection[str], runtime: str, axes: Mapping[str, object], where: str) -> Settings:
    """Return the settings of a case that generates text: single lengths of prompt and output, and nothing of images, which is for others.

    Raises:
        ConfigError: the runtime generates nothing, the scenario is not single_stream, nor poisson for a server, or the case itself has
            what is for others.
    """
    if runtime in set().union(*READERS.values()) - GENERATORS - {"replay"}:
        raise ConfigError(f"{where}: prompt_tokens and output_tokens are for language models, {runtime} runs one call: leave them out")
    if merged.scenario == "poisson" and runtime != "server":
        raise ConfigError(f"{where}: {runtime} answers one query after the other: leave poisson out, or measure a server (NAME.server)")
    if merged.scenario not in (None, "single_stream", "poisson"):
        raise ConfigError(
            f"{where}: a language model runs in single_stream, behind a server also in poisson, not {merged.scenario}: leave it out"
        )
    useless = [key for key in OF_IMAGES if key in stated]
    if useless:
        raise ConfigError(f"{where}: {useless[0]} is not for language models, whose prompts are synthetic: leave it out")
    lengths = {"prompt_tokens": axes["prompt_tokens"] or PROMPT_TOKENS, "output_tokens": axes["output_tokens"] or OUTPUT_TOKENS}
    return msgspec.structs.replace(merged, **(dict.fromkeys(OF_IMAGES) | lengths | {"agreement": "never"}))


def runtime_for(model: Path) -> str:
    """Return the name of the runtime that reads this file.

    Raises:
        ConfigError: no runtime is known for its suffix.
    """
    if model.name == FOLDER_CONFIG:
        return "genai"
    if model.suffix.lower() in FORMATS:
        return FORMATS[model.suffix.lower()]
    raise ConfigError(f"no runtime is known for {model.name!r}: use one of {', '.join((*FORMATS, FOLDER_CONFIG))}, or name the runtime")


def reads(runtime: str, model: Path) -> bool:
    """Return whether `runtime` reads files with this suffix; a runtime or suffix that is not ours is taken at its word."""
    ours = set().union(*READERS.values())
    return runtime not in ours or runtime in READERS.get(model.suffix.lower(), {runtime})
