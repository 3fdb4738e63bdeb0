"""Facts about models that answer the same questions in turn: speed, score and energy a correct answer come from the same queries."""

import json
import time

import msgspec
import pytest

from edgemeter.agent.power import Reading
from edgemeter.agent.session import in_turn, session
from tests.fixtures.power_traces import PlayedSensor
from tests.fixtures.run_jobs import one_case

POWER_W = 5.0
QUESTIONS, OUTPUT_TOKENS = 20, 4


class SteadySensor(PlayedSensor):
    """Reads the same power at all times, but for its last digit."""

    def read(self):
        """Return it now."""
        now_ns = time.monotonic_ns()
        return Reading(now_ns, power_w=POWER_W + now_ns % 97 / 1e5)


def answer_of(prompt, vocabulary):
    """Return what a replay of this vocabulary writes."""
    total = sum(byte % vocabulary for byte in prompt.encode())
    return "".join(chr(32 + (total + index) % vocabulary % 95) for index in range(OUTPUT_TOKENS))


def case_of(folder, name, vocabulary, step_ms):
    """Return a case of real prompts on a replay of 4 tokens a query."""
    recording = {"format": "edgemeter-generation-replay", "schema": 1, "vocabulary": vocabulary}
    path = folder / f"{name}.replay.json"
    path.write_text(json.dumps(recording | {"queries": [{"first_ms": step_ms, "steps_ms": [step_ms]}]}))
    case = one_case(path, mode="rapid", prompts=str(folder / "questions.jsonl"), output_tokens=OUTPUT_TOKENS)
    return msgspec.structs.replace(case, seconds=10.5, warm_up_seconds=0.1, idle_seconds=1.0)


@pytest.mark.long
@pytest.mark.slow
def test_the_slower_model_with_fewer_right_answers_costs_more_energy_a_right_one(tmp_path):
    """Twice the time and half of the answers right at the same power: four times the energy a correct answer, beside score and speed."""
    entries = []
    for number in range(5000):
        prompt = f"Question {number * 7919}"
        first, second = answer_of(prompt, 256), answer_of(prompt, 190)
        if first.isalpha() and second.isalpha() and first.lower() != second.lower():
            entries.append({"prompt": prompt, "answers": [first, second] if len(entries) % 2 else [first]})
    entries = entries[:QUESTIONS]
    assert len(entries) == QUESTIONS
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, entries)))
    bench = in_turn.Bench(session.DeviceIdentity("bench", "lab"), {"bench": SteadySensor(period_ms=10.0)}, "", lambda _: None)
    cases = [case_of(tmp_path, "fast", 256, 5.0), case_of(tmp_path, "slow", 190, 10.0)]
    comparison = in_turn.measure_in_turn(cases, 1, bench)
    fast, slow = comparison.sides
    assert (fast.accuracy_value, slow.accuracy_value) == (1.0, 0.5)
    assert [run.energy_reason for run in comparison.runs] == [None] * 2
    correct_mj = [side.text_figures["energy-correct"] for side in comparison.sides]
    assert correct_mj[0] == pytest.approx(POWER_W * 4 * 5.0, rel=0.15)
    assert correct_mj[1] == pytest.approx(POWER_W * 4 * 10.0 / 0.5, rel=0.15)
    differences = {entry.figure: entry.change for entry in comparison.contrasts[0].differences}
    assert differences["energy per correct answer"] == pytest.approx(4.0, rel=0.15)
    assert differences["accuracy"] == -0.5
    assert differences["tpot"] == pytest.approx(2.0, rel=0.15)
