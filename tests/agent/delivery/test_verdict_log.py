"""The verdicts of the last runs."""

from edgemeter.agent.contract.health import RecentRuns
from edgemeter.agent.delivery import verdict_log


def test_the_last_runs_are_counted_and_older_ones_go(tmp_path):
    """A thousand runs leave a hundred in the log, whose file stays small."""
    for number in range(1000):
        verdict_log.note_verdict(
            tmp_path, 1_700_000_000_000_000_000 + number, "disturbed" if number >= 970 else "ok"
        )
    recent = verdict_log.recent_runs(tmp_path)
    assert recent == RecentRuns(
        last_ns=1_700_000_000_000_000_999,
        last_verdict="disturbed",
        verdicts={"ok": 70, "disturbed": 30},
    )
    assert (tmp_path / verdict_log.VERDICTS_FILE).stat().st_size <= verdict_log.REWRITE_BYTES + 40


def test_a_torn_line_is_left_out(tmp_path):
    """A power cut may leave half a line, or bytes that are no text."""
    verdict_log.note_verdict(tmp_path, 5, "ok")
    with (tmp_path / verdict_log.VERDICTS_FILE).open("ab") as file:
        file.write(b"17 inva\n\x00\xff\x00\n12 \n")
    verdict_log.note_verdict(tmp_path, 6, "invalid")
    assert verdict_log.recent_runs(tmp_path) == RecentRuns(
        last_ns=6, last_verdict="invalid", verdicts={"ok": 1, "invalid": 1}
    )
    verdict_log.note_verdict(tmp_path / "gone", 5, "ok")
    assert verdict_log.recent_runs(tmp_path / "gone") == RecentRuns()
