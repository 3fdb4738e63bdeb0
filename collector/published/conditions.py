"""The conditions that decide whether two figures are of one case: how a published row states each, and how an own case records it."""

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgemeter.agent.machine.board_limits import limits_named
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published.name_matching import (
    DeviceName,
    device_name,
    is_one_precision,
    model_name,
    power_mode_in,
    power_mode_name,
    runtime_name,
)
from edgemeter.collector.published.row import PublishedRow
from edgemeter.collector.published.rule import JudgedRow

# What the kernel reports of a board's memory, over what its maker states.
_MEMORY_REPORTED = 0.85, 1.05
_CLOCKS_ALIKE = 0.02
_PROCESSORS = {"cpu": "cpu|xnnpack|arm", "gpu": "gpu|cuda|vulkan|opencl|tensorrt", "npu": "npu|tpu|hailo|rknn|hexagon|dla"}


@dataclass(frozen=True, slots=True)
class StatedCondition:
    """A condition, None where a side does not state it. `is_same` is None where two values are the same as far as they say.

    Two values that are not the same make another case, if `is_decisive`. An absence is named unless the other side has the `usual` value,
    and leaves open whether the two are of one case unless that has the `expected` one.
    """

    title: str
    of_row: Callable[[JudgedRow], Any]
    of_case: Callable[[CaseSummary], Any]
    is_same: Callable[[Any, Any], bool | None] = operator.eq
    is_decisive: bool = True
    usual: Any = None
    names_absence: bool = True
    expected: Any = None


# Runtimes of accelerators that are added to a board: a figure of one is none of the board's processor.
_ADDED = ("hailo", "edgetpu")
SEVERAL = "(number not stated)"


def device_of(case: CaseSummary) -> DeviceName:
    """Return the device that did the work: the board, or an accelerator attached to it, with what its name states."""
    board = case.around.environment["board"] or ""
    if case.key.runtime not in _ADDED:
        return device_name(board)
    attached = next((text for text in case.newest.environment.attached if limits_named(text).added), None)
    host = limits_named(board).board
    return replace(device_name(attached), host=host.name if host else None) if attached else DeviceName("")


def _users(judged: JudgedRow) -> int | str | None:
    return SEVERAL if judged.is_of_many else judged.users


def _devices(judged: JudgedRow) -> int | str:
    return judged.limits.devices or SEVERAL


def _is_one_number(number: int | str, other: int | str) -> bool | None:
    # Who does not say how many may mean as many.
    return number == other if SEVERAL not in (number, other) else None


def _speculation_stated(judged: JudgedRow) -> str | None:
    return None if judged.speculates is None else (judged.row.speculative or "on") if judged.speculates else "off"


_UNLISTED = "one whose bounds are not on record"


def _accelerator(judged: JudgedRow) -> str:
    """Return what the backend and the conditions add to the device, `none` as a rule."""
    device, limits = limits_named(judged.row.device), judged.limits
    added = sorted(entry.name for entry in limits.added if entry not in device.added)
    # The runtime of an accelerator that the device names is no other one.
    is_complete = limits_named(judged.row.conditions).is_complete if device.added else limits.is_complete
    return _UNLISTED if device.is_complete and not is_complete else ", ".join(added) or "none"


def _is_one_accelerator(name: str, other: str) -> bool | None:
    return name == other if _UNLISTED not in (name, other) else None


def _clock_ghz(case: CaseSummary) -> float | None:
    clocks_hz = [entry.clock_hz for entry in case.newest.conditions if entry.when == "during" and entry.clock_hz]
    return clocks_hz[0] / 1e9 if clocks_hz and _processor(case.key.backend) == "cpu" else None


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
    # An accelerator has its own.
    return None if memory_mb is None or case.key.runtime in _ADDED else memory_mb / 1024


def _is_one_memory(stated_gb: float, other_gb: float) -> bool:
    low, high = _MEMORY_REPORTED
    return low * stated_gb <= other_gb <= high * stated_gb


def _processor(backend: str) -> str | None:
    return next((kind for kind, names in _PROCESSORS.items() if re.search(names, backend.casefold())), None)


def _is_one_processor(backend: str, other: str) -> bool | None:
    kinds = [_processor(name) for name in (backend, other)]
    return None if None in kinds else kinds[0] == kinds[1]


