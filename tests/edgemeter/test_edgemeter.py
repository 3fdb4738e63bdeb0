"""Facts about `import edgemeter`: six names, nothing else imported, and what they return."""

import inspect
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import asdict

import edgemeter
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Verdict, Violation
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.camera_hour import camera_hour
from tests.fixtures.comparison_factory import document, make_run
from tests.fixtures.played_session import play, run_of
from tests.fixtures.record_factory import (
    STARTED_AT_NS,
    make_accuracy,
    make_generation,
    make_generation_energy,
    make_model,
    make_record,
    make_runtime,
)
from tests.fixtures.replay_case import replay_case, write_replay
from tests.fixtures.rows import table_row

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_there_are_six_names_sorted_and_each_is_there():
    """The module has six sorted names, each with a page of help, as few promises are kept."""
    assert edgemeter.__all__ == ("Record", "compare", "energy", "load", "measure", "measured")
    assert set(edgemeter.__all__) <= set(dir(edgemeter))
    assert all(inspect.getdoc(getattr(edgemeter, name)) for name in edgemeter.__all__)
    assert issubclass(edgemeter.Record, RunRecord)
    with pytest.raises(AttributeError, match="no attribute 'mesure'"):
        _ = edgemeter.mesure


@pytest.mark.parametrize("name", ["measure", "compare", "energy", "load"])
def test_the_example_of_a_docstring_is_on_the_page(name):
    """The docstring's example is on the page, whose walk runs it (tests/site/test_pages.py)."""
    example = inspect.getdoc(getattr(edgemeter, name)).partition("Example:\n")[2]
    page = (ROOT / "docs" / "tasks" / "python.md").read_text()
    assert f"```python\n{textwrap.dedent(example)}\n```" in page


BUSY = [
    Violation(rule="busy-machine", numbers={"other_load_ratio": 0.4}),
    Violation(rule="throttled"),
]
NO_ACCURACY = {"accuracy": None, "reasons": {"accuracy": "no ground truth"}}
RECORDS = {
    "a detector with an energy": {},
    "a classifier": {
        "accuracy": make_accuracy(metric="top1", low=0.6, high=0.65),
        "energy": None,
        "reasons": {"energy": "no sensor"},
    },
    "a language model": {
        "generation": make_generation(energy=make_generation_energy()),
        **NO_ACCURACY,
    },
    "a Python function": {
        "model": make_model(name="step", file="step"),
        "runtime": make_runtime(name="python"),
        **NO_ACCURACY,
    },
    "a disturbed run": {"verdict": Verdict(state="disturbed", violations=tuple(BUSY))},
    "an hour of a camera": asdict(camera_hour()),
}


def test_a_record_is_ten_lines_as_text_and_one_line_as_repr():
    """The text of a record has at most ten lines for every kind of model, its repr one.

    The verdict is the last line.
    """
    for name, changes in RECORDS.items():
        with table_row(name):
            record = edgemeter.Record(**asdict(make_record(**changes)))
            lines = str(record).splitlines()
            assert len(lines) <= 10
            assert lines[-1].split()[:2] == ["Verdict", record.verdict.state]
            assert (
                repr(record)
                == f"<Record {record.id} of case {record.case}: {record.verdict.state}>"
            )


@pytest.mark.services
def test_measure_returns_the_record_and_keeps_it(tmp_path, home, capfd):
    """`measure` returns one run and keeps it in the ledger; its reasons name absent figures."""
    replay_case(tmp_path, "a", 1.0)
    record = edgemeter.measure(tmp_path / "a.replay.json", mode="rapid")
    assert isinstance(record, edgemeter.Record)
    heading, latency, *_ = str(record).splitlines()
    assert (heading.partition(",")[0], latency.split()[0]) == ("a.replay", "Latency")
    assert record.latency.p50_ms >= 1.0
    assert (record.mode, record.reasons["accuracy"][:12]) == ("rapid", "no photograp")
    with SqliteLedger(home / "ledger.sqlite", "read") as ledger:
        assert [arrival.record.id for arrival in ledger.records()] == [record.id]
    other = edgemeter.measure(tmp_path / "a.replay.json", mode="rapid", save=False)
    assert edgemeter.load(columns=["case"])["case"].tolist() == [record.case]
    assert other.id != record.id
    assert capfd.readouterr() == ("", "")
    edgemeter.measure(tmp_path / "a.replay.json", mode="rapid", save=False, progress=True)
    assert capfd.readouterr().err.startswith("[1/1] a.replay.json replay 1 thread: ")


