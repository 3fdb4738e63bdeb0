"""The judge of chaos runs: a verdict that cannot be bad would be worth nothing."""

from collections import Counter

from tests.fixtures.rows import table_row
from tools.chaos import agents
from tools.chaos.judge import Expected, expected, judge

SAID = Expected(frozenset({"a:1", "a:2", "b:1"}), frozenset({"a:1", "a:2", "a:3", "b:1"}), 7)
ALL = Counter({"a:1": 1, "a:2": 1, "b:1": 1})


def test_what_is_missing_is_lost_and_what_is_there_twice_is_doubled():
    """Records are counted as lost or doubled, whether in the ledgers or in InfluxDB."""
    for ledgers, influx, lost, doubled in (
        ([ALL - Counter({"a:2": 1})], ALL, 1, 0),
        ([ALL], ALL - Counter({"a:2": 1}), 1, 0),
        ([Counter()], Counter(), 6, 0),
        ([ALL + Counter({"a:2": 1})], ALL, 0, 1),
        ([ALL], ALL + Counter({"b:1": 2}), 0, 1),
        ([ALL], ALL + Counter({"c:9": 1}), 0, 1),
        # A record left in doubt by a kill counts as sent as soon as one store has it, and then both
        # must.
        ([ALL + Counter({"a:3": 1})], ALL, 1, 0),
        ([ALL + Counter({"a:3": 1})], ALL + Counter({"a:3": 1}), 0, 0),
        # Several ledgers may hold the same record, none twice.
        ([ALL, Counter({"a:1": 1})], ALL, 0, 0),
        ([ALL, Counter({"a:1": 2})], ALL, 0, 1),
    ):
        with table_row(ledgers, influx):
            verdict = judge(SAID, ledgers, influx, 0, 0)
            assert (verdict.lost, verdict.doubled) == (lost, doubled)
            assert verdict.holds == (lost == doubled == 0)


def test_a_journal_cut_by_a_kill_holds_no_more_than_its_whole_lines(tmp_path):
    """A journal's last line without its end is ignored, as `k 1` may be the start of `k 12`.

    It must not mean that record 1 was kept.
    """
    path = tmp_path / "a.journal"
    path.write_text(" cut\ni 11\nk 11\nr 4\ni 12\nk 1")
    assert agents.read(path) == (12, {11})
    journal = agents.Journal(path)
    journal.note("i", 13)
    assert agents.read(path)[0] == 13
    assert expected(tmp_path) == Expected(
        frozenset({"a:11"}), frozenset({"a:11", "a:12", "a:13"}), 4
    )
