import csv
import io
import json

import pytest

from edgemeter.agent.base.documents import JOINT
from edgemeter.agent.contract.figures import FIGURES
from edgemeter.collector.compare.columns import COLUMNS, to_csv, to_json
from edgemeter.collector.runs.figure_names import JUDGED
from tests.fixtures.compared_cases import comparisons
from tests.fixtures.comparison_factory import (
    OTHER_DATA,
    compare_runs,
    make_reference,
    make_run,
    no_energy,
)
from tests.fixtures.record_factory import make_energy, make_generation, make_generation_energy


def both(comparison):
    return json.loads(to_json(comparison)), list(csv.DictReader(io.StringIO(to_csv(comparison))))


def as_cell(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return JOINT.join(value) if isinstance(value, list) else str(value)


def test_a_csv_row_equals_the_json_row():
    """CSV has the same columns in the same order with the same values as JSON.

    This holds whatever is absent; left-out runs are listed with the reason.
    """
    runs = [
        make_run(),
        make_run(**no_energy()),
        make_run(precision="int8", ap=None, p50_ms=None, **no_energy()),
        make_reference(),
    ]
    document, table = both(compare_runs(*runs))
    assert len(document["rows"]) == len(table) == 3
    for row, cells in zip(document["rows"], table, strict=True):
        assert list(row) == list(cells) == list(COLUMNS)
        assert {name: as_cell(value) for name, value in row.items()} == cells
    document, _ = both(
        compare_runs(make_run(id="x", data=OTHER_DATA), make_run(), make_reference())
    )
    (entry,) = document["left_out"]
    assert entry["run"] == "x"
    assert entry["reason"].startswith("no reference with the same data")
    assert set(document) == {"rows", "left_out"}


def test_one_row_carries_everything():
    """A row has identity, figures, environment, verdict, ratios, reference and runs.

    An absent value is null, and never 0.
    """
    device, reference = make_run(id="d", energy=make_energy(gross_mj=125.0)), make_reference(id="r")
    rows = both(compare_runs(device, reference))[0]["rows"]
    row = rows[1]
    printed = {
        "device": "pi-1",
        "model": "tiny-detector",
        "latency_p50_ms": 10.0,
        "latency_p90_ms": 12.0,
        "throughput_per_s": 100.0,
        "accuracy_metric": "coco_ap",
        "accuracy_value": 0.6,
        "memory_peak_mb": 92.5,
        "energy_gross_mj": 125.0,
        "energy_gross_mj_ratio": pytest.approx(2.0),
        "energy_scope": "board-input",
        "energy_reason": None,
        "governor": "performance",
        "runs": 1,
        "verdict": "ok",
        "latency_p50_ms_ratio": pytest.approx(5.0),
        "is_reference": False,
        "reference_device": "server-1",
        "reference_choice": "same precision and runtime",
        "run_ids": ["d"],
        "reference_run_ids": ["r"],
    }
    assert {name: row[name] for name in printed} == printed
    assert (rows[0]["is_reference"], rows[0]["latency_p50_ms_ratio"]) == (True, None)
    assert (
        row["latency_p50_ms_outcome"],
        row["latency_p50_ms_ratio_low"],
        row["latency_p50_ms_further"],
    ) == ("inconclusive", None, 2)
    row = both(compare_runs(make_run(**no_energy("no sensor")), make_reference()))[0]["rows"][1]
    assert (row["energy_gross_mj"], row["energy_net_mj"], row["energy_reason"]) == (
        None,
        None,
        "no sensor",
    )


def test_a_language_model_has_its_rates_and_lengths():
    """They are means over the runs of the case; other models have none."""
    device = make_run(generation=make_generation(decode_tokens_per_s=90.0))
    reference = make_reference(generation=make_generation())
    rows = both(compare_runs(device, reference))[0]["rows"]
    row = next(row for row in rows if row["device"] == "pi-1")
    names = (
        "prompt_tokens",
        "output_tokens",
        "generation_ttft_p50_ms",
        "generation_tpot_p50_ms",
        "generation_decode_tokens_per_s",
        "generation_prefill_tokens_per_s",
    )
    assert tuple(row[name] for name in names) == (512, 11, 100.0, 10.0, 90.0, 5120.0)
    spent = make_generation_energy()
    of_runs = [make_run(generation=make_generation(energy=spent)) for _ in range(2)]
    row = next(
        row for row in both(compare_runs(*of_runs, reference))[0]["rows"] if row["device"] == "pi-1"
    )
    assert (
        row["generation_energy_output_token_gross_mj"],
        row["generation_energy_output_token_gross_u_mj"],
    ) == (2000.0, 20.0)
    assert (
        row["generation_energy_prefill_token_gross_mj"],
        row["generation_energy_prefill_token_gross_u_mj"],
    ) == (20.0, 1.0)
    runs = [
        make_run(
            generation=make_generation(energy=spent),
            provenance={"latency": "measured", "energy": "published"},
        )
    ]
    row = next(
        row for row in both(compare_runs(*runs, reference))[0]["rows"] if row["device"] == "pi-1"
    )
    assert row["generation_energy_output_token_gross_mj"] is None
    plain = both(compare_runs(make_run(), make_reference()))[0]["rows"][0]
    assert (
        plain["generation_ttft_p50_ms"]
        is plain["generation_decode_tokens_per_s"]
        is plain["prompt_tokens"]
        is None
    )


def test_no_change_has_the_name_of_a_figure():
    """A ratio to the reference does not take the place of a figure that is a ratio."""
    names = [entry.name for entry in FIGURES]
    assert not {entry.change_name for entry in JUDGED.values()} & {*names}


def comparison_called(name):
    return next(comparison for called, comparison in comparisons() if called == name)


def test_a_choice_is_in_json_and_csv():
    """Both have the requirements, the recommended case and the similar ones.

    Each candidate has every requirement with its interval.
    """
    document, table = both(comparison_called("a choice of three"))
    choice = document["choice"]
    assert {
        name: choice[name]
        for name in ("required", "cheapest", "recommended", "similar", "other_cases")
    } == {
        "required": "p50<=11ms", "cheapest": "energy_gross_mj", "recommended": "B", "similar": [],
        "other_cases": 0,
    }  # fmt: skip
    assert [(candidate["case"], candidate["outcome"]) for candidate in choice["candidates"]] == [
        ("B", "met"),
        ("A", "not met"),
        ("C", "not met"),
    ]
    (requirement,) = choice["candidates"][0]["requirements"]
    assert requirement["low"] < requirement["value"] < requirement["high"] < 11
    assert [(row["case"], row["requirements"], row["is_recommended"]) for row in table] == [
        ("A", "not met", "false"), ("B", "met", "true"), ("C", "not met", "false"),
    ]  # fmt: skip


def test_a_gate_is_in_json():
    """Each finding has the change that decides it, or says why there is none.

    The numbers are such that a program can read them.
    """
    gate = both(comparison_called("a change that fails"))[0]["gate"]
    (failed,) = [finding for finding in gate["findings"] if finding["outcome"] == "fail"]
    assert (gate["outcome"], failed["limit"], failed["figure"]) == (
        "fail",
        "slower:5%",
        "latency_p50_ms",
    )
    assert 1.05 < failed["change"]["low"] < failed["change"]["high"]
    ruined = both(comparison_called("a case that the change ruined"))[0]["gate"]["findings"][-1]
    assert (ruined["outcome"], ruined["change"]) == ("fail", None)
    assert "no usable run" in ruined["reason"]
