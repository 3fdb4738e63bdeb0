"""The identity of a case: every fact that can change a figure, in one table.

Runs that are equal in all fields are one case and may be merged; `case_relation` says how two cases relate. The other keys are projections
of the identity: the series of a trend, the same case elsewhere or after a change, the row of a matrix, the tags of a point.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import msgspec

from edgemeter.agent.base.figures import count
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_generation import SYNTHETIC, Generation
from edgemeter.agent.contract.record_served import Served

USUAL_KV_TYPE = "f16"  # A cache holds values of this type unless it was set: it is no setting.

# Within a class like is compared with like; an unlisted name is a class of its own.
PRECISION_CLASSES = {
    "full": ("fp64", "fp32", "tf32"),
    "half": ("fp16", "bf16"),
    "8-bit float": ("fp8",),
    "16-bit integer": ("int16", "uint16", "int16x8"),
    "8-bit integer": ("int8", "uint8", "w8a8", "int8-dynamic"),
    "4-bit": ("int4", "uint4", "fp4"),
}
_CLASS_OF = {name: wide for wide, names in PRECISION_CLASSES.items() for name in names}


class CaseKey(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """The identity by which runs are merged: a value for each of `FIELDS`, None where it is unknown or absent.

    The same board in another power mode is another machine. `served_model` is what a server states of its model; `settings` is all that
    was set of runtime, cache and cores, empty where nothing was; `input_values` is the number of values of one input, whatever the layout.
    """

    threads: int
    backend: str
    batch: int
    power_mode: str | None
    operating_point: str
    settings: str
    provenance: str
    model: str
    served_model: str | None
    task: str
    scenario: str
    samples_per_query: int
    target_per_s: float | None
    deadline: str | None
    together: str
    concurrency: int | None
    prompt_tokens: int | None
    output_tokens: int | None
    dataset_sha256: str
    precision: str
    input_values: int | None
    device: str
    role: str
    fleet: str
    runtime: str
    runtime_package: str
    runtime_version: str
    model_sha256: str

    @property
    def runtime_text(self) -> str:
        """The runtime, of `python` the framework, with the version that did the work: `litert 2.1.3`, `jax 0.10.2`."""
        return f"{self.runtime_package if self.runtime == 'python' else self.runtime} {self.runtime_version}"

    @property
    def generates(self) -> bool:
        """Whether the model generates text token by token."""
        return self.output_tokens is not None


# What is the same case although some fields differ: one series over time, or the case on another device or after a change.
Projection = Literal["series", "change"]
Value = Callable[[CaseKey], object]


@dataclass(frozen=True, slots=True)
class Likeness:
    """A condition for comparing two cases (None equals everything): its title, its wording where it is not met, and its rationale.

    `is_load`: where it differs, speed and energy do not compare, not even of two models that are chosen between.
    """

    title: str
    wording: str
    why: str
    value: Value | None = None
    is_load: bool = False


@dataclass(frozen=True, slots=True)
class PairMark:
    """A mark of a case and its reference that differ in a value (None equals everything), and what it means to a reader."""

    name: str
    meaning: str
    value: Value | None = None


@dataclass(frozen=True, slots=True)
class IdentityField:
    """One fact that keeps cases apart: the attribute of `CaseKey`, its text in a name, and what is read of a record, by `read` if at all.

    `may_change_in` are the projections that leave it out. Of a field that was added later an empty text does not enter the hash.
    """

    name: str
    text: Callable[[CaseKey], str]
    paths: tuple[str, ...]
    read: Callable[[RunRecord], Any] | None = None
    likeness: Likeness | None = None
    marks: tuple[PairMark, ...] = ()
    may_change_in: tuple[Projection, ...] = ()
    is_hashed_empty: bool = True


def precision_class(precision: str) -> str:
    """Return the class of a precision: `full` for fp32; of one that is not known its own name."""
    return _CLASS_OF.get(precision, precision)


def served_model(generation: Generation | None, served: Served | None = None) -> str | None:
    """Return what a server states of its model: name, version, parameters, quantisation and digest; None without a server."""
    if served is not None:
        return f"{served.model}, version {served.model_version}" if served.model_version else served.model
    if generation is None or generation.is_local:
        return None
    model = generation.model
    parameters = None if model.parameters is None else f"{model.parameters} parameters"
    digest = f"digest {model.digest_sha256[:12]}" if model.digest_sha256 else None
    facts = (model.name, parameters, model.quantisation.file_type if model.quantisation else None, digest)
    return ", ".join(filter(None, facts)) or None


def _settings(run: RunRecord) -> str:
    generation, facts = run.generation, run.runtime.facts
    # A file is what is in it, wherever it lies.
    options = {
        name: f"{Path(value).name} {digest[:8]}" if (digest := facts.get(f"{name}_sha256")) else value
        for name, value in run.runtime.options.items()
    }
    if generation is not None:
        cache = {"kv_type": generation.model.kv_type} if generation.model.kv_type else {}
        options = options | cache | ({"speculative": generation.speculative} if generation.speculative else {})
        options = {name: value for name, value in options.items() if (name, value) != ("kv_type", USUAL_KV_TYPE)}
    if run.cpus is not None:
        options = options | {"cpus": " ".join(map(str, run.cpus))}
    return ", ".join(f"{name} {options[name]}" for name in sorted(options)) if options else ""


def _operating_point(run: RunRecord) -> str:
    """Return what was set beside the power mode, which is a field of its own."""
    point = run.operating_point
    return msgspec.structs.replace(point, power_mode=None).words if point else ""


def _deadline(run: RunRecord) -> str | None:
    return f"{run.steady.deadline_ms:g} ms, {count(run.steady.queue_frames, 'frame')} may wait" if run.steady else None


def _together(run: RunRecord) -> str:
    if run.together is None:
        return ""
    names = [f"{neighbour.model} {neighbour.sha256[:6]} {neighbour.setting_text}" for neighbour in run.together.neighbours]
    return ", ".join(sorted(names))


def _prompt_tokens(run: RunRecord) -> int | None:
    # A server counts the tokens of texts that were made to be about as long: its highest count changes with the number of queries, as does
    # that of a file's prompts.
    generation = run.generation
    if generation is None or generation.counts != "exact" or generation.prompts != SYNTHETIC:
        return None
    return generation.prompt_tokens


def _input_values(run: RunRecord) -> int | None:
    shapes = [tensor.shape for tensor in run.inputs]
    if not shapes or any(size <= 0 for shape in shapes for size in shape):
        return None
    values = sum(prod(shape) for shape in shapes) // run.batch
    # No input has more: the product of sizes that fit 64 bits need not fit them.
    return values if values < 2**53 else None


# In the order in which cases are told apart in names, and in which likenesses are checked.
FIELDS: tuple[IdentityField, ...] = (
    IdentityField(
        "threads", lambda key: count(key.threads, "thread"), ("runtime.threads",),
        marks=(PairMark("other threads", "the reference has another number of threads"),),
    ),
    IdentityField(
        "backend", lambda key: key.backend, ("runtime.backend",),
        marks=(PairMark("other backend", "the reference ran on another backend"),),
    ),
    IdentityField(
        "batch", lambda key: f"batch {key.batch}", ("batch",), marks=(PairMark("other batch", "the reference has another batch size"),),
    ),
    IdentityField(
        "power_mode", lambda key: key.power_mode or "no power mode", ("environment.power_mode",),
        marks=(PairMark("other power mode", "the reference ran in another power mode"),), may_change_in=("series",),
    ),
    IdentityField(
        "operating_point", lambda key: key.operating_point or "clocks as they were", ("operating_point",), _operating_point,
        marks=(PairMark("other clocks", "the reference ran with another governor or other highest clocks"),), is_hashed_empty=False,
    ),
    IdentityField(
        "settings", lambda key: key.settings or "nothing set",
        ("runtime.options", "runtime.facts", "generation.model.kv_type", "generation.speculative", "cpus"), _settings,
        marks=(PairMark("other settings", "the reference has other options of the runtime, another cache or other cores"),),
    ),
    IdentityField(
        "provenance", lambda key: key.provenance or "not stated to be measured", ("provenance",),
        lambda run: run.provenance.get("latency", ""),
        Likeness("provenance", "of the same provenance", "a replay is true of its recording only"),
    ),
    IdentityField(
        "model", lambda key: key.model, ("model.name",),
        likeness=Likeness("model", "for the same model", "different networks do different work"),
    ),
    IdentityField(
        "served_model", lambda key: key.served_model or "no served model",
        ("generation.is_local", "generation.model.name", "generation.model.parameters", "generation.model.quantisation.file_type",
         "generation.model.digest_sha256", "served.model", "served.model_version"),
        lambda run: served_model(run.generation, run.served),
        Likeness("served model", "that serves the same model", "a server's file names its address; which model answers, the server states"),
    ),
    IdentityField(
        "task", lambda key: key.task, ("model.task",),
        likeness=Likeness("task", "for the same task", "classification and detection are different tasks"),
    ),
    IdentityField(
        "scenario", lambda key: key.scenario, ("scenario",),
        likeness=Likeness("scenario", "in the same scenario", "single queries and batches measure different things"),
    ),
    IdentityField(
        "samples_per_query", lambda key: f"{key.samples_per_query} a query", ("load.samples_per_query", "batch"),
        lambda run: run.load.samples_per_query if run.load else run.batch,
        Likeness(
            "samples a query", "with as many samples a query", "a query of eight samples takes longer than one of one; multi_stream only",
            # Only where the latency is of so many samples: offline, each machine takes the batch that suits it.
            lambda key: key.samples_per_query if key.scenario == "multi_stream" else None,
        ),
    ),
    IdentityField(
        "target_per_s", lambda key: "no rate" if key.target_per_s is None else f"{key.target_per_s:g} per s", ("load.target_per_s",),
        lambda run: run.load.target_per_s if run.load else None,
        Likeness("rate", "at the same rate", "waiting times depend on the rate; open loop only", is_load=True),
    ),
    IdentityField(
        "deadline", lambda key: f"deadline {key.deadline}" if key.deadline else "no deadline",
        ("steady.deadline_ms", "steady.queue_frames"), _deadline,
        Likeness("deadline and queue", "with the same deadline and queue", "they decide what is missed; steady only", is_load=True),
    ),
    IdentityField(
        "together", lambda key: f"together with {key.together}" if key.together else "alone", ("together.neighbours",), _together,
        Likeness("neighbours", "beside the same models", "models that run at the same time slow each other down"), is_hashed_empty=False,
    ),
    IdentityField(
        "concurrency", lambda key: "no users" if key.concurrency is None else count(key.concurrency, "user"), ("load.concurrency",),
        lambda run: run.load.concurrency if run.load else None,
        Likeness("users", "with as many users", "every figure depends on how many are served at once; closed loop of several users only"),
    ),
    IdentityField(
        "prompt_tokens", lambda key: "prompt unknown" if key.prompt_tokens is None else count(key.prompt_tokens, "prompt token"),
        ("generation.prompt_tokens", "generation.counts", "generation.prompts"), _prompt_tokens,
        Likeness("prompt tokens", "with as many prompt tokens", "a longer prompt takes longer; language models, as the engine counts"),
    ),
    IdentityField(
        "output_tokens", lambda key: "no text" if key.output_tokens is None else count(key.output_tokens, "output token"),
        ("generation.output_tokens",), lambda run: run.generation.output_tokens if run.generation else None,
        Likeness("output tokens", "with as many output tokens", "more tokens take longer; language models"),
    ),
    IdentityField(
        "dataset_sha256", lambda key: f"data {key.dataset_sha256[:6]}", ("dataset.sha256",),
        likeness=Likeness("data", "on the same data", "accuracy and latency depend on the images (compared by hash)"),
    ),
    IdentityField(
        "precision", lambda key: key.precision, ("precision",),
        likeness=Likeness(
            "quantisation (language models)", "of the same quantisation",
            "a file of 4 bits is faster and another model; compare their quality first",
            lambda key: key.precision if key.generates else None,
        ),
        marks=(
            PairMark("other precision", "the reference has another precision"),
            PairMark(
                "other class of precision", "the precision classes differ: a ratio that is not judged",
                lambda key: precision_class(key.precision),
            ),
        ),
    ),
    IdentityField(
        "input_values", lambda key: "input unknown" if key.input_values is None else f"{key.input_values} values", ("inputs", "batch"),
        _input_values, Likeness("input size", "at the same input size", "more pixels take longer; the layout does not matter"),
    ),
    IdentityField("device", lambda key: key.device, ("device",), may_change_in=("change",)),
    IdentityField("role", lambda key: key.role, ("role",), may_change_in=("change",)),
    IdentityField("fleet", lambda key: f"fleet {key.fleet}", ("fleet",), may_change_in=("change",)),
    IdentityField(
        "runtime", lambda key: key.runtime, ("runtime.name",), marks=(PairMark("other runtime", "the reference has another runtime"),),
    ),
    IdentityField("runtime_package", lambda key: key.runtime_package, ("runtime.package",), may_change_in=("series", "change")),
    IdentityField("runtime_version", lambda key: key.runtime_version, ("runtime.version",), may_change_in=("series", "change")),
    IdentityField("model_sha256", lambda key: f"file {key.model_sha256[:6]}", ("model.sha256",), may_change_in=("series", "change")),
)  # fmt: skip
FIELD = {field.name: field for field in FIELDS}
_WHERE = ("device", "fleet")
_READ = tuple(field.read or attrgetter(field.paths[0]) for field in FIELDS)


def key_of(run: RunRecord) -> CaseKey:
    """Return the case that `run` belongs to."""
    return CaseKey(*[read(run) for read in _READ])


def load_text(key: CaseKey) -> str:
    """Return under which load a case ran, and beside which models; empty of calls one after the other. It parts cases in a chart."""
    names = [name for name in ("target_per_s", "deadline", "concurrency", "together") if getattr(key, name)]
    if key.scenario == "multi_stream":
        names.insert(0, "samples_per_query")
    return ", ".join(FIELD[name].text(key) for name in names)


def case_hash(key: CaseKey) -> str:
    """Return a hash of the case wherever it runs, without device and fleet: 12 hexadecimal digits, the same on every machine.

    An unknown value does not enter it: a field that is added changes no hash of a run without it.
    """
    from hashlib import sha256  # noqa: PLC0415 - it brings OpenSSL

    values = {
        field.name: value
        for field in FIELDS
        if field.name not in _WHERE and (value := getattr(key, field.name)) is not None and (value != "" or field.is_hashed_empty)
    }
    return sha256(msgspec.json.encode(values, order="sorted")).hexdigest()[:12]


def names_in(projection: Projection) -> tuple[str, ...]:
    """Return the fields that are the same throughout a projection."""
    return tuple(field.name for field in FIELDS if projection not in field.may_change_in)


# What is the same in a series over time: the case without the files, versions and power mode that may change in it.
in_series: Callable[[CaseKey], tuple[Any, ...]] = attrgetter(*names_in("series"))
# What is the same case on another device or after a change, which changes the model's file and the runtime's version.
like_with_like: Callable[[CaseKey], tuple[Any, ...]] = attrgetter(*names_in("change"))
