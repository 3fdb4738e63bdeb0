import json

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.reference import mlperf
from edgemeter.collector.reference.mlperf import DERIVED, LEGEND, UNVERIFIED, footnote
from tests.fixtures.mlperf_factory import make_row, v41, v60, write
from tests.fixtures.rows import table_row


@pytest.fixture
def official(tmp_path):
    """Return a place for a file."""
    return tmp_path / "summary_results.json"


def only(path):
    """Return the one row of a file."""
    (row,) = mlperf.read(path).rows
    return row


def test_three_rounds_in_their_own_types_are_one_kind_of_row(official):
    """IDs with and without v, counts as floats, integers or nothing, compliance as a number or a word."""
    rows = mlperf.read(write(official, v41(), make_row(), v60())).rows
    assert [(row.id, row.round, row.accelerators, row.compliance) for row in rows] == [
        ("4.1-0052", "v4.1", 8, "1"),
        ("5.1-0061", "v5.1", 8, "1"),
        ("6.0-0028", "v6.0", None, "closed"),
    ]


def test_every_unit_of_the_rounds_is_known(official):
    """Small latencies keep all their digits, seconds become milliseconds."""
    for unit, published, measure, value in (
        ("Samples/s", 14439.0, "samples_per_s", 14439.0),
        ("Queries/s", 13605.5, "queries_per_s", 13605.5),
        ("Tokens/s", 8840.42, "tokens_per_s", 8840.42),
        ("Latency (ms)", 0.400845, "latency_ms", 0.400845),
        ("Latency (s)", 21.5, "latency_ms", 21500.0),
    ):
        with table_row(unit):
            parsed = only(write(official, make_row(Performance_Units=unit, Performance_Result=published)))
            assert (parsed.measure, parsed.value, parsed.unit_as_published) == (measure, pytest.approx(value, rel=1e-12), unit)


def test_energy_comes_from_measured_power_only(official):
    """43,698.6 samples a second at 7,636.49 W are 174.8 mJ each; a stream's millijoules are its energy."""
    offline = make_row(Model="whisper", Performance_Result=43698.6, Power_Result=7636.49, Power_Units="Watts", has_power=True)
    stream = make_row(
        Suite="edge", Scenario="SingleStream", Performance_Result=4.77892, Performance_Units="Latency (ms)", Power_Result=155.142,
        Power_Units="millijoules", has_power=True,
    )  # fmt: skip
    of_offline, of_stream, without = mlperf.read(write(official, offline, stream, make_row())).rows
    assert (of_offline.energy_mj, of_offline.energy_per) == (pytest.approx(174.754, abs=1e-3), "sample")
    assert (of_stream.energy_mj, of_stream.energy_per) == (155.142, "stream")
    assert (without.energy_mj, without.energy_per, without.power_value) == (None, None, None)


def test_several_accuracies_in_one_text_are_distinguished(official):
    """Names may hold digits and underscores, values many decimals."""
    text = "ROUGE1: 45.2287  TOKENS_PER_SAMPLE: 143.7  gsm8k_accuracy: 73.2  CLIP_SCORE: 31.793520182073117"
    assert only(write(official, make_row(Accuracy=text))).accuracy == {
        "ROUGE1": 45.2287,
        "TOKENS_PER_SAMPLE": 143.7,
        "gsm8k_accuracy": 73.2,
        "CLIP_SCORE": 31.793520182073117,
    }


def test_what_a_row_hides_in_its_notes_is_carried(official):
    """A GPU may be listed that did nothing."""
    row = only(write(official, v60(Notes="CPU only submission", inferred=1, Accelerator="GB10", weight_data_types="fp4")))
    assert (row.notes, row.is_inferred, row.accelerator) == ("CPU only submission", True, "GB10")


def test_rows_with_errors_are_dropped_and_counted(official):
    """The round marks them itself."""
    parsed = mlperf.read(write(official, make_row(errors=2), make_row(), make_row(Scenario="Server", errors="0")))
    assert (len(parsed.rows), parsed.dropped) == (2, 1)


def test_keys_that_are_not_needed_may_be_absent_and_new_ones_appear(official):
    """The next round has others."""
    row = make_row(UsedModel=None, Accuracy=None, Notes=None, Software=None, Details=None) | {"Something New": 1}
    assert only(write(official, row)).accuracy == {}


