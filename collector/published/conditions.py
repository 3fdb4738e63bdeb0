"""The conditions that decide whether two figures are of one case: how a published row states each, and how an own case records it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published.name_matching import device_name, is_one_precision, model_name, power_mode_name, runtime_name
from edgemeter.collector.published.row import PublishedRow

# What the kernel reports of a board's memory, over what its maker states.
_MEMORY_REPORTED = 0.85, 1.05
_PROCESSORS = {"cpu": "cpu|xnnpack|arm", "gpu": "gpu|cuda|vulkan|opencl|tensorrt", "npu": "npu|tpu|hailo|rknn|hexagon|dla"}


@dataclass(frozen=True, slots=True)
class StatedCondition:
    """A condition, None where a side does not state it. `is_same` is None where two values are the same as far as they say.

    Two values that are not the same make another case, if `is_decisive`. An absence is named unless the other side has the `usual` value.
    """

    title: str
    of_row: Callable[[PublishedRow], Any]
    of_case: Callable[[CaseSummary], Any]
    is_same: Callable[[Any, Any], bool | None] = lambda value, other: value == other
    is_decisive: bool = True
    usual: Any = None
    names_absence: bool = True


def _case_input(case: CaseSummary) -> str | None:
    shapes = [tensor.shape for tensor in case.newest.inputs]
    return "x".join(map(str, shapes[0])) if len(shapes) == 1 and len(shapes[0]) == 4 and min(shapes[0]) > 0 else None


def _is_one_input(size: str, other: str) -> bool:
    # Batch and channels stand where a layout puts them, or are not stated.
    pixels, other_pixels = ({int(number) for number in re.findall(r"\d+", text) if int(number) > 4} for text in (size, other))
    return pixels <= other_pixels or other_pixels <= pixels


def _speculation(case: CaseSummary) -> str | None:
    generation = case.newest.generation
    return None if generation is None else generation.speculative or "off"


def _memory_gb(case: CaseSummary) -> float | None:
    memory_mb = case.newest.environment.memory_mb
    return None if memory_mb is None else memory_mb / 1024


def _is_one_memory(stated_gb: float, other_gb: float) -> bool:
    low, high = _MEMORY_REPORTED
    return low * stated_gb <= other_gb <= high * stated_gb


def _is_one_processor(backend: str, other: str) -> bool | None:
    kinds = [next((kind for kind, names in _PROCESSORS.items() if re.search(names, name.casefold())), None) for name in (backend, other)]
    return None if None in kinds else kinds[0] == kinds[1]


CONDITIONS: Sequence[StatedCondition] = (
    StatedCondition(
        "precision", lambda row: row.precision or model_name(row.model).precision, lambda case: case.key.precision, is_one_precision,
    ),
    StatedCondition("batch", lambda row: row.batch, lambda case: case.key.batch),
    StatedCondition(
        "power mode", lambda row: row.power_mode, lambda case: case.key.power_mode,
        lambda mode, other: power_mode_name(mode) == power_mode_name(other),
    ),
    StatedCondition("prompt tokens", lambda row: row.prompt_tokens, lambda case: case.key.prompt_tokens),
    StatedCondition("output tokens", lambda row: row.output_tokens, lambda case: case.key.output_tokens),
    StatedCondition("depth", lambda row: row.depth_tokens, lambda case: case.key.depth_tokens),
    StatedCondition("input size", lambda row: row.input_size or model_name(row.model).input_size, _case_input, _is_one_input),
    StatedCondition(
        "runtime", lambda row: row.runtime, lambda case: case.key.runtime,
        lambda runtime, other: runtime_name(runtime) == runtime_name(other),
    ),
    StatedCondition("backend", lambda row: row.backend, lambda case: case.key.backend, _is_one_processor, names_absence=False),
    StatedCondition("threads", lambda row: row.threads, lambda case: case.key.threads),
    StatedCondition("concurrency", lambda row: row.concurrency, lambda case: case.key.concurrency or 1, usual=1),
    StatedCondition(
        "speculation", lambda row: row.speculative, _speculation, lambda text, other: (text == "off") == (other == "off"), usual="off",
    ),
    StatedCondition("memory", lambda row: device_name(row.device).memory_gb, _memory_gb, _is_one_memory, names_absence=False),
    StatedCondition(
        "Super mode", lambda row: device_name(row.device).is_super or None,
        lambda case: device_name(case.around.environment["board"] or "").is_super or None,
    ),
    StatedCondition(
        "tuning", lambda row: model_name(row.model).tuning, lambda case: model_name(case.key.model).tuning, is_decisive=False,
        names_absence=False,
    ),
    StatedCondition(
        "software", lambda row: row.software, lambda case: f"{case.key.runtime_package} {case.key.runtime_version}",
        lambda text, other: other.rpartition(" ")[2] in text, is_decisive=False,
    ),
)  # fmt: skip
_SCOPE = StatedCondition("scope", lambda row: row.scope, lambda case: case.energy.scope if case.energy else None)


@dataclass(frozen=True, slots=True)
class ConditionDifferences:
    """The differences that make the two sides two cases, and what is otherwise not the same, or stated of one side only."""

    decisive: tuple[str, ...]
    named: tuple[str, ...]


def differences(row: PublishedRow, other: PublishedRow | CaseSummary) -> ConditionDifferences:
    """Return how the conditions of a row differ from those of an own case, or of another row."""
    decisive: list[str] = []
    named: list[str] = []
    is_case = isinstance(other, CaseSummary)
    is_energy = row.kind.entry is not None and row.kind.entry.group == "energy"
    for condition in (*CONDITIONS, *([_SCOPE] if is_energy else [])):
        value = condition.of_row(row)
        other_value = condition.of_case(other) if isinstance(other, CaseSummary) else condition.of_row(other)
        if value is None or other_value is None:
            present = other_value if value is None else value
            if condition.names_absence and present not in (None, condition.usual):
                named.append(_absence(condition.title, value, other_value, is_case=is_case))
        elif not (is_same := condition.is_same(value, other_value)):
            against = f"{condition.title} {_text(value)} against {_text(other_value)}"
            (decisive if condition.is_decisive and is_same is False else named).append(against)
    return ConditionDifferences(tuple(decisive), tuple(named))


def _absence(title: str, value: object, other: object, *, is_case: bool) -> str:
    if not is_case:
        return f"{title} {_text(other if value is None else value)} stated on one side only"
    return f"{title} not stated (own: {_text(other)})" if value is None else f"{title} {_text(value)}, not recorded of the own runs"


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "yes" if value is True else str(value)
