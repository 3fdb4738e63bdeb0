"""The identity of a case: every fact that can change a figure, in one table.

Runs that are equal in all fields are one case.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import msgspec

from edgemeter.agent.base.number_text import count
from edgemeter.agent.contract.model_formats import SERVED
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import RuntimeInfo
from edgemeter.agent.contract.record_generation import SYNTHETIC, Generation

USUAL_KV_TYPE = "f16"  # The default type of a cache, which is not listed as a setting.


class CaseKey(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """The identity by which runs are merged.

    It has a value for each of `FIELDS`, None if it is unknown or absent.

    The same board in another power mode is another machine. `served_model` is the model by its
    server's description; `settings` are those of runtime, cache and cores; `input_values` is the
    number of values of one input, whatever the layout.
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
        """The runtime, or the framework behind `python`, with its version.

        For example `litert 2.1.3`, `jax 0.10.2`.
        """
        return (
            f"{self.runtime_package if self.runtime == 'python' else self.runtime} "
            f"{self.runtime_version}"
        )

    @property
    def generates(self) -> bool:
        """Whether the model generates text token by token."""
        return self.output_tokens is not None


# Two cases are compared only if their `equal` fields agree, where both values are known. A
# difference in a `marked` field is shown. The `free` fields name the device and the files: a case
# remains the same on another device or after an update.
Rule = Literal["equal", "marked", "free"]


@dataclass(frozen=True, slots=True)
class IdentityField:
    """One fact that keeps cases apart.

    It has its attribute in `CaseKey`, its title, and the fields of the record that it is read from.

    Without `read`, the value is the first of the `paths`. `words` is a template for the value, or a
    noun to count; `absent` is the text for no value. `why` is why the values must be equal.
    """

    name: str
    title: str
    rule: Rule
    paths: tuple[str, ...]
    read: Callable[[RunRecord], Any] | None = None
    words: str = "{}"
    absent: str = ""
    why: str = ""

    def text(self, key: CaseKey) -> str:
        value = getattr(key, self.name)
        if value in (None, ""):
            return self.absent
        return self.words.format(value) if "{" in self.words else count(value, self.words)

    @property
    def mark(self) -> str:
        """The mark of a case that differs from its reference in this field."""
        return f"other {self.title}"


def served_model(generation: Generation | None, runtime: RuntimeInfo) -> str | None:
    """Return name, version and parameters of a model as its server describes it.

    None without a server.
    """
    if runtime.name == SERVED:
        name, version = (
            runtime.facts.get("served_model", ""),
            runtime.facts.get("served_model_version"),
        )
        return f"{name}, version {version}" if version else name
    if generation is None or generation.is_local:
        return None
    model = generation.model
    parameters = None if model.parameters is None else f"{model.parameters} parameters"
    return ", ".join(filter(None, (model.name, parameters))) or None


def _settings(run: RunRecord) -> str:
    generation, facts = run.generation, run.runtime.facts
    # A file counts by its content, not its path.
    options = {
        name: f"{Path(value).name} {digest[:8]}"
        if (digest := facts.get(f"{name}_sha256"))
        else value
        for name, value in run.runtime.options.items()
    }
    if generation is not None:
        cache = {"kv_type": generation.model.kv_type} if generation.model.kv_type else {}
        options = (
            options
            | cache
            | ({"speculative": generation.speculative} if generation.speculative else {})
        )
        options = {
            name: value
            for name, value in options.items()
            if (name, value) != ("kv_type", USUAL_KV_TYPE)
        }
    if run.cpus is not None:
        options |= {"cpus": " ".join(map(str, run.cpus))}
    return ", ".join(f"{name} {options[name]}" for name in sorted(options))


def _together(run: RunRecord) -> str:
    if run.together is None:
        return ""
    names = [
        f"{neighbour.model} {neighbour.sha256[:6]} {neighbour.setting_text}"
        for neighbour in run.together.neighbours
    ]
    return ", ".join(sorted(names))


def _prompt_tokens(run: RunRecord) -> int | None:
    # Synthetic texts for a server have about the requested length, and a file's prompts differ in
    # length: their highest count depends on the number of queries.
    generation = run.generation
    if generation is None or generation.counts != "exact" or generation.prompts != SYNTHETIC:
        return None
    return generation.prompt_tokens


def _input_values(run: RunRecord) -> int | None:
    shapes = [tensor.shape for tensor in run.inputs]
    if not shapes or any(size <= 0 for shape in shapes for size in shape):
        return None
    values = sum(prod(shape) for shape in shapes) // run.batch
    # No real input is larger; a product of sizes may exceed 64 bits.
    return values if values < 2**53 else None


