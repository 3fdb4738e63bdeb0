"""Own runs next to a published figure.

They are the cases of the same model on the same board, with their differences.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from edgemeter.agent.contract.energy_provenance import MEASURED
from edgemeter.agent.machine.board_limits import limits_named, plain_name
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published.row import PublishedRow
from edgemeter.collector.runs.cases import named
from edgemeter.collector.runs.relation import precision_class

# Shown own runs, those with the fewest differences.
NEAREST = 3
_FILE_END = re.compile(
    r"\.(?:gguf|onnx|tflite|engine|plan|hef|pte|pt|param|xml)$|^.*/(?=[^/]*[a-z]{2})"
)
_PRECISION = re.compile(
    r"(?<![a-z0-9])(?:i?q\d(?:[_ "
    r"][0-9ksmlx]{1,2})*|mxfp4|nvfp4|bf16|f(?:p|loat)?\d\d|u?int\d+|w\d+a\d+|\d "
    r"?-?bits?)(?![a-z0-9])"
)
_NEUTRAL = re.compile(
    r"\b(?:meta|ultralytics|instruct|it|chat|latest|gguf|\d{3,4}x\d{3,4}|320|416|640)\b"
)


class OwnRun(msgspec.Struct, frozen=True):
    """An own case next to a published figure.

    `value` is in our unit over a number of runs, with its 95% interval; `ratio` is published / own,
    `differs` are the stated differences.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    runs: int
    ratio: float
    differs: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def model_key(text: str) -> str:
    """Return the name of a model in one spelling: `YOLO11n` of `yolo11n_fp32.onnx`."""
    words = _PRECISION.sub(" ", _FILE_END.sub("", text.casefold()).replace("_", " "))
    return re.sub(r"[^a-z0-9.]+", "", _NEUTRAL.sub(" ", words)).strip(".")


@lru_cache(maxsize=4096)
def _device_key(text: str) -> str:
    limits = limits_named(text)
    names = [part.name for part in (limits.board, limits.added) if part]
    return " + ".join(names) if names and limits.is_complete else plain_name(text)


def own_runs(row: PublishedRow, cases: Sequence[CaseSummary]) -> list[OwnRun]:
    """Return the own cases of a figure's model and board that have the figure.

    The nearest are first; a result of MLPerf has none.
    """
    if row.is_mlperf:
        return []
    matches = []
    for case in cases:
        boards = {_device_key(case.key.device), _device_key(case.around.environment["board"] or "")}
        if (
            model_key(case.key.model) != model_key(row.model)
            or _device_key(row.device) not in boards
            or case.key.provenance != MEASURED
        ):
            continue
        figure = case.figures.get(row.figure)
        if (
            figure is not None
            and figure.value > 0
            and (row.kind.group != "energy" or case.energy is not None)
        ):
            matches.append(
                OwnRun(
                    named(case.key),
                    figure.value,
                    figure.low,
                    figure.high,
                    figure.runs,
                    row.canonical / figure.value,
                    tuple(_differences(row, case)),
                )
            )
    return sorted(matches, key=lambda match: (len(match.differs), match.name))[:NEAREST]


def _differences(row: PublishedRow, case: CaseSummary) -> list[str]:
    key = case.key
    pairs = (
        ("precision", row.precision, key.precision),
        ("runtime", row.runtime, key.runtime),
        ("backend", row.backend, key.backend),
        ("batch", row.batch, max(key.batch, key.concurrency or 1)),
        ("threads", row.threads, key.threads),
        ("power mode", row.power_mode, key.power_mode),
        ("prompt tokens", row.prompt_tokens, key.prompt_tokens),
        ("output tokens", row.output_tokens, key.output_tokens),
        (
            "scope",
            row.scope,
            case.energy.scope if row.kind.group == "energy" and case.energy else None,
        ),
    )
    return [
        f"{title} {published} against {measured}"
        for title, published, measured in pairs
        if published and measured and not _is_same(title, published, measured)
    ]


def _is_same(title: str, published: object, measured: object) -> bool:
    if title == "precision":
        return precision_class(str(published).casefold()) == precision_class(str(measured))
    first, second = (
        re.sub(r"runtime|mode|[^a-z0-9]", "", str(value).casefold())
        for value in (published, measured)
    )
    return first == second or (title == "backend" and (first in second or second in first))
