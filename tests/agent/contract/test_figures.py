"""Facts about `edgemeter.agent.contract.figures`.

An entry of the table is complete, and one figure has one value in every view.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgemeter.agent.contract.figures import FIGURES, figure
from edgemeter.agent.contract.record_conditions import Condition
from edgemeter.agent.contract.record_figures import Load
from tests.fixtures.comparison_factory import figures_of, make_reference, make_run
from tests.fixtures.fleet_ledger import NS_PER_DAY
from tests.fixtures.ledgers import fill
from tests.fixtures.made_up_figure import NAME, TITLE
from tests.fixtures.record_factory import (
    make_accuracy,
    make_energy,
    make_generation,
    make_latency,
    make_record,
    violating,
)
from tests.fixtures.rows import table_row


def test_names_and_titles_are_unique():
    """Two figures under one name would hide each other in a file or in an option."""
    for names in ([entry.name for entry in FIGURES], [entry.title.lower() for entry in FIGURES]):
        assert len(set(names)) == len(names)


def test_a_name_is_the_path_in_the_record_and_ends_in_its_unit():
    """The name of a figure that is computed from others follows the same style."""
    ends = {
        "ms": "_ms", "/s": "_per_s", "s": "_s", "t/s": "_per_s", "MB": "_mb", "mJ": "_mj",
        "W": "_w", "°C": "_c", "": "",
    }  # fmt: skip
    for entry in FIGURES:
        with table_row(entry.name):
            assert entry.name.endswith(ends[entry.unit])
            assert entry.reads or entry.name == entry.path.replace(".", "_")


def test_a_right_answer_costs_the_energy_of_all_questions_by_the_right_ones():
    """The figure needs each question to be asked equally often and answered.

    A question that is asked again, or left out, is not one of those that the score is of.
    """
    correct_mj = figure("energy_correct_answer_gross_mj").value

    def run(queries, failed=0, users=0, questions=40):
        load = Load(samples=queries + users, failures={"no token": failed} if failed else {})
        accuracy = make_accuracy(metric="exact_match", value=0.5, images=questions)
        generation = make_generation(prompts="q.jsonl")
        latency = make_latency(count=queries)
        return make_record(
            generation=generation,
            accuracy=accuracy,
            load=load,
            latency=latency,
            energy=make_energy(gross_mj=6.5),
        )

    assert correct_mj(run(40)) == correct_mj(run(80)) == pytest.approx(13.0)
    # Ten of 40 were asked twice: (20 * 20 J + 30 * 2 J) / 50 is no 6.5 J a question.
    assert correct_mj(run(50)) is None
    # The energy of five empty answers is in that of the five others, also where there are ten of
    # them in two passes.
    assert correct_mj(run(5, failed=5, questions=10)) is None
    assert correct_mj(run(10, failed=10, questions=10)) is None
    # The first query of each user is in the energy alone.
    assert correct_mj(run(40, users=8)) is None


@pytest.mark.services
def test_a_made_up_figure_is_in_every_view(tmp_path):
    """One entry of the table puts a figure into all views.

    These are tables, JSON, CSV, trend, page, InfluxDB, ledger, paper, options and reference pages.
    """
    days = [{"started_at_ns": (20_700 + day) * NS_PER_DAY} for day in range(4)]
    runs = [
        make(id=f"{make.__name__}-{number}", **day)
        for number, day in enumerate(days)
        for make in (make_run, make_reference)
    ]
    ledger = fill(tmp_path / "ledger.sqlite", runs)
    command = [sys.executable, "-m", "tests.fixtures.made_up_figure", str(ledger)]
    completed = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )
    # A heading may be of two lines.
    names = re.compile(rf"{NAME}|{TITLE}|madeup")
    absent = [
        view
        for view, text in json.loads(completed.stdout).items()
        if not names.search(re.sub(r"\s|\\\\", "", text).lower())
    ]
    assert absent == []


def test_under_voltage_alone_is_no_throttling():
    """A counter of throttling that rose counts, even if no condition saw it."""
    weak = (Condition(when="during", throttled_now=False, under_voltage_now=True),)
    calm = (Condition(when="during", throttled_now=False),)
    counted = violating("disturbed", "throttled")
    for changes, ratio in (
        ({"conditions": weak}, 0.0),
        ({"conditions": calm, "verdict": counted}, 1.0),
        ({"conditions": ()}, None),
    ):
        with table_row(ratio):
            assert figures_of(make_run(**changes)).value("is_throttled") == ratio
