import csv
import io
import json

from edgemeter.agent.base.documents import JOINT
from edgemeter.agent.contract.figures import in_view
from edgemeter.agent.contract.record_figures import Load
from edgemeter.collector.compare.columns import COLUMNS, to_csv, to_json
from edgemeter.collector.compare.judged_figures import JUDGED
from tests.fixtures.comparison_factory import OTHER_DATA, compare_runs, make_reference, make_run, no_energy
from tests.fixtures.record_factory import make_energy, make_generation, make_generation_energy


def both(comparison):
    """Return the rows as JSON has them and as CSV has them."""
    return json.loads(to_json(comparison)), list(csv.DictReader(io.StringIO(to_csv(comparison.rows))))


def as_cell(value):
    """Return how CSV writes a value of JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return JOINT.join(value) if isinstance(value, list) else str(value)


def test_a_csv_row_equals_the_json_row():
    """The same columns in the same order with the same values, whatever is absent; what is left out is listed by run and reason."""
    runs = [make_run(), make_run(**no_energy()), make_run(precision="int8", ap=None, p50_ms=None, **no_energy()), make_reference()]
    document, table = both(compare_runs(*runs))
    assert len(document["rows"]) == len(table) == 3
    for row, cells in zip(document["rows"], table, strict=True):
        assert list(row) == list(cells) == list(COLUMNS)
        assert {name: as_cell(value) for name, value in row.items()} == cells
    document, _ = both(compare_runs(make_run(id="x", data=OTHER_DATA), make_run(), make_reference()))
    (entry,) = document["left_out"]
    assert entry["run"] == "x"
    assert entry["reason"].startswith("no reference on the same data")
    assert set(document) == {"rows", "left_out"}


def test_one_row_carries_everything():
    """Identity, figures, environment, verdict, ratios, reference and runs; absent is null, and never 0."""
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
        "energy_gross_ratio": 2.0,
        "energy_scope": "board-input",
        "energy_reason": None,
        "governor": "performance",
        "runs": 1,
        "verdict": "valid",
        "latency_p50_ratio": 5.0,
        "is_reference": False,
        "reference_device": "server-1",
        "reference_choice": "same precision and runtime",
        "run_ids": ["d"],
        "reference_run_ids": ["r"],
    }
    assert {name: row[name] for name in printed} == printed
    assert (rows[0]["is_reference"], rows[0]["latency_p50_ratio"]) == (True, 1.0)
    row = both(compare_runs(make_run(**no_energy("no sensor")), make_reference()))[0]["rows"][1]
    assert (row["energy_gross_mj"], row["energy_net_mj"], row["energy_reason"]) == (None, None, "no sensor")


def test_a_language_model_has_its_rates_and_lengths():
    """Medians over the runs of the case; other models have none."""
    device = make_run(generation=make_generation(decode_tokens_per_s=90.0))
    reference = make_reference(generation=make_generation())
    rows = both(compare_runs(device, reference))[0]["rows"]
    row = next(row for row in rows if row["device"] == "pi-1")
    names = ("prompt_tokens", "output_tokens", "ttft_p50_ms", "tpot_p50_ms", "decode_tokens_per_s", "prefill_tokens_per_s")
    assert tuple(row[name] for name in names) == (512, 11, 100.0, 10.0, 90.0, 5120.0)
    spent = make_generation_energy()
    of_runs = [make_run(generation=make_generation(energy=spent)) for _ in range(2)]
    row = next(row for row in both(compare_runs(*of_runs, reference))[0]["rows"] if row["device"] == "pi-1")
    assert (row["energy_output_token_gross_mj"], row["energy_output_token_gross_u_mj"]) == (2000.0, 20.0)
    assert (row["energy_prefill_token_gross_mj"], row["energy_decode_token_gross_mj"]) == (20.0, 1000.0)
    assert row["energy_decode_token_gross_u_mj"] is None
    runs = [make_run(generation=make_generation(energy=spent), provenance={"latency": "measured", "energy": "estimated"})]
    row = next(row for row in both(compare_runs(*runs, reference))[0]["rows"] if row["device"] == "pi-1")
    assert row["energy_output_token_gross_mj"] is None
    plain = both(compare_runs(make_run(), make_reference()))[0]["rows"][0]
    assert plain["ttft_p50_ms"] is plain["decode_tokens_per_s"] is plain["prompt_tokens"] is None


def test_a_figure_that_is_a_ratio_and_its_ratio_to_the_reference_are_two_columns():
    """A duty cycle of 0.2 is half of the reference's 0.4, and the ratio does not take its place."""
    loads = [Load(samples_per_query=1, samples=80, target_per_s=20.0, utilisation_ratio=ratio) for ratio in (0.2, 0.4)]
    row = both(compare_runs(make_run(load=loads[0]), make_reference(load=loads[1])))[0]["rows"][1]
    assert (row["duty_cycle_ratio"], row["duty_cycle_ratio_ratio"]) == (0.2, 0.5)
    names = [entry.column for entry in in_view("compare")]
    assert not {entry.change_column for entry in JUDGED.values()} & {*names}
