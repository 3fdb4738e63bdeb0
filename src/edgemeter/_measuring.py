"""The commands `run` and `compare` as functions `edgemeter.measure` and `edgemeter.compare`.

`measure` takes functions too.
"""

import io
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial, wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from msgspec.structs import asdict

from edgemeter.agent.base import config
from edgemeter.agent.base.console import Console
from edgemeter.agent.base.decision import MATTERS_RATIO
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.base.terminal import TABLE_WIDTH
from edgemeter.agent.contract.case_settings import MODE, Settings
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.engine.function_subject import FunctionCall
from edgemeter.agent.ledger.own_runs import saving
from edgemeter.agent.measuring import function_run
from edgemeter.agent.measuring.case_text import block_lines, block_rows, heading
from edgemeter.agent.measuring.measure_suite import SessionOutcome, ignore, measure_suite
from edgemeter.agent.measuring.measured_case import MeasuredCase
from edgemeter.agent.measuring.session_progress import SessionProgress
from edgemeter.agent.measuring.settings import SessionSettings
from edgemeter.agent.measuring.suites import suite_of
from edgemeter.agent.session.session import OnEvent
from edgemeter.agent.settings.case_keys import CASE_KEYS, checked_settings
from edgemeter.agent.verdict.words import verdict_lines
from edgemeter.collector.compare.comparison import Comparison
from edgemeter.collector.compare.measured_sides import measure_sides
from edgemeter.collector.show.compare_table import show_answer
from edgemeter.collector.show.words import headline

logger = logging.getLogger(__name__)

Mode: TypeAlias = Literal["rapid", "quick", "normal", "full"]
P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)


class Record(RunRecord, frozen=True, kw_only=True):
    """The record of a run; as text its figures and its verdict, in at most ten lines."""

    def __str__(self) -> str:
        reason, *further = [
            line.partition(": ")[2] for line in verdict_lines([self.verdict], with_notes=False)
        ] or [""]
        if further:
            reason = f"{reason} {len(further)} more in record.verdict."
        return "\n".join(
            block_lines(
                heading(self),
                [*block_rows(MeasuredCase((self,))), ("Verdict", self.verdict.state, reason)],
            )
        )


@overload
def measure(
    model: Callable[..., object],
    inputs: object = (),
    *,
    name: str | None = None,
    mode: Mode = MODE,
    power: str | None = None,
    save: bool = True,
    progress: bool = False,
    **settings: Any,
) -> Record: ...


@overload
def measure(
    model: str | Path,
    *,
    data: str | Path | None = None,
    annotations: str | Path | None = None,
    mode: Mode = MODE,
    power: str | None = None,
    save: bool = True,
    progress: bool = False,
    **settings: Any,
) -> Record: ...


