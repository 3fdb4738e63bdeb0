import re

import msgspec
import pytest

from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.contract.figures import FIGURES, field_name
from edgemeter.agent.contract.record_figures import Load
from edgemeter.agent.contract.record_generation import LanguageModel
from edgemeter.collector.influx import points
from edgemeter.collector.influx.points import (
    ENERGY_PROVENANCE,
    FACTS,
    point_line,
    point_ns,
    tags_of,
)
from edgemeter.collector.influx.status_points import status_lines
from tests.fixtures.random_records import random_record
from tests.fixtures.record_factory import (
    make_energy,
    make_environment,
    make_generation,
    make_latency,
    make_record,
    make_runtime,
)
from tests.fixtures.rows import table_row

LINE = r"((?:[^ \\]|\\.)*) (.*) (-?\d+)"
FIELD = r'[^=,]*=(?:"(?:[^"\\]|\\.)*"|[^",]*)'
KIND_OF = (
    ("integer", r"-?\d+i"),
    ("boolean", "true|false"),
    ("text", '"(?s:.*)"'),
    ("float", r"-?\d+(\.\d+)?(e[+-]?\d+)?"),
)
NS_PER_DAY = 24 * 3600 * 1_000_000_000


def fields_of(record):
    """Return the fields of a record's line as they are written, by name."""
    head, fields, _ = re.fullmatch(LINE, point_line(record), re.DOTALL).groups()
    assert head.startswith("run,")
    return dict(field.split("=", 1) for field in re.findall(FIELD, fields, re.DOTALL))


def numbered(session=5, seq=1, **changes):
    return make_record(session=session, seq=seq, **changes)


def test_whatever_a_record_holds_a_column_keeps_its_type():
    """Random records have extreme numbers, odd texts and names from the wire.

    A whole float is no integer.
    """
    kinds = {}
    for seed in range(20):
        for name, text in fields_of(random_record(seed)).items():
            kind = next(kind for kind, form in KIND_OF if re.fullmatch(form, text))
            assert kinds.setdefault(name, kind) == kind, name
    of_figures = {
        name: "boolean" if entry.is_truth else "float"
        for entry in FIGURES
        for name in (entry.name, *entry.bound_names)
    }
    assert kinds.items() <= (kinds | of_figures).items()
    assert kinds.keys() <= {*of_figures, *map(field_name, FACTS), ENERGY_PROVENANCE}
    assert len(kinds) > 50


def test_a_line_is_the_same_whatever_was_written_before():
    """The text that runs of one subject share is made once.

    It contains nothing that only one run has.
    """
    records = [random_record(seed) for seed in range(40)]
    records += [
        msgspec.structs.replace(record, seq=2, suite="another", energy=None, generation=None)
        for record in records
    ]
    lines = [point_line(record) for record in records + records]
    points._shared_texts.clear()
    alone = []
    for record in records:
        alone.append(point_line(record))
        points._shared_texts.clear()
    assert lines == alone + alone


def test_what_is_no_number_is_absent():
    """The wire format cannot carry such a value."""
    fields = fields_of(
        msgspec.structs.replace(numbered(), latency=make_latency(p50_ms=float("inf")))
    )
    assert "latency_p50_ms" not in fields
    assert fields["latency_mean_ms"]


def test_the_variant_distinguishes_the_cases_of_a_model():
    """Cases that a comparison keeps apart are separate series."""
    for changes, expected in (
        ({}, "cpu, 2 threads, batch 1, 1x3x96x96"),
        ({"batch": 8}, "cpu, 2 threads, batch 8, 1x3x96x96"),
        (
            {"runtime": make_runtime(backend="cuda", threads=1, options={})},
            "cuda, 1 thread, batch 1, 1x3x96x96",
        ),
        (
            {"runtime": make_runtime(backend="cpu", options={"b": "2", "a": "1"}), "cpus": (0, 1)},
            "cpu, 2 threads, batch 1, 1x3x96x96, a 1, b 2, cpus 0 1",
        ),
        (
            {
                "generation": make_generation(
                    is_local=False, model=LanguageModel(name="qwen", parameters=494, kv_type="q8_0")
                )
            },
            "cpu, 2 threads, batch 1, 1x3x96x96, kv_type q8_0, qwen, 494 parameters",
        ),
        (
            {"environment": make_environment(power_mode="15W")},
            "cpu, 2 threads, batch 1, 1x3x96x96, 15W",
        ),
        ({"provenance": {"latency": "replayed"}}, "cpu, 2 threads, batch 1, 1x3x96x96, replayed"),
        (
            {"load": Load(samples=80, target_per_s=2.5)},
            "cpu, 2 threads, batch 1, 1x3x96x96, 2.5 per s",
        ),
    ):
        with table_row(changes):
            assert (
                tags_of(
                    numbered(**({"runtime": make_runtime(backend="cpu", options={})} | changes))
                )["variant"]
                == expected
            )