def test_a_wrong_model_or_setting_is_an_error_of_ours_or_of_python(tmp_path):
    """A wrong model or setting is our own error; an unknown keyword is a TypeError."""
    with pytest.raises(ConfigError, match="there is no model at"):
        edgemeter.measure(tmp_path / "none.onnx")
    with pytest.raises(
        TypeError, match=r"unexpected keyword argument 'thread': did you mean threads\?"
    ):
        edgemeter.measure(tmp_path / "none.onnx", thread=4)
    with pytest.raises(
        TypeError,
        match="measure makes one run and takes no 'repeats': call it again for another run",
    ):
        edgemeter.measure(tmp_path / "none.onnx", repeats=4)
    for wrong, name in ((5, "5"), (None, "None")):
        with pytest.raises(
            TypeError,
            match=f"^{name} cannot be measured: give the path or name of a model, or a function "
            "and its inputs$",
        ):
            edgemeter.measure(wrong)
    (tmp_path / "none.onnx").touch()
    for target, inputs in ((tmp_path / "none.onnx", ()), (abs, (1,))):
        with pytest.raises(
            ConfigError,
            match=r"^`mode` is 'fast', which is unknown: there are rapid, quick, normal, full",
        ):
            edgemeter.measure(target, inputs, mode="fast")
    with pytest.raises(
        ConfigError, match=r"is a folder, not a model: give a file in it, such as none\.onnx"
    ):
        edgemeter.measure(tmp_path)


def test_compare_and_load_take_their_arguments_one_by_one(tmp_path):
    """`compare` and `load` refuse wrong arguments with one line that says what to write.

    `compare` takes two models or more as arguments, and neither a function nor a list.
    """
    for models, message in (
        ((), "compare takes two models or more"),
        (
            (tmp_path / "a.onnx",),
            (
                "compare takes two models or more, as in edgemeter.compare(A, B): measure one "
                "with edgemeter.measure(A)"
            ),
        ),
        (
            (abs,),
            "compare takes models: measure each function with edgemeter.measure(function, inputs)",
        ),
        (
            (["a.onnx", "b.onnx"],),
            "['a.onnx', 'b.onnx'] is not the path or name of a model: give the models one by one",
        ),
    ):
        with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
            edgemeter.compare(*models)
    with pytest.raises(
        TypeError,
        match=r"is not a path: give the sources one by one, as in edgemeter\.load\(A, B\)$",
    ):
        edgemeter.load([tmp_path])
    with pytest.raises(
        TypeError, match=r"^columns is a list of names, as in columns=\['latency_p50_ms'\]$"
    ):
        edgemeter.load(tmp_path, columns="latency_p50_ms")


def test_compare_returns_the_comparison(tmp_path, monkeypatch):
    """`compare` returns rows with decisions and a text to print.

    B takes half as long as A. Nothing is in the ledger where that is not wanted.
    """
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    play(
        monkeypatch,
        lambda letter, number: run_of(letter, {"a": 10.0, "b": 5.0}[letter] * (1 + 0.1 * number)),
    )
    models = [write_replay(tmp_path, name) for name in "ab"]
    comparison = edgemeter.compare(*models, repeats=3, save=False)
    assert [(row.name, row.case.key.model, len(row.case.runs)) for row in comparison.rows] == [
        ("A", "a", 3),
        ("B", "b", 3),
    ]
    assert comparison.rows[1].decisions["latency_p50_ms"].outcome == "better"
    sentence, *_, row = str(comparison).splitlines()
    assert (sentence[:3], row[:3], len(str(comparison).splitlines())) == ("B: ", "B  ", 6)
    assert repr(comparison) == f"<ModelComparison: {sentence}>"
    with pytest.raises(ConfigError, match="no run is kept in"):
        edgemeter.load()
    with pytest.raises(TypeError, match="runs"):
        edgemeter.compare(*models, runs=3)


def test_energy_without_a_sensor_is_reported_missing():
    """An absent sensor is reported before the block runs."""
    with pytest.raises(UnavailableError, match=r"\(--power none\)$"), edgemeter.energy("none"):
        pytest.fail("the block ran")


def test_columns_hold_every_run_of_every_kind_of_source(tmp_path):
    """The columns hold every run of a ledger, document, folder or selection, oldest first.

    Absent values are NaN or None, and times are datetime64.
    """
    first = make_run("pi-1", p50_ms=5.0, started_at_ns=STARTED_AT_NS, session=1, seq=1)
    second = make_run(
        "pi-2",
        p50_ms=None,
        started_at_ns=STARTED_AT_NS + 10**9,
        session=1,
        seq=2,
        energy=None,
        reasons={"energy": "none"},
    )
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.keep_own(second, 1 << 30)
    (tmp_path / "runs.json").write_bytes(document(first))
    for sources in ([tmp_path / "ledger.sqlite", tmp_path / "runs.json"], [tmp_path]):
        columns = edgemeter.load(*sources)
        assert columns["device"].tolist() == ["pi-1", "pi-2"]
        assert columns["started_at"].astype(np.int64).tolist() == [
            STARTED_AT_NS,
            STARTED_AT_NS + 10**9,
        ]
        assert columns["latency_p50_ms"][0] == 5.0
        assert np.isnan(columns["latency_p50_ms"][1])
        assert columns["energy_sensor"].tolist() == [first.energy.sensor, None]
        assert {len(values) for values in columns.values()} == {2}
    assert (
        edgemeter.load(f"{tmp_path / 'ledger.sqlite'}?device=pi-9", columns=["repeat"])[
            "repeat"
        ].dtype
        == np.int64
    )
    with pytest.raises(ConfigError, match="'p50' is not a column"):
        edgemeter.load(tmp_path, columns=["p50"])
