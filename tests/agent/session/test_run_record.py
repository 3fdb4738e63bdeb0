import re
from contextlib import nullcontext

import msgspec
import pytest

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.record_generation import LanguageModel
from edgemeter.agent.contract.suite import SuiteFile, expand
from edgemeter.agent.energy.energies import Energies
from edgemeter.agent.session.run_record import PlannedRun, SessionContext, run_record
from tests.fixtures.measured_factory import measured
from tests.fixtures.record_factory import (
    SHA_MODEL,
    make_accuracy,
    make_environment,
    make_generation,
)
from tests.fixtures.rows import table_row


def id_of(tmp_path, generation=None, settings=None, **facts):
    """Return the id of the case of a run, whatever its file.

    The run generated text if there is a `generation`.
    """
    (case,) = expand(
        SuiteFile(name="s", case=[Settings(model="chat.server", **(settings or {}))]), tmp_path
    ).cases
    shared = SessionContext("s", "pi-1", "lab", "device", make_environment(), 0)
    planned = PlannedRun(case, 0, 0, SHA_MODEL, shared)
    return run_record(
        planned,
        measured(generation=generation, **facts),
        0,
        (),
        Energies(None, "no sensor"),
        (),
        None,
    ).case


def test_the_id_of_a_case_holds_what_a_server_states(tmp_path):
    """Two models behind one file are two cases; a model that runs here is known by its file."""
    ids = [
        id_of(tmp_path, make_generation(is_local=is_local, model=LanguageModel(name=name)))
        for is_local in (False, True)
        for name in ("qwen-0.5b", "qwen-7b")
    ]
    assert len(set(ids)) == 3
    assert ids[2] == ids[3]


def test_the_order_of_options_makes_no_other_case(tmp_path):
    """A suite and a command give the same options in any order."""
    ids = {
        id_of(tmp_path, make_generation(), settings={"options": options})
        for options in ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})
    }
    assert len(ids) == 1


def test_the_id_of_a_case_holds_the_threads_that_are_recorded(tmp_path):
    """A server chooses its own threads, so `--threads` does not change the case."""
    runtime = measured().runtime
    recorded = {
        reason: [
            msgspec.structs.replace(
                runtime, threads=threads if reason is None else 1, threads_reason=reason
            )
            for threads in (1, 4)
        ]
        for reason in (None, "the server chooses how many it computes with")
    }
    ids = [
        {
            id_of(tmp_path, settings={"threads": threads}, runtime=each)
            for threads, each in zip((1, 4), both, strict=True)
        }
        for both in recorded.values()
    ]
    assert list(map(len, ids)) == [2, 1]


def test_a_run_with_a_figure_that_no_reader_accepts_gives_no_record(tmp_path):
    """An accuracy that is not a ratio, for example, would be lost at the collector.

    Nobody could measure it again there.
    """
    for value, better, refusal in (
        (32.5, "lower", None),
        (32.5, "higher", "coco_ap exceeds 1"),
        (1e308, "lower", "`$.accuracy.value`"),
    ):
        with table_row(value, better):
            accuracy = make_accuracy(value=value, better=better)
            with (
                nullcontext()
                if refusal is None
                else pytest.raises(MeasurementError, match=re.escape(refusal))
            ):
                id_of(tmp_path, accuracy=accuracy)