def test_a_wrong_row_is_refused_with_its_line(official):
    """The second row begins on the line after the first one's end; nothing of the file is taken, unless requested."""
    line = len(json.dumps([make_row()], indent=2).splitlines())
    for change, message in (
        ({"Performance_Units": "Furlongs/s"}, r"Performance_Units 'Furlongs/s' are not known"),
        ({"Power_Result": 5.0, "Power_Units": "Joules"}, r"Power_Units 'Joules' are not known"),
        ({"Power_Result": 5.0}, r"'Power_Units' is missing"),
        ({"Performance_Result": None}, r"Performance_Result None is not a number above 0"),
        ({"Performance_Result": "fast"}, r"Performance_Result 'fast' is not a number"),
        ({"Performance_Result": -1}, r"is not a number above 0"),
        ({"Performance_Result": True}, r"Performance_Result True is not a number above 0"),
        ({"Scenario": None}, r"'Scenario' is missing: this is not a row of an MLPerf"),
        ({"version": "next", "ID": "x"}, r"names a round"),
        ({"Suite": "automotive"}, r"Suite 'automotive' is not known \(known: datacenter, edge\)"),
        ({"Performance_Result": 9999.0}, r"5\.1-0061/datacenter/retinanet/Offline is in line 2 too, with another result"),
    ):
        with table_row(change):
            write(official, make_row(), make_row(**change))
            with pytest.raises(ConfigError, match=rf"line {line}: .*{message}"):
                mlperf.read(official)
            parsed = mlperf.read(official, skip_refused=True)
            assert (len(parsed.rows), len(parsed.refused)) == (1, 1)
            assert parsed.refused[0].startswith(f"line {line}: ")


def test_a_result_that_is_there_twice_is_named_and_counts_once(official):
    """By both lines; another division or scenario is no repeat."""
    parsed = mlperf.read(
        write(official, make_row(), make_row(), make_row(Category="open"), make_row(UsedModel="vgg"), make_row(Scenario="Server"))
    )
    line = len(json.dumps([make_row()], indent=2).splitlines())
    assert len(parsed.rows) == 4
    assert parsed.repeated == (f"line {line}: 5.1-0061/datacenter/retinanet/Offline repeats line 2",)


def test_a_truncated_file_is_refused_with_the_line_where_it_ends(official):
    """Cut near its beginning, in the middle or near its end."""
    text = json.dumps([make_row(), v60(), v41()], indent=2)
    for share in (0.02, 0.3, 0.5, 0.9, 0.99):
        with table_row(share):
            official.write_text(text[: int(len(text) * share)])
            with pytest.raises(ConfigError, match=r"summary_results\.json', line \d+: "):
                mlperf.read(official)


def test_the_line_of_a_truncation_is_the_right_one(official):
    """The text of the last key is cut in the middle of its line."""
    lines = json.dumps([make_row()], indent=2).splitlines()
    official.write_text("\n".join([*lines[:10], lines[10][:12]]))
    with pytest.raises(ConfigError, match=r"line 11: "):
        mlperf.read(official)


def test_what_is_no_such_file_is_refused(official):
    """In one line, whatever it is."""
    for content in (b"", b"{}", b"hello", b"[1]", b"[[]]", b"\xff\xfe\x00", b"[" * 100_000, b"[null]", b'[{"a": 1}', b"[]"):
        with table_row(content[:80]):
            official.write_bytes(content)
            with pytest.raises(ConfigError, match=r"summary_results\.json'") as error:
                mlperf.read(official, skip_refused=True)
            assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named(official):
    """With what the system says."""
    with pytest.raises(ConfigError, match=r"cannot read .*summary_results\.json': No such file"):
        mlperf.read(official)


def test_what_stands_behind_the_list_is_refused(official):
    """Two files in one, or a list that was closed too early, would lose rows unseen."""
    for suffix in ("x", "[]", '\n,{"ID": "6.0-0001"}]'):
        with table_row(suffix):
            official.write_text(json.dumps([make_row()], indent=2) + suffix)
            with pytest.raises(ConfigError, match=r"line \d+: text after the end of the list"):
                mlperf.read(official)


def test_only_an_energy_that_was_derived_is_called_so(official):
    """Watts divided by a rate are ours, the millijoules of a stream are the round's own figure."""
    offline = make_row(Power_Result=7636.49, Power_Units="Watts")
    stream = make_row(Scenario="SingleStream", Performance_Units="Latency (ms)", Power_Result=155.142, Power_Units="millijoules")
    texts = [
        footnote(row, "https://example.org", "2026-11-02", is_verified=True) for row in mlperf.read(write(official, offline, stream)).rows
    ]
    assert [DERIVED in text for text in texts] == [True, False]


def test_the_footnote_names_all_that_is_required(official):
    """Suite, version, division, benchmark, scenario, source, date, entry and legend; unverified results say so."""
    row = only(write(official, v60(Model="yolo-99", Scenario="SingleStream", Suite="edge")))
    text = footnote(row, "https://example.org/results", "2026-11-02", is_verified=True)
    assert text.startswith(
        "MLPerf™ v6.0 Inference Closed yolo-99 SingleStream (edge). Retrieved from https://example.org/results 2026-11-02, entry 6.0-0028."
    )
    assert text.endswith(LEGEND)
    assert UNVERIFIED not in text
    assert UNVERIFIED in footnote(row, "https://example.org/results", "2026-11-02", is_verified=False)
