"""Facts about the informative energy tier: numbers worked out on paper, and what is null or refused with a reason."""

import json
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.documents import json_document
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.contract.record_figures import Load
from edgemeter.agent.contract.record_generation import TokenEnergy
from edgemeter.agent.energy.generation_energy import generation_energy
from edgemeter.agent.energy.per_inference import assess
from edgemeter.collector.export.energy_tier import STATEMENT, energy_tier
from tests.fixtures.generation_worlds import OUTPUT_TOKENS, PROMPT_TOKENS, GenerationWorld, draw_generation
from tests.fixtures.record_factory import make_energy, make_generation, make_generation_energy, make_model, make_record, make_runtime

SHAPE = json.loads((Path(__file__).parents[2] / "fixtures" / "energy_tier_shape.json").read_text())
# The proposal's own text, where somebody has it.
SCHEMA = "EDGEMETER_ENERGY_SCHEMA"


def on_paper(**changes):
    """Return the energy of 10 inferences of 1000 mJ and 0.2 s each: 5 W, of which 2 W are idle power; 400 mJ static, 600 mJ active."""
    fields = {
        "sensor": "um25c:UM25C:00:11", "gross_mj": 1000.0, "gross_u_mj": 20.0, "net_mj": 600.0, "net_u_mj": 30.0, "mean_power_w": 5.0,
        "idle_before_w": 1.5, "idle_after_w": 2.5, "inferences": 10, "window_ms": 2000.0, "period_ms": 500.0,
    }  # fmt: skip
    return make_energy(**(fields | changes))


def result_of(**changes):
    """Return the only result of a run, as JSON has it."""
    tier = energy_tier([make_record(**({"energy": on_paper()} | changes))])
    assert tier.refused == ()
    (result,) = json.loads(json_document(tier.document))["results"]
    return result


def generating(**changes):
    """Return 10 requests of 22 J: 512 prompt tokens of 20 mJ and 10 decoded ones of 1000 mJ, which leaves 1.76 J between the parts."""
    energy = on_paper(gross_mj=22_000.0, gross_u_mj=440.0, net_mj=11_000.0, mean_power_w=11.0, window_ms=20_000.0)
    generation = make_generation(**({"energy": make_generation_energy(sensor=energy.sensor)} | changes))
    return {"energy": energy, "generation": generation, "scenario": "single_stream", "samples": ()}


def check(report):
    """Raise if a report has not the proposal's shape."""
    jsonschema = pytest.importorskip("jsonschema")
    for schema in (SHAPE, *([json.loads(Path(os.environ[SCHEMA]).read_text())] if SCHEMA in os.environ else [])):
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(report, schema, jsonschema.Draft202012Validator)


def test_static_and_active_energy_are_those_worked_out_on_paper():
    """1000 mJ in 0.2 s at 2 W of idle power: 2 W x 0.2 s = 0.4 J static, 0.6 J active; ten of them are 10 J."""
    result = result_of()
    assert result["per_inference"] == {
        "total_joules": 1.0, "total_u95_joules": 0.02, "static_joules": 0.4, "active_joules": 0.6, "active_u95_joules": 0.03,
    }  # fmt: skip
    assert (result["report"]["total_energy_joules"], result["window_seconds"], result["inferences"]) == (10.0, 2.0, 10)
    assert result["report"]["static_power_baseline_watts"] == 2.0
    assert result["report"]["inference_active_power_watts"] == {"mean": 5.0}
    assert result["report"]["sampling_rate_hz"] == 2.0
    assert result["report"]["energy_per_query_joules"] == {"mean": 1.0}
    assert result["report"]["static_power_baseline_watts"] * 0.2 == pytest.approx(result["per_inference"]["static_joules"])


def test_prefill_and_generation_of_a_language_model_stand_apart():
    """512 x 20 mJ x 10 = 102.4 J; 10 x 1000 mJ x 10 = 100 J over 110 output tokens: 0.909 J each; decoded by themselves 1 J."""
    result = result_of(**generating())
    report = result["report"]
    assert report["prefill_energy_joules"] == pytest.approx(102.4)
    assert report["generation_energy_joules"] == pytest.approx(100.0)
    assert (report["output_token_count"], report["input_sequence_length"], report["output_sequence_length"]) == (110, 512, 11)
    assert report["energy_per_token_joules"]["mean"] == pytest.approx(100 / 110)
    assert report["total_energy_joules"] == 220.0
    assert result["per_token"]["generation"]["total_joules"] == 1.0
    assert result["per_token"]["generation"]["static_joules"] == 0.5
    assert result["per_token"]["prefill"] == {
        "total_joules": 0.02, "total_u95_joules": 0.001, "static_joules": 0.01, "active_joules": 0.01, "active_u95_joules": 0.0015,
    }  # fmt: skip
    assert result["per_token"]["output"] == {"total_joules": 2.0, "total_u95_joules": 0.02}


