"""Tests of the judgement of published rows."""

from edgemeter.collector.published.judge import judge
from edgemeter.collector.published.row import PublishedRow

ROW = PublishedRow(
    source="a guide", version="1", date="2026-11-20", address="https://example.org/guide", model="yolo11n", device="Raspberry Pi 5",
    figure="latency", value=81.2, unit="ms", conditions="as the guide states it",
)  # fmt: skip


def test_every_row_is_judged_in_its_order():
    """Also a row that no bound is known for has a judgement."""
    assert [judgement.row for judgement in judge([ROW])] == [ROW]
