"""The plug-in of pytest: the fixture `edgemeter_measure`, and what became of each measured function at the end.

A suite that does not use it pays for this file only: everything else is imported when a test measures.
"""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from edgemeter.agent.contract.record import RunRecord

# The fixture's lines travel to the summary with the report of the test, from a worker of pytest-xdist too.
PROPERTY = "edgemeter"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("edgemeter")
    group.addoption(
        "--edgemeter-fail-on",
        metavar="LIMITS",
        help="Fail tests that measure with `edgemeter_measure` and are beyond a limit, as `edgemeter compare --fail-on`: slower:5%%.",
    )
    group.addoption(
        "--edgemeter-baseline",
        metavar="RUNS",
        help="Runs to compare with: a document, a bundle, or 'ledger.sqlite?until=2026-01-01'. Default: the last that passed here.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse limits that are none before any test runs."""
    if config.getoption("edgemeter_fail_on"):
        from edgemeter._regression import parsed_limits  # noqa: PLC0415
        from edgemeter.agent.base.errors import EdgemeterError  # noqa: PLC0415

        try:
            parsed_limits(config.getoption("edgemeter_fail_on"))
        except EdgemeterError as error:
            raise pytest.UsageError(f"--edgemeter-fail-on: {error}") from error


@pytest.fixture
def edgemeter_measure(request: pytest.FixtureRequest) -> Callable[..., "list[RunRecord]"]:
    """Measure a function: `edgemeter_measure(function, inputs, runs=3, **keywords of edgemeter.measure)` returns its runs, and keeps them.

    The case is named after the test. With `--edgemeter-fail-on slower:5%` the test fails where the runs are beyond it.
    """
    from edgemeter._regression import measure_test  # noqa: PLC0415
    from edgemeter.agent.base.errors import EdgemeterError  # noqa: PLC0415
    from edgemeter.agent.engine.call_trial import FunctionCall  # noqa: PLC0415

    names: list[str] = []

    def report(text: str) -> None:
        """Show it at once: a test that waits for other runs says so when the wait begins."""
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            sys.stderr.write(f"\nedgemeter: {text}\n")

    def measure(function: Callable[..., object], inputs: object = (), *, runs: int = 3, **settings: Any) -> "list[RunRecord]":
        __tracebackhide__ = True
        names.append(request.node.nodeid if not names else f"{request.node.nodeid} {len(names) + 1}")
        limits, baseline = (request.config.getoption(f"edgemeter_{name}") for name in ("fail_on", "baseline"))
        try:
            measured = measure_test(FunctionCall(function, inputs), runs, {"name": names[-1], **settings}, limits, baseline, report)
        except (EdgemeterError, TypeError) as error:
            # What the function raised is shown with it; our own frames are not.
            raise error.with_traceback(None) from error.__cause__
        request.node.user_properties.append((PROPERTY, measured.line))
        if measured.failure:
            pytest.fail(measured.failure, pytrace=False)
        return measured.runs

    return measure


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line for each measured function."""
    reports = [report for state in ("passed", "failed") for report in terminalreporter.stats.get(state, [])]
    lines = [
        text
        for report in reports
        for name, text in getattr(report, "user_properties", [])
        if name == PROPERTY and getattr(report, "when", "") == "call"
    ]
    if lines:
        terminalreporter.section("edgemeter")
        for line in lines:
            terminalreporter.write_line(line)
        workers = terminalreporter.config.getoption("numprocesses", None) or 0
        if workers > 1:
            terminalreporter.write_line(f"{workers} workers measured in turn, but ran their other tests meanwhile: `-n 0` disturbs no run")
