"""Test the demo before and after it measures.

The tests cover a report that cannot be written, and the text on the control.
"""

import pytest
from click.testing import CliRunner

from edgemeter.agent.cli.main import cli
from edgemeter.collector.cli.demo import control_lines
from edgemeter.collector.demo import demo as demo_module
from tests.fixtures.comparison_factory import compare_runs, make_reference, make_run


@pytest.mark.parametrize(
    ("again_ms", "text"),
    [
        ((10.3, 9.8, 10.1), "Row 3 repeats row 1 as a control: latency +0% (-8 to +9%)."),
        (
            (4.9, 5.1, 5.0),
            "Row 2 repeats row 1 as a control: latency 2.0 times as fast (1.9 to 2.1).",
        ),
        ((10.0,), "Row 3 repeats row 1 as a control: latency -0.3%."),
    ],
)
def test_the_control_of_the_demo_is_said_to_be_one(again_ms, text):
    """The control is the reference's case on the same device, with how far the two lie apart.

    Other cases are none.
    """
    runs = [make_reference(device="this-machine", p50_ms=value) for value in (10.1, 9.9, 10.1)]
    runs += [make_run("this-machine", p50_ms=value) for value in again_ms]
    runs += [
        make_run("this-machine", p50_ms=5.0, precision="int8"),
        make_run("this-machine", p50_ms=20.0, threads=1),
    ]
    (line,) = control_lines(compare_runs(*runs))
    assert line.startswith(text)


@pytest.mark.services
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path, monkeypatch
):
    """If its folder is absent, no run is made, and no folder for the ledger."""
    monkeypatch.setattr(demo_module, "run_demo", lambda *_, **__: pytest.fail("measured"))
    outcome = CliRunner().invoke(
        cli,
        [
            "collector",
            "demo",
            "--home",
            str(tmp_path / "home"),
            "--output",
            str(tmp_path / "absent" / "x.html"),
        ],
    )
    assert outcome.exit_code == 1
    assert "there is no folder" in str(outcome.exception) + outcome.output
    assert list(tmp_path.iterdir()) == []
