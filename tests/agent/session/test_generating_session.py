"""Facts about whole runs of language models: the record holds all that its figures follow from."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgemeter.agent.bundle.recompute import recompute
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Suite, SuiteFile, expand
from edgemeter.agent.session import session
from tests.fixtures.played_time import play_time
from tests.fixtures.run_jobs import in_this_process

WHO = session.DeviceIdentity("bench", "lab")


def recording(folder: Path, **changes: Any) -> Path:
    """Write a recording of 4 ms to the first token and 0.5 ms a token."""
    document = {
        "format": "edgemeter-generation-replay",
        "schema": 1,
        "queries": [{"first_ms": 4.0, "steps_ms": [0.5]}],
    }
    path = folder / "m.replay.json"
    path.write_bytes(msgspec.json.encode(document | changes))
    return path


def measured(folder: Path, recorded: dict[str, Any] | None = None, **settings: Any) -> RunRecord:
    fields = {
        "model": str(recording(folder, **(recorded or {}))),
        "mode": "rapid",
        "repeats": 1,
        "prompt_tokens": 16,
        "output_tokens": 8,
    }
    suite = expand(SuiteFile(name="s", case=[Settings(**(fields | settings))]), folder)
    suite = Suite(
        suite.name,
        tuple(msgspec.structs.replace(case, warm_up_seconds=0.05) for case in suite.cases),
    )
    (outcome,) = session.measure(suite, WHO, {}, "no power sensor on this machine", lambda _: None)
    assert isinstance(outcome, RunRecord), outcome
    return outcome


@pytest.fixture
def played(monkeypatch):
    in_this_process(monkeypatch)
    play_time(monkeypatch)


@pytest.mark.usefixtures("played")
def test_every_figure_of_a_run_follows_from_its_raw_samples(tmp_path):
    """The statistics and rates are recomputed from the times of the tokens."""
    record = contract_record.decode(contract_record.encode(measured(tmp_path)))
    assert record.generation is not None
    checked, differences = recompute(record)
    assert checked["generation"] > 20
    assert differences == ()
    changed = msgspec.structs.replace(
        record, generation=msgspec.structs.replace(record.generation, decode_tokens_per_s=1.0)
    )
    assert "generation.decode_tokens_per_s" in {
        difference.field for difference in recompute(changed)[1]
    }


@pytest.mark.usefixtures("played")
def test_a_replayed_run_is_marked_and_a_short_one_noted(tmp_path):
    """The provenance is the recording's, and a truncated output is named."""
    record = measured(tmp_path, {"end_after_tokens": 5})
    assert record.provenance["latency"] == "replayed"
    assert record.runtime.name == "replay"
    (note,) = (note for note in record.verdict.notes if note.rule == "ended-early")
    assert note.numbers["generation_ended_early"] == note.numbers["queries"] == 11


@pytest.mark.needs(module="xllamacpp")
def test_the_tiny_model_runs_in_its_own_process():
    """The library llama.cpp is loaded in the run's process only."""
    tiny = Path(__file__).resolve().parents[2] / "fixtures" / "generators" / "llama.gguf"
    case = Settings(model=str(tiny), mode="rapid", repeats=1, prompt_tokens=40, output_tokens=8)
    suite = expand(SuiteFile(name="s", case=[case]), Path("/"))
    (record,) = session.measure(suite, WHO, {}, "none", lambda _: None)
    assert isinstance(record, RunRecord), record
    assert record.generation.prompt_tokens == 40
    assert record.model.task == "generation"
    assert record.output_check.differing == 0
