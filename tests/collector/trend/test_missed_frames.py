"""Facts about the trend of missed frames, a share that is 0 on most days."""

import json

from tests.fixtures.command import edgemeter
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.fleet_ledger import NS_PER_DAY
from tests.fixtures.ledgers import fill
from tests.fixtures.record_factory import STARTED_AT_NS, make_steady


def test_a_rise_from_none_is_a_step_in_points(tmp_path):
    """Which no ratio would be; runs without frames have no such series."""
    missed = [0.0 if day < 25 else 0.03 + 0.002 * (day % 3) for day in range(40)]
    at = [{"started_at_ns": STARTED_AT_NS + day * NS_PER_DAY} for day in range(40)]
    steady = [make_run(**day, scenario="steady", steady=make_steady(missed_ratio=ratio)) for day, ratio in zip(at, missed, strict=True)]
    ledger = fill(tmp_path / "ledger.sqlite", [*steady, *(make_run(**day) for day in at)])
    (trend,) = json.loads(edgemeter("trend", "--ledger", ledger, "--figure", "missed", "--json").stdout)["series"]
    assert (trend["metric"], [step["matters"] for step in trend["steps"]]) == ("missed", [True])