CONDITIONS: Sequence[StatedCondition] = (
    StatedCondition(
        "precision", lambda judged: judged.row.precision or model_name(judged.row.model).precision, lambda case: case.key.precision,
        is_one_precision,
    ),
    StatedCondition(
        "batch", _users, lambda case: max(case.key.batch, case.key.concurrency or 1), _is_one_number, expected=1,
    ),
    StatedCondition("batch", lambda judged: judged.row.batch, lambda case: case.key.batch, names_absence=False, expected=1),
    StatedCondition(
        "power mode", lambda judged: judged.row.power_mode or power_mode_in(judged.row.device, judged.row.conditions),
        lambda case: case.key.power_mode, lambda mode, other: power_mode_name(mode) == power_mode_name(other),
    ),
    StatedCondition("prompt tokens", lambda judged: judged.row.prompt_tokens, lambda case: case.key.prompt_tokens),
    StatedCondition("output tokens", lambda judged: judged.row.output_tokens, lambda case: case.key.output_tokens),
    StatedCondition("depth", lambda judged: judged.row.depth_tokens, lambda case: 0 if case.key.generates else None),
    StatedCondition(
        "input size", lambda judged: judged.row.input_size or model_name(judged.row.model).input_size, _case_input, _is_one_input,
    ),
    StatedCondition(
        "runtime", lambda judged: judged.row.runtime, lambda case: case.key.runtime,
        lambda runtime, other: runtime_name(runtime) == runtime_name(other),
    ),
    StatedCondition("backend", lambda judged: judged.row.backend, lambda case: case.key.backend, _is_one_processor, names_absence=False),
    StatedCondition("threads", lambda judged: judged.row.threads, lambda case: case.key.threads),
    StatedCondition(
        "concurrency", lambda judged: judged.row.concurrency, lambda case: case.key.concurrency or 1, usual=1, expected=1,
    ),
    StatedCondition(
        "speculation", _speculation_stated, _speculation, lambda text, other: (text == "off") == (other == "off"), usual="off",
        expected="off",
    ),
    StatedCondition("devices", _devices, lambda _: 1, _is_one_number),
    StatedCondition("accelerator", _accelerator, lambda _: "none", _is_one_accelerator),
    StatedCondition("product", lambda judged: device_name(judged.row.device).form, lambda case: device_of(case).form),
    StatedCondition("board", lambda judged: device_name(judged.row.device).host, lambda case: device_of(case).host),
    StatedCondition(
        "memory", lambda judged: device_name(judged.row.device).memory_gb, _memory_gb, _is_one_memory, names_absence=False,
    ),
    StatedCondition(
        "Super mode", lambda judged: device_name(judged.row.device).is_super or None, lambda case: device_of(case).is_super or None,
    ),
    StatedCondition(
        "clock in GHz", lambda judged: judged.row.clock_hz and judged.row.clock_hz / 1e9, _clock_ghz,
        lambda clock, other: math.isclose(clock, other, rel_tol=_CLOCKS_ALIKE), names_absence=False,
    ),
    StatedCondition(
        "tuning", lambda judged: model_name(judged.row.model).tuning, lambda case: model_name(case.key.model).tuning, is_decisive=False,
        names_absence=False,
    ),
    StatedCondition(
        "software", lambda judged: judged.row.software, lambda case: f"{case.key.runtime_package} {case.key.runtime_version}",
        lambda text, other: other.rpartition(" ")[2] in text, is_decisive=False,
    ),
    # Of an energy or a power only, and the last.
    StatedCondition("scope", lambda judged: judged.row.scope, lambda case: case.energy.scope if case.energy else None),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConditionDifferences:
    """The differences that make the two sides two cases, and what is otherwise not the same, or stated of one side only.

    `is_open` where one side states what could explain any ratio, and the other does not.
    """

    decisive: tuple[str, ...]
    named: tuple[str, ...]
    is_open: bool = False


def conditions_of(entry: PublishedRow | CaseSummary) -> tuple[Any, ...]:
    """Return the conditions of a row as stated, or of an own case as recorded, in the order of `CONDITIONS`."""
    if isinstance(entry, CaseSummary):
        return tuple(condition.of_case(entry) for condition in CONDITIONS)
    judged = JudgedRow(entry)
    return tuple(condition.of_row(judged) for condition in CONDITIONS)


def _of_figure(row: PublishedRow) -> Sequence[StatedCondition]:
    return CONDITIONS if row.kind.entry is not None and row.kind.entry.group == "energy" else CONDITIONS[:-1]


def is_one_case(row: PublishedRow, values: Sequence[Any], other_values: Sequence[Any]) -> bool:
    """Return whether no condition that both sides state makes them two cases."""
    return values == other_values or all(
        value is None or other_value is None or value == other_value or not condition.is_decisive
        or condition.is_same(value, other_value) is not False
        for condition, value, other_value in zip(_of_figure(row), values, other_values, strict=False)
    )  # fmt: skip


def differences(row: PublishedRow, values: Sequence[Any], other_values: Sequence[Any], *, is_case: bool) -> ConditionDifferences:
    """Return how the conditions of a row differ from those of an own case (`is_case`), or of another row."""
    decisive: list[str] = []
    named: list[str] = []
    is_open = False
    for condition, value, other_value in zip(_of_figure(row), values, other_values, strict=False):
        if value is None or other_value is None:
            present = other_value if value is None else value
            if condition.names_absence and present not in (None, condition.usual):
                named.append(_absence(condition.title, value, other_value, is_case=is_case))
            is_open = is_open or (condition.expected is not None and present not in (None, condition.expected))
        elif not (is_same := condition.is_same(value, other_value)):
            is_open = is_open or SEVERAL in (value, other_value) or _UNLISTED in (value, other_value)
            against = f"{condition.title} {_text(value)} against {_text(other_value)}"
            (decisive if condition.is_decisive and is_same is False else named).append(against)
    return ConditionDifferences(tuple(dict.fromkeys(decisive)), tuple(dict.fromkeys(named)), is_open)


def _absence(title: str, value: object, other: object, *, is_case: bool) -> str:
    if not is_case:
        return f"{title} {_text(other if value is None else value)} stated on one side only"
    return f"{title} not stated (own: {_text(other)})" if value is None else f"{title} {_text(value)}, not recorded of the own runs"


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "yes" if value is True else str(value)