@pytest.mark.needs(module="jsonschema")
def test_a_report_without_gaps_has_the_shape_of_the_proposal():
    """Of pictures, of a language model, and of what is neither."""
    for changes in ({}, generating(), {"model": make_model(task="keyword-spotting")}):
        result = result_of(**changes)
        assert result["gaps"] == {}
        check(result["report"])


@pytest.mark.needs(module="jsonschema")
def test_a_report_with_a_gap_does_not_pass_as_one_of_the_proposal():
    """Null is no number, so that a checker sees the gap too."""
    jsonschema = pytest.importorskip("jsonschema")
    result = result_of(energy=on_paper(sensor="pi5_pmic"))
    assert result["gaps"] == {"measurement_method": "the proposal has no name for pi5_pmic"}
    with pytest.raises(jsonschema.ValidationError, match="None is not"):
        check(result["report"])


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"energy": on_paper(net_mj=None, net_u_mj=None, net_state="not_resolvable")}, "static_power_baseline_watts", "does not stand out"),
        (
            {"energy": on_paper(net_mj=None, net_state="no_idle", idle_before_w=None, idle_after_w=None)},
            "static_power_baseline_watts",
            "idle",
        ),
        ({"energy": on_paper(period_ms=2000.0)}, "sampling_rate_hz", "below the 1 Hz"),
        ({"scenario": "multi_stream"}, "scenario", "no name for multi_stream"),
        ({"runtime": make_runtime(name="served")}, "accelerator_count", "the server"),
        (generating(energy=None, energy_reason="the readings are gone"), "prefill_energy_joules", "the readings are gone"),
        (generating(counts="estimated"), "output_token_count", "an estimate"),
        (generating(counts="estimated"), "energy_per_token_joules", "an estimate"),
        (generating(stamped_tokens_max=3), "generation_energy_joules", "when tokens came"),
        (generating(ended_early=2), "output_sequence_length", "not the same"),
        (
            generating(energy=make_generation_energy(sensor="um25c:UM25C:00:11", decode_token=None, decode_reason="it is too short")),
            "energy_per_token_joules",
            "too short",
        ),
    ],
)
def test_what_a_run_cannot_state_has_its_reason(changes, field, reason):
    """No number is made: null, or for a rate that is too low the rate itself."""
    result = result_of(**changes)
    assert reason in result["gaps"][field]
    assert result["report"][field] is None or field == "sampling_rate_hz"


def test_an_unresolved_net_energy_gives_neither_static_nor_active_energy():
    """What does not stand out is no number, in no field."""
    result = result_of(energy=on_paper(net_mj=600.0, net_state="not_resolvable"))
    assert result["per_inference"]["static_joules"] is None
    assert result["per_inference"]["active_joules"] is None
    assert result["per_inference"]["active_u95_joules"] is None
    assert result["report"]["total_energy_joules"] == 10.0


def test_tokens_that_came_together_are_counted_by_their_moments():
    """Two queries of 4 tokens, the first two of which came at once: 2 of each were decoded."""
    moments = np.array([5, 5, 6, 7, 5, 5, 6, 7], np.int64) * 1_000_000
    series = (samples.pack("token", "ns", moments), samples.pack("output_tokens", "tokens", np.array([4, 4], np.int64)))
    changes = generating(stamped_tokens_max=2, output_tokens=4) | {"samples": series}
    changes["energy"] = msgspec.structs.replace(changes["energy"], inferences=2)
    report = result_of(**changes)["report"]
    assert report["generation_energy_joules"] == 4.0
    assert report["output_token_count"] == 8


