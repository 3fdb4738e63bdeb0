"""Facts about what `make bench` keeps of a commit."""

import json
import random

import pytest
from click.testing import CliRunner

from edgemeter.agent.cli.main import cli
from tests.benchmarks import history
from tests.benchmarks.comparison import at_most, figure, interleaved


@pytest.mark.slow
def test_a_commit_that_made_a_part_slower_is_found_by_compare(tmp_path):
    """Ours takes 10 % longer in the second: compare breaks the limit by it, and calls the peer alike."""
    draw = random.Random(1)  # noqa: S311 - a simulation
    for name, factor in (("old", 1.0), ("new", 1.1)):
        paired = interleaved(lambda factor=factor: factor * draw.gauss(1, 0.01), lambda: draw.gauss(1, 0.01), 12)
        done = [at_most("engine p50, 1 thread", "ms", "bare loop around invoke()", paired, 1.2), figure("not timed in pairs", "s", 3.0)]
        history.write(tmp_path / f"{name}.json", done)
    found = CliRunner().invoke(
        cli,
        ["compare", str(tmp_path / "old.json"), str(tmp_path / "new.json"), "--fail-on", "slower:5%", "--json"],
        catch_exceptions=False,
    )
    assert found.exit_code == 1
    kept = {limit["case"].split(" fp32")[0]: limit["outcome"] for limit in json.loads(found.stdout)["limits"]}
    assert kept == {"engine p50 1 thread": "broken", "engine p50 1 thread: peer bare loop around invoke": "kept"}


def test_a_rate_is_the_time_of_one_unit():
    """2,000 records/s are 0.5 ms each; a share of a core is no time."""
    assert history.unit_of_work_ms("records/s", 2000) == 0.5
    assert [history.unit_of_work_ms(unit, 2.0) for unit in ("ms", "us", "s")] == [2.0, 0.002, 2000.0]
    assert history.unit_of_work_ms("of a core", 0.1) is None
