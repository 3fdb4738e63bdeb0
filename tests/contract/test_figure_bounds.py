"""Facts about the bounds of figures.

They stand in the type of the field, so that every reader of a record refuses values outside.
"""

import math

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract import record
from edgemeter.agent.contract.figures import FIGURES
from edgemeter.agent.contract.record_figures import ColdStart, Memory, Neighbour, Stage, Together
from edgemeter.collector.receive.admission import Admitted
from tests.fixtures.figure_bounds import PATHS, bounds_of, with_value
from tests.fixtures.record_factory import (
    make_accuracy,
    make_energy,
    make_generation,
    make_generation_energy,
    make_latency,
    make_record,
    make_steady,
)
from tests.fixtures.rows import table_row

TOPIC = "edgemeter/v1/lab/pi-1/result"


def full_record():
    """Return a record with every figure, as plain data.

    Its metric is an error, which may exceed 1.
    """
    return msgspec.to_builtins(
        make_record(
            session=7,
            seq=1,
            latency=make_latency(p99_ms=18.5),
            cold_start=ColdStart(
                process_ms=450.0, import_ms=120.0, load_ms=35.5, first_ms=18.0, compile_ms=900.0
            ),
            memory=Memory(peak_mb=92.5, loaded_mb=80.0, grown_mb=1.5),
            energy=make_energy(after_load_mj=4.0),
            accuracy=make_accuracy(value=0.25, low=0.125, high=0.5, better="lower"),
            steady=make_steady(jitter=Stage(p50_ms=0.5, p90_ms=1.25)),
            together=Together(
                neighbours=(Neighbour(model="llm", sha256="b2", runtime="llama", threads=1),),
                slow_down_ratio=1.5,
            ),
            generation=make_generation(
                energy=make_generation_energy(), output_tokens_per_s=95.0, user_tokens_per_s=90.5
            ),
        )
    )


def admitted(text):
    """Return the records of a message that a collector takes, and why others are refused."""
    group = Admitted(1)
    group.add(Message(TOPIC, text, 1, 1, 1))
    return len(group.arrivals) + len(group.batches), [
        (rejection.kind, rejection.reason) for rejection in group.rejections
    ]


def test_a_figure_at_its_bounds_is_taken_and_one_beyond_is_refused_and_named():
    """A figure at its bounds is taken, and one beyond is refused with the field's path.

    Every figure of the table, its bounds and its uncertainty are tried one by one, alone and in a
    batch. A refused record is quarantined.
    """
    document = full_record()
    for path in PATHS:
        low, high = bounds_of(path)
        assert low is not None, path
        assert high is not None, path
        for value in (low, high):
            with table_row(path, value):
                text = with_value(document, path, value)
                record.decode(text)
                assert admitted(text) == (1, [])
        for value in (
            math.nextafter(low, -math.inf),
            math.nextafter(high, math.inf),
            -1e308,
            1e308,
        ):
            with table_row(path, value):
                text = with_value(document, path, value)
                with pytest.raises(ConfigError, match=rf"Expected `float` .* at `\$\.{path}`"):
                    record.decode(text)
                for payload in (text, b"[%b]" % text):
                    admitted_count, refusals = admitted(payload)
                    assert (admitted_count, [kind for kind, _ in refusals]) == (0, ["record"])
                    assert f"`$.{path}`" in refusals[0][1]


def test_a_batch_with_one_such_record_gives_the_others():
    """Only the bad record of a batch is quarantined, and the others are taken."""
    good, bad = (with_value(full_record(), "accuracy.value", value) for value in (0.5, 1e308))
    admitted_count, refusals = admitted(b"[%b,%b,%b]" % (good, bad, good))
    assert (admitted_count, len(refusals)) == (2, 1)


def test_only_an_error_exceeds_1():
    """An error such as the word error rate may exceed 1, but an accuracy may not."""
    document = full_record()
    document["accuracy"]["better"] = "higher"
    for value in (0.0, 1.0):
        record.decode(with_value(document, "accuracy.value", value))
    for value in (1.0000000000000002, 2.5, 1e15):
        for decode in (record.decode, record.decode_head):
            with pytest.raises(
                ConfigError,
                match=r"coco_ap exceeds 1, and lower is not better - at `\$.accuracy.value`",
            ):
                decode(with_value(document, "accuracy.value", value))


def test_times_and_energies_are_above_0_and_shares_end_at_1():
    """The type of a field says whether its figure may be 0 or below, and whether it ends at 1."""
    for path, expected in {
        "latency.p50_ms": (1e-12, 1e15),
        "generation.ttft.p50_ms": (1e-12, 1e15),
        "energy.gross_mj": (1e-12, 1e15),
        "energy.net_mj": (1e-12, 1e15),
        "energy.gross_u_mj": (0, 1e15),
        "energy.after_load_mj": (-1e15, 1e15),
        "memory.peak_mb": (0, 1e15),
        "memory.grown_mb": (-1e15, 1e15),
        "throughput_per_s": (0, 1e15),
        "steady.missed_ratio": (0, 1),
        "accuracy.value": (0, 1e15),
    }.items():
        assert bounds_of(path) == expected, path


def test_what_is_worked_out_of_figures_at_their_bounds_is_finite():
    """Derived figures are finite for the least and the greatest inputs.

    Such figures are the energy per correct answer and the highest temperature.
    """
    worked_out = [entry for entry in FIGURES if entry.of]
    document = full_record() | {"steady": None, "load": None}
    document["accuracy"] |= {"metric": "exact_match", "better": "higher", "images": 64}
    document["conditions"][0]["temperatures_c"] = {"cpu": 10_000.0}
    for energy_mj in (1e-12, 1e15):
        for accuracy in (5e-324, 1e-12, 1.0):
            document["energy"]["gross_mj"], document["accuracy"]["value"] = energy_mj, accuracy
            run = record.decode(msgspec.json.encode(document))
            values = [value for entry in worked_out if (value := entry.value(run)) is not None]
            assert len(values) >= (1 if accuracy < 1e-12 else 2)
            assert all(map(math.isfinite, values)), values