def test_the_parts_of_a_world_with_known_truth_are_found():
    """Requests of 1.2 s at 10 W and 3 s at 6 W over 3 W of idle power: what the meter shows leads to these, by the agent's own method."""
    trial = draw_generation(GenerationWorld(), np.random.default_rng(7))
    energy, _ = assess(trial.trace, trial.run)
    spent, _ = generation_energy(energy, [trial.trace], trial.windows, trial.run)
    generation = make_generation(prompt_tokens=PROMPT_TOKENS, output_tokens=OUTPUT_TOKENS, energy=spent)
    result = result_of(energy=energy, generation=generation, scenario="single_stream", samples=())
    report, requests, seconds = result["report"], trial.run.inferences, energy.window_ms / 1e3
    assert report["total_energy_joules"] == pytest.approx(trial.gross_j["request"] * requests, rel=0.02)
    assert report["prefill_energy_joules"] == pytest.approx(trial.gross_j["prefill"] * requests, rel=0.02)
    assert report["generation_energy_joules"] == pytest.approx(trial.gross_j["decode"] * requests, rel=0.02)
    assert report["static_power_baseline_watts"] == pytest.approx(3.0, rel=0.02)
    assert result["per_inference"]["static_joules"] * requests == pytest.approx(3.0 * seconds, rel=0.02)
    assert result["per_inference"]["active_joules"] == pytest.approx(trial.net_j["request"], rel=0.03)
    decoding = result["per_token"]["generation"]
    assert decoding["active_joules"] * (OUTPUT_TOKENS - 1) == pytest.approx(trial.net_j["decode"], rel=0.04)
    assert report["prefill_energy_joules"] + report["generation_energy_joules"] <= report["total_energy_joules"] * 1.005
    assert report["energy_per_token_joules"]["mean"] == pytest.approx(report["generation_energy_joules"] / report["output_token_count"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"energy": None, "energy_reason": "no sensor is there"}, "no sensor is there"),
        ({"energy": on_paper(sensor="estimate"), "provenance": {"energy": "estimated"}}, "estimated"),
        ({"energy": on_paper(sensor="replay:pi")}, "replayed"),
        ({"energy": on_paper(is_modelled=True)}, "modelled"),
        ({"provenance": {}}, "not stated to be measured"),
        ({"provenance": {"energy": "published"}}, "published"),
        ({"verdict": Verdict(state="invalid", reasons=("throttled: it was",))}, "throttled: it was"),
    ],
)
def test_a_run_without_a_measured_energy_is_refused(changes, reason):
    """With its id and the reason."""
    run = make_record(**({"energy": on_paper()} | changes))
    tier = energy_tier([run])
    assert tier.document["results"] == []
    assert tier.refused[0].startswith(run.id)
    assert reason in tier.refused[0]


def test_the_document_is_informative_and_no_official_result():
    """It names the proposal with its revision, and never calls itself a result of the benchmark."""
    document = energy_tier([make_record(energy=on_paper())]).document
    assert document["informative_only"] is True
    assert "this is not an MLPerf\N{TRADE MARK SIGN} result" in STATEMENT
    assert "not verified by MLCommons" in STATEMENT
    assert set(document["read_as"]) <= set(SHAPE["properties"])
    assert document["proposal"]["state"] == "proposed"
    assert len(document["proposal"]["revision"]) == 40


def test_users_and_rate_are_in_the_workload():
    """Energies by the token of other loads are not those of one."""
    load = Load(samples_per_query=1, samples=10, concurrency=4)
    assert result_of(load=load, scenario="concurrent")["workload"]["concurrency"] == 4


def test_energies_by_the_token_of_another_sensor_are_left_out():
    """They are of another scope."""
    spent = make_generation_energy(sensor="ina3221", decode_token=TokenEnergy(gross_mj=1.0))
    result = result_of(**generating(energy=spent))
    assert "reason" in result["per_token"]
    assert result["report"]["generation_energy_joules"] is None


@pytest.mark.parametrize(("absent", "present", "watts"), [("before", "after", 2.5), ("after", "before", 1.5)])
def test_idle_power_of_one_side_alone_is_named(absent, present, watts):
    """The field is read as the mean of both."""
    result = result_of(energy=on_paper(**{f"idle_{absent}_w": None}))
    assert result["report"]["static_power_baseline_watts"] == watts
    assert result["gaps"]["static_power_baseline_watts"] == f"of one side: idle power {absent} the run was not measured", present
