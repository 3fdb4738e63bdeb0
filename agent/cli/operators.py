"""The work of `edgemeter models profile --operators`: cut operators out, measure them as models, print them under the roofline."""

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.progress import note
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.toml import toml_document
from edgemeter.agent.contract import suite as suites
from edgemeter.agent.profile.operator_cutting import FORMATS, write_shapes
from edgemeter.agent.profile.operator_models import LISTS, PEAKS, OperatorModel

if TYPE_CHECKING:
    from edgemeter.agent.profile.profiler import RecordedProfile

SUITE = "operators.toml"
# What the runs of `edgemeter run` need besides: they are kept in this device's ledger, and delivered by a run of the suite.
_NOT_DELIVERED = {
    "config": None, "device": None, "fleet": None, "broker": None, "if_no_broker": "fail", "delivery_timeout": 0.0, "bundle": None,
    "signing_key_file": None,
}  # fmt: skip


def measure_operators(
    model: Path | None,
    which: str,
    settings: Mapping[str, object],
    queries: int,
    top: int,
    out: Path | None,
    session_options: Mapping[str, object],
    form: Format | None,
) -> None:
    """Measure the slowest operators of a model, or with None those of the list `which`, and print them.

    Raises:
        EdgemeterError: the model cannot be cut, a folder not be written, or nothing could be measured.
    """
    from edgemeter.agent.cli import run_session
    from edgemeter.agent.machine.roof import copy_gbyte_per_s
    from edgemeter.agent.profile import operator_report

    with ExitStack() as stack:
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgemeter-operators-")))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            operators, left_out = _written(model, which, settings, queries, top, folder)
            suite_file = folder / SUITE
            suite_file.write_text(_suite_text(model, operators, settings), encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"cannot write operators to {str(folder)!r}: {error.strerror}; choose another folder with --output"
            ) from error
        if out:
            note(f"the operators and their suite: {suite_file.resolve()}; deliver with `edgemeter run {suite_file} --broker HOST`")
        threads = settings.get("threads")
        count = threads if isinstance(threads, int) else 1
        before = copy_gbyte_per_s(count)
        outcome = run_session.run_session(suites.read(suite_file), {**_NOT_DELIVERED, **session_options}, note)
    if outcome.records:
        copies = (before, copy_gbyte_per_s(count))
        profile = operator_report.measured_operators(operators, outcome.records, copies, left_out)
        if not print_data(form, profile, rows="operators"):
            operator_report.show_operators(profile, console_for(form))
    for failed in outcome.errors:
        click.echo(f"edgemeter: {failed}", err=True)
    if outcome.interruption is not None:
        raise outcome.interruption
    if outcome.errors:
        raise SystemExit(1)


def _written(
    model: Path | None, which: str, settings: Mapping[str, object], queries: int, top: int, folder: Path
) -> tuple[list[OperatorModel], list[str]]:
    """Write the operators to the folder; return them, and what could not be cut out."""
    if model is None:
        # Runtimes without a format of their own here read ONNX.
        suffix = next((suffix for suffix, form in FORMATS.items() if form.profiled_by["runtime"] == settings.get("runtime")), ".onnx")
        return write_shapes(LISTS[which], suffix, folder), []
    from edgemeter.agent.cli.run_session import suite_of
    from edgemeter.agent.profile.operator_cutting import cut_in_sandbox
    from edgemeter.agent.profile.profiler import ProfileJob, profile_in_child

    def profile(named: Path) -> "RecordedProfile":
        # What is slow is found by the profiler of the format's own runtime, also where another runtime is to be timed.
        (case,) = suite_of(None, named, {"threads": settings.get("threads"), **FORMATS[named.suffix].profiled_by}).cases
        return profile_in_child(ProfileJob(case=case, queries=queries))

    operators, left_out = cut_in_sandbox(model, profile, top, folder)
    if not operators:
        raise ConfigError(f"no operator of {str(model)!r} can be cut out: {'; '.join(left_out)}")
    peaks = [shape for shape in PEAKS if shape.precision in {operator.precision for operator in operators}]
    return [*operators, *write_shapes(peaks, model.suffix.lower(), folder)], left_out


def _suite_text(model: Path | None, operators: list[OperatorModel], settings: Mapping[str, Any]) -> str:
    """Return a suite of the whole model and its operators, each run once, shortly; what gives the peak once more, after all others."""
    chosen_settings = {key: settings[key] for key in ("runtime", "backend", "threads") if settings.get(key) is not None}
    peaks = {shape.name for shape in PEAKS}
    cases: list[dict[str, Any]] = [
        {"model": operator.file.name, "name": operator.name, "repeats": 2 if operator.name in peaks else 1} for operator in operators
    ]
    if model is not None:
        cases.append({"model": str(model.absolute()), "repeats": 1})
    document = {"name": "operators", "case": [{**case, **chosen_settings, "mode": "rapid"} for case in cases]}
    return toml_document(document)
