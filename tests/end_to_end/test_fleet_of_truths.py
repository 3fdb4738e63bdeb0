"""Facts about a fleet of 60 boards whose truths are known.

Each truth is told once, with its cause, and nothing else is.
"""

import json
import time

import pytest

from tests.fixtures import fleet_truths
from tests.fixtures.command import edgemeter
from tests.fixtures.fleet_truths import DAYS, TWICE_DAYS, write_fleet_of_truths

RULES = """
[[rule]]
name = "step"
kind = "step"
severity = "critical"
metrics = ["energy_gross_mj", "latency_p50_ms", "accuracy_value", "is_throttled"]
[[rule]]
name = "drift"
kind = "drift"
[[rule]]
name = "invalid"
kind = "invalid"
[[rule]]
name = "missing"
kind = "missing"
[[rule]]
name = "outlying board"
kind = "outlying-board"
metrics = ["energy_gross_mj", "latency_p50_ms", "accuracy_value"]
[[rule]]
name = "device lost"
kind = "device-lost"
[[rule]]
name = "outbox stopped"
kind = "outbox-stopped"
hours = 60.0
"""


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    path = tmp_path_factory.mktemp("fleet") / "ledger.sqlite"
    write_fleet_of_truths(path)
    return path


def day_text(day):
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() - (DAYS - day) * 86_400))


@pytest.mark.services
def test_each_truth_is_one_alert_and_nothing_else_is(ledger, tmp_path):
    """Six truths on 60 boards give six alerts, each with board, day and cause.

    There are 732 series; the 34 healthy boards of other types give no alert.
    """
    (tmp_path / "rules.toml").write_text(RULES)
    result = edgemeter(
        "trend", "alerts", "check", "--ledger", ledger, "--rules", tmp_path / "rules.toml"
    )
    assert result.returncode == 0, result.stderr
    result = edgemeter("trend", "alerts", "list", "--ledger", ledger, "--format", "json")
    alerts = json.loads(result.stdout)["alerts"]
    expected = {
        "24 devices of Raspberry Pi 5": (
            "firmware 2026-05-01 to 2026-10-01",
            day_text(fleet_truths.FIRMWARE_DAY),
        ),
        fleet_truths.TWICE: ("p50 +12", day_text(TWICE_DAYS[1])),
        fleet_truths.BLIND: ("accuracy -4.0", day_text(fleet_truths.BLIND_DAY)),
        fleet_truths.THROTTLED: (
            "always throttles, never before",
            day_text(fleet_truths.THROTTLED_DAY),
        ),
        fleet_truths.DEAD: ("device lost", day_text(fleet_truths.DEAD_DAY - 1)),
        fleet_truths.SICK: ("+1", "energy"),
    }
    assert len(alerts) == len(expected), [alert["title"] for alert in alerts]
    for who, texts in expected.items():
        (alert,) = [alert for alert in alerts if who in alert["title"]]
        for text in texts:
            assert text in alert["title"] + alert["text"], alert


@pytest.mark.services
def test_the_recommended_case_is_the_cheapest_that_meets_all(ledger):
    """The recommended case is the cheapest one that meets all limits.

    No limit is said to be met that is not. Boards of a type are one case, at their current level.
    """
    limits = {"p50": 20.0, "ap": 0.72, "mj": 150.0}
    text = f"p50<={limits['p50']}ms, ap>={limits['ap']}, energy<={limits['mj']}mJ"
    result = edgemeter("compare", "--ledger", ledger, "--require", text, "--format", "json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    outcomes = {
        candidate["case"]: candidate["outcome"] for candidate in document["choice"]["candidates"]
    }
    cases = {
        row["case"]: (row["board"], row["precision"], row["runtime"])
        for row in document["rows"]
        if row["case"] in outcomes
    }
    outcome_of = {case: outcomes[name] for name, case in cases.items()}
    for board, _, _, p50_ms, watts in fleet_truths.TYPES:
        for precision, runtime, factor in fleet_truths.CASES:
            # Only the newest level counts: after the firmware.
            ms = (
                p50_ms
                * factor
                * (fleet_truths.FIRMWARE_RATIO if board == fleet_truths.PI5 else 1.0)
            )
            is_good = (
                ms <= limits["p50"]
                and limits["ap"] <= fleet_truths.AP
                and ms * watts <= limits["mj"]
            )
            expected = "met" if is_good else "not met"
            assert outcome_of[board, precision, runtime] in ("inconclusive", expected), (
                board,
                precision,
                runtime,
            )
    assert outcome_of[fleet_truths.PI5, "int8", "litert"] == "met"
    assert cases[document["choice"]["recommended"]] == (fleet_truths.ORIN, "int8", "litert")