def measure(
    model: str | Path | Callable[..., object],
    inputs: object = (),
    *,
    data: str | Path | None = None,
    annotations: str | Path | None = None,
    mode: Mode = MODE,
    power: str | None = None,
    save: bool = True,
    progress: bool = False,
    **settings: Any,
) -> Record:
    """Measure a model or a function once, and return the record of the run.

    A model is measured in its own process, a function in this one.

    Args:
        model: path of the model, or its name in the catalogue; or a function, a PyTorch module, or
            any other callable. Results of JAX and of accelerators are waited for. The backend of a
            function's run is `in-process`.
        inputs: inputs of a function: a tuple becomes its arguments, a dict its keyword arguments,
            anything else its only argument.
        data: a folder of images or recordings, or one file. Without data the model runs on random
            inputs and has no accuracy.
        annotations: ground truth of the data: COCO JSON, YOLO labels, or an index of classes.
        mode: length of the run: `rapid` 64 queries, `quick` 10 s, `normal` 60 s, `full` 600 s.
        power: power sensors by name (`NAME[,NAME]`), or `none`. Default: the sensor with the widest
            scope, if there is one.
        save: whether this device's ledger keeps the run.
        progress: whether standard error shows progress.
        settings: other keys of a case in a suite: `runtime`, `backend`, `threads`, `scenario`,
            `subset`, `seed`, ...; for a function `name`, `seed`, `seconds` and `idle_seconds`.

    Returns:
        The record. A figure that was not measured is None, and `record.reasons` says why. Read
        `verdict` before you use a figure.

    Raises:
        EdgemeterError: the model, the data or a setting is wrong, or the run failed.

    Example:
        import edgemeter

        record = edgemeter.measure(
            "model.tflite", data="photos", annotations="instances.json", mode="rapid"
        )
        print(record)
        print(record.latency.p50_ms, record.accuracy.value, record.verdict.state)
    """
    if callable(model):
        if (
            wrong := "data"
            if data is not None
            else "annotations"
            if annotations is not None
            else None
        ):
            raise TypeError(
                f"unexpected keyword argument {wrong!r} for a function: give its inputs"
            )
        session = SessionSettings.of_environment(power=power, save=save)
        target = FunctionCall(model, inputs)
        record = _function_run(target, settings | {"mode": mode}, session, progress=progress)
        # When it is over, so that nothing of ours disturbs it.
        with saving(config.read(session.config), logger.info, is_wanted=save) as keep:
            return Record(**asdict(keep(record)))
    if not isinstance(model, str | os.PathLike):
        raise TypeError(
            f"{model!r} cannot be measured: give the path or name of a model, or a "
            "function and its inputs"
        )
    if inputs != ():
        raise TypeError(
            "measure takes one model: give its data as data=FOLDER, or compare two with "
            "edgemeter.compare(A, B)"
        )
    if repeating := settings.keys() & {"repeats", "time_s", "precision_ratio"}:
        raise TypeError(
            f"measure makes one run and takes no {min(repeating)!r}: call it again for another run"
        )
    of_case = _case_settings(settings, data=data, annotations=annotations, mode=mode, repeats=1)
    cases = suite_of(None, Path(model), of_case)
    session = SessionSettings.of_environment(power=power, save=save)
    with _progress(is_shown=progress) as on_event:
        outcome = measure_suite(cases, session, on_event, logger.info)
    _raise_or_log(outcome)
    return Record(**asdict(outcome.records[0]))


def _function_run(
    target: FunctionCall, settings: dict[str, Any], session: SessionSettings, *, progress: bool
) -> RunRecord:
    if unknown := [key for key in settings if key not in function_run.SETTINGS]:
        raise TypeError(
            f"unexpected keyword argument {unknown[0]!r} for a function: "
            f"{near(unknown[0], function_run.SETTINGS)}"
        )
    case = function_run.case_of(target, checked_settings(settings))
    with _progress(is_shown=progress) as on_event:
        return function_run.measure_function(target, case, session, logger.warning, on_event)


@contextmanager
def _progress(*, is_shown: bool) -> Iterator[OnEvent]:
    if not is_shown:
        yield ignore
        return
    with SessionProgress() as on_event:
        yield on_event


def _raise_or_log(outcome: SessionOutcome) -> None:
    """Raise the interruption of a session, or log what did not succeed beside its records."""
    if outcome.interruption is not None:
        raise outcome.interruption
    for error in (*outcome.errors, *filter(None, [outcome.undelivered])):
        logger.warning("%s", error)


