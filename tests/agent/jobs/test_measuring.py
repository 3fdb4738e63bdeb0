"""What a job measures: photographs that came with the order, on the shipped detector, with a real runtime."""

import io

import msgspec
import pytest

from edgemeter.agent.contract import data_archive, order_suite
from edgemeter.agent.contract.orders import Data, Measure
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.session.turn_comparison import TurnsTaken
from tests.agent.jobs.driver import REPLAY, records_in, suite

# A device takes no order that is not signed.
pytestmark = [pytest.mark.services, pytest.mark.needs("openssl")]

SCENES = order_suite.SHIPPED.parent / "scenes"
SUBSET = 12
CASE = f'name = "shapes"\n[[case]]\nmodel = "edgemeter-shapes_int8.tflite"\nmode = "rapid"\nsubset = {SUBSET}\nidle_seconds = 0\ndata = '


@pytest.fixture(scope="module")
def archive():
    """Return the shipped scenes as an archive, and what they are opened as here."""
    pytest.importorskip("ai_edge_litert")
    data = open_folder(SCENES / "images", SCENES / "annotations.json", SUBSET)
    files = {f"images/images/{path.name}": path for path in data.needed} | {"annotations/t.json": SCENES / "annotations.json"}
    target = io.BytesIO()
    data_archive.write(files, target)
    return target.getvalue(), data


def work(device, archive, name="scenes.zip", images="scenes.zip"):
    """Return the work of measuring the detector on the scenes."""
    packed = device.hold(archive, name)
    data = Data(sha256=packed.sha256, size_bytes=packed.size_bytes, name=name)
    return Measure(suite=device.hold(f'{CASE}"{images}"\n'.encode(), "suite.toml"), data=(data,))


def test_an_archive_that_leads_elsewhere_rejects_the_order(device):
    """Though its hash is right."""
    import zipfile  # noqa: PLC0415 - only here

    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("images/../../../evil", b"x")
    device.order(work(device, target.getvalue()))
    final = device.final()
    assert final.state == "rejected"
    assert "is not a plain name" in final.reason
    assert list(device.home.rglob("evil")) == []


TURNS = """name = "two"
[[case]]
model = ["a.replay.json", "b.replay.json"]
mode = "rapid"
queries = 20
seconds = 0
idle_seconds = 0
repeats = {rounds}
"""


def in_turn(device, rounds, models=("a", "b")):
    """Return the work of measuring two replays in turn, the second of which is slower."""
    replays = {"a": REPLAY, "b": REPLAY.replace(b"[2.0, 2.5]", b"[4.0, 5.0]")}
    document = TURNS.format(rounds=rounds).encode() if len(models) > 1 else suite()
    names = [f"{name}.replay.json" for name in models] if len(models) > 1 else ["m.replay.json"]
    return device.measure(document, [(name, replays[model]) for name, model in zip(names, models, strict=True)], in_turn=True)


def test_an_order_in_turn_reports_which_run_was_when(device):
    """Alternately, each run in the outbox; a difference of a half ends it early; the text makes the comparison again."""
    device.order(in_turn(device, rounds=8))
    final = device.final()
    assert final.state == "done", final.reason
    turns = msgspec.json.decode(final.text, type=TurnsTaken)
    assert [(turn.round, turn.side) for turn in turns.turns[:4]] == [(0, 0), (0, 1), (1, 1), (1, 0)]
    assert (len(turns.turns), turns.most_runs) == (len(final.runs), 16)
    records = {record["id"]: record for record in records_in(device.home)}
    assert [turn.run for turn in turns.turns] == list(records) == list(final.runs)
    assert {records[turn.run]["model"]["name"] for turn in turns.turns if turn.side} == {"b.replay"}


def test_an_order_in_turn_has_not_too_many_runs(device):
    """Else it is rejected, and nothing is measured."""
    device.order(in_turn(device, 800))
    final = device.final()
    assert final.state == "rejected"
    assert "2 cases, 800 rounds" in final.reason
    assert records_in(device.home) == []


def test_one_case_in_turn_is_measured_with_itself(device):
    """As where a suite names it twice: how much two runs of the same differ there."""
    device.order(in_turn(device, 1, ("a",)))
    final = device.final()
    assert final.state == "done", final.reason
    turns = msgspec.json.decode(final.text, type=TurnsTaken).turns
    assert [(turn.round, turn.side) for turn in turns] == [(0, 0), (0, 1)]