def test_an_energy_carries_scope_sensor_and_provenance():
    """They are in a tag that panels group by, and in fields."""
    for energy, source, provenance in (
        (make_energy(), "board-input, ina219, measured", "measured"),
        (make_energy(sensor="replay:demo"), "board-input, replay:demo, replayed", "replayed"),
    ):
        with table_row(source):
            record = numbered(energy=energy)
            assert tags_of(record)["energy_source"] == source
            fields = fields_of(record)
            assert (fields["energy_provenance"], fields["energy_scope"]) == (
                f'"{provenance}"',
                f'"{energy.scope}"',
            )
    assert tags_of(numbered(energy=None))["energy_source"] is None
    assert "energy_provenance" not in fields_of(numbered(energy=None))


def test_tags_are_escaped_sorted_and_absent_ones_left_out():
    """Line ends and a final backslash have no escape in a tag.

    An empty value is an error to InfluxDB.
    """
    for text, tag in (
        ("a,b=c d", r"a\,b\=c\ d"),
        ('grün "深"', r"grün\ " + '"深"'),
        ("a\nb\rc\td", r"a\ b\ c\ d"),
        ("a\\", "a/"),
    ):
        with table_row(text):
            assert f",precision={tag},role=device," in point_line(numbered(precision=text))
    head = (
        point_line(numbered(suite=None, precision=""))
        .replace("\\ ", "_")
        .replace("\\,", "_")
        .split(" ")[0]
    )
    names = [part.split("=")[0] for part in head.split(",")[1:]]
    assert names == sorted(names)
    assert {"device", "model"} < set(names)
    assert not {"suite", "precision"} & set(names)


def test_two_records_of_the_same_start_are_two_points():
    """Session and seq distinguish points of the same tags and nanosecond; the millisecond stays."""
    points = {
        point_ns(numbered(session, seq))
        for session in (1, 2, 2**52, 77 << 16 | 4, 78 << 16 | 4)
        for seq in range(1, 200)
    }
    assert len(points) == 5 * 199
    assert {point // 1_000_000 for point in points} == {numbered().started_at_ns // 1_000_000}


def test_a_record_stamped_by_two_collectors_is_one_point_of_the_day():
    """Both collectors stamp and drain the record of a device that never knew the time."""
    morning_ns = make_record().started_at_ns // NS_PER_DAY * NS_PER_DAY + 7 * 3600 * 1_000_000_000
    times = {
        (
            seq,
            point_ns(
                numbered(
                    seq=seq,
                    clock_synchronised=False,
                    stamped_by="collector",
                    started_at_ns=stamp_ns,
                )
            ),
        )
        for seq in range(1, 200)
        for stamp_ns in (morning_ns, morning_ns + 300_123_456_789)
    }
    assert len(times) == len({at_ns for _, at_ns in times}) == 199
    assert {at_ns // NS_PER_DAY for _, at_ns in times} == {morning_ns // NS_PER_DAY}


def test_the_state_of_a_collector_is_how_many_records_wait():
    """The state's point is tagged with the id of the collector's ledger."""
    assert [*status_lines([], "c 1", 20, 5)] == [r"collector,collector=c\ 1 lag_rows=20i 5"]


@pytest.mark.influx
def test_any_text_comes_back_exactly_from_a_field_and_stays_one_tag(influx_place, bucket_of):
    """A real server returns line ends, quotes, backslashes, commas and Unicode unchanged.

    Blanks and equals signs are unchanged too.
    """
    texts = [
        '"',
        "\\",
        '\\"',
        "a\\\\",
        "two\nlines\r\n",
        "a,b c=d",
        "tab\t",
        "grün 深 🙂",
        "'; DROP",
        "\x01\x7f",
        "#",
        " ",
        "1 1=1",
    ]
    lines = [
        point_line(
            contract_record.decode(
                contract_record.encode(
                    numbered(
                        seq=seq, suite=text, environment=make_environment(board=text, kernel=text)
                    )
                )
            )
        )
        for seq, text in enumerate(texts, 1)
    ]
    assert bucket_of(influx_place.config()).write(lines) == {}
    rows = {row["seq"]: row for row in influx_place.query("SELECT * FROM run")}
    for seq, text in enumerate(texts, 1):
        with table_row(text):
            tag = "".join(
                " " if ord(character) < 32 or ord(character) == 127 else character
                for character in text
            ).replace("\\", "/")
            assert (rows[seq]["environment_kernel"], rows[seq]["board"], rows[seq]["suite"]) == (
                text,
                tag,
                tag,
            )
            assert rows[seq]["latency_p50_ms"] == 12.25