class MeasuredFunction(Protocol[P, T_co]):
    """A function that was decorated; `record` is its run, None before its first call."""

    record: Record | None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Call the function."""


@overload
def measured(function: Callable[P, T_co], /) -> MeasuredFunction[P, T_co]: ...


@overload
def measured(**options: Any) -> Callable[[Callable[P, T_co]], MeasuredFunction[P, T_co]]: ...


def measured(function: Callable[P, T_co] | None = None, /, **options: Any) -> Any:
    """Measure a function at its first call, which is repeated for that.

    Later calls are not measured.

    Args:
        function: the function, where the decorator has no parentheses: `@edgemeter.measured`.
        options: keywords of `measure`: `@edgemeter.measured(mode="rapid", name="decode")`.

    Returns:
        The function. Its attribute `record` is the run, and None before the first call.
    """
    if function is None:
        return partial(measured, **options)
    if not callable(function):
        raise TypeError(
            f"measured takes a function, not {function!r}: measure a model with "
            "edgemeter.measure(MODEL)"
        )
    is_first = True

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T_co:
        nonlocal is_first
        if is_first:
            # Before the run, for a function that calls itself.
            is_first = False
            setattr(  # noqa: B010
                call,
                "record",
                measure(partial(function, **kwargs) if kwargs else function, args, **options),
            )
        return function(*args, **kwargs)

    setattr(call, "record", None)  # noqa: B010 - no attribute of a function, for mypy
    return call


class ModelComparison(Comparison):
    """The comparison of models, each with the first; as text a sentence and a table."""

    def __str__(self) -> str:
        text = io.StringIO()
        show_answer(self, Console(file=text, width=TABLE_WIDTH))
        return text.getvalue().rstrip()

    def __repr__(self) -> str:
        return f"<ModelComparison: {headline(self)}>"


def compare(
    *models: str | Path,
    data: str | Path | None = None,
    annotations: str | Path | None = None,
    mode: Mode = MODE,
    power: str | None = None,
    save: bool = True,
    matters_ratio: float = MATTERS_RATIO,
    progress: bool = False,
    **settings: Any,
) -> ModelComparison:
    """Measure models in turn until each is known precisely enough, and compare each with the first.

    The order is AB BA BA AB and so on.

    Args:
        models: two or more: paths, names in the catalogue, suites (.toml) of one case, or ids of
            stored runs.
        data: as for `measure`.
        annotations: as for `measure`.
        mode: as for `measure`.
        power: as for `measure`.
        save: as for `measure`.
        matters_ratio: smallest difference of latency and energy that matters.
        progress: as for `measure`.
        settings: as for `measure`; also `repeats`, the number of runs of each model, and `time_s`,
            the longest time for a case.

    Returns:
        The comparison. Each of its `rows` has a `case` with `figures` and `runs`, and `decisions`
        by the name of the figure. A decision has an `outcome` (better, worse, no difference,
        inconclusive), `value`, `low` and `high`. `left_out` lists missing runs with the reason.

    Raises:
        EdgemeterError: as for `measure`, or no two models can be compared.

    Example:
        import edgemeter

        comparison = edgemeter.compare("model.tflite", "model_int8.tflite", mode="rapid", repeats=3)
        print(comparison)
        print(comparison.rows[1].decisions["latency_p50_ms"].outcome)
    """
    of_cases = _case_settings(settings, data=data, annotations=annotations, mode=mode)
    for model in models:
        if callable(model):
            raise TypeError(
                "compare takes models: measure each function "
                "with edgemeter.measure(function, inputs)"
            )
        if not isinstance(model, str | os.PathLike):
            raise TypeError(
                f"{model!r} is not the path or name of a model: give the models one by one, as "
                "in edgemeter.compare(A, B)"
            )
    if len(models) < 2:
        raise TypeError(
            "compare takes two models or more, as in edgemeter.compare(A, B): measure one with "
            "edgemeter.measure(A)"
        )
    sides = [*map(str, models)]
    session = SessionSettings.of_environment(power=power, save=save)
    with _progress(is_shown=progress) as on_event:
        measured = measure_sides(sides, of_cases, session, matters_ratio, on_event, logger.info)
    _raise_or_log(measured.session)
    return ModelComparison(
        **{field.name: getattr(measured.comparison, field.name) for field in fields(Comparison)}
    )


def _case_settings(settings: dict[str, Any], **named: Any) -> Settings:
    if unknown := [key for key in settings if key not in CASE_KEYS]:
        raise TypeError(
            f"unexpected keyword argument {unknown[0]!r}: {near(unknown[0], CASE_KEYS)}"
        )
    return checked_settings(settings | named)