# In the order of names that distinguish cases, and of checks for equality.
FIELDS: tuple[IdentityField, ...] = (
    IdentityField("threads", "threads", "marked", ("runtime.threads",), words="thread"),
    IdentityField("backend", "backend", "marked", ("runtime.backend",)),
    IdentityField("batch", "batch", "marked", ("batch",), words="batch {}"),
    IdentityField(
        "power_mode", "power mode", "marked", ("environment.power_mode",), absent="no power mode",
    ),
    IdentityField(
        # Without the power mode, which has a field of its own.
        "operating_point", "governor", "marked", ("operating_point",),
        lambda run: OperatingPoint(governor=run.operating_point.governor).words
        if run.operating_point else "",
        absent="governor as it was",
    ),
    IdentityField(
        "settings", "settings", "marked",
        (
            "runtime.options", "runtime.facts", "generation.model.kv_type",
            "generation.speculative", "cpus",
        ),
        _settings, absent="nothing set",
    ),
    IdentityField(
        "provenance", "provenance", "equal", ("provenance",),
        lambda run: run.provenance.get("latency", ""), absent="not stated to be measured",
        why="a replay is no measurement of this board",
    ),
    IdentityField(
        "model", "model", "equal", ("model.name",), why="different networks do different work",
    ),
    IdentityField(
        "served_model", "served model", "equal",
        ("generation.is_local", "generation.model.name", "generation.model.parameters",
         "runtime.name", "runtime.facts"),
        lambda run: served_model(run.generation, run.runtime), absent="no served model",
        why="the file of a server has only its address; the server says which model answers",
    ),
    IdentityField(
        "task", "task", "equal", ("model.task",),
        why="classification and detection are different tasks",
    ),
    IdentityField(
        "scenario", "scenario", "equal", ("scenario",),
        why="single queries and batches measure different things",
    ),
    IdentityField(
        "target_per_s", "rate", "equal", ("load.target_per_s",),
        lambda run: run.load.target_per_s if run.load else None, "{:g} per s", "no rate",
        "poisson and steady only: waiting times depend on the rate",
    ),
    IdentityField(
        "deadline", "deadline", "equal", ("steady.deadline_ms",),
        lambda run: f"{run.steady.deadline_ms:g} ms" if run.steady else None, "deadline {}",
        "no deadline", "steady only: it decides which frames are missed",
    ),
    IdentityField(
        "together", "neighbours", "equal", ("together.neighbours",), _together, "together with {}",
        "alone", "models that run at the same time slow each other down",
    ),
    IdentityField(
        "concurrency", "users", "equal", ("load.concurrency",),
        lambda run: run.load.concurrency if run.load else None, "user", "no users",
        "several users only: every figure depends on how many are served at once",
    ),
    IdentityField(
        "prompt_tokens", "prompt tokens", "equal",
        ("generation.prompt_tokens", "generation.counts", "generation.prompts"), _prompt_tokens,
        "prompt token", "prompt unknown",
        "language models only: a longer prompt takes longer (tokens as the engine counts them)",
    ),
    IdentityField(
        "output_tokens", "output tokens", "equal", ("generation.output_tokens",),
        lambda run: run.generation.output_tokens if run.generation else None, "output token",
        "no text", "language models only: more tokens take longer",
    ),
    IdentityField(
        "dataset_sha256", "data", "equal", ("dataset.sha256",), words="data {:.6}",
        why="accuracy and latency depend on the images (their hash is compared)",
    ),
    IdentityField("precision", "precision", "marked", ("precision",)),
    IdentityField(
        "input_values", "input size", "equal", ("inputs", "batch"), _input_values, "{} values",
        "input unknown", "more pixels take longer (the layout does not matter)",
    ),
    IdentityField("device", "device", "free", ("device",)),
    IdentityField("role", "role", "free", ("role",)),
    IdentityField("fleet", "fleet", "free", ("fleet",), words="fleet {}"),
    IdentityField("runtime", "runtime", "marked", ("runtime.name",)),
    IdentityField("runtime_package", "runtime package", "free", ("runtime.package",)),
    IdentityField("runtime_version", "runtime version", "free", ("runtime.version",)),
    IdentityField("model_sha256", "model file", "free", ("model.sha256",), words="file {:.6}"),
)  # fmt: skip
FIELD = {field.name: field for field in FIELDS}
_READ = tuple(field.read or attrgetter(field.paths[0]) for field in FIELDS)


def key_of(run: RunRecord) -> CaseKey:
    return CaseKey(*[read(run) for read in _READ])
