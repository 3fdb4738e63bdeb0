"""Runs as CSV (RFC 4180, header first): absent is empty, floats keep every digit, a list is JSON."""

import csv
from collections.abc import Iterable, Sequence
from typing import TextIO

from edgemeter.agent.records import RunRecord
from edgemeter.collector.export.columns import Column


def write(runs: Iterable[RunRecord], columns: Sequence[Column], file: TextIO) -> int:
    """Write the runs to a text file that was opened with `newline=""`; return how many they were."""
    writer = csv.writer(file)
    writer.writerow([column.name for column in columns])
    getters = [_told if column.kind == "boolean" else None for column in columns]
    values = [column.value for column in columns]
    written = 0
    for run in runs:
        row = [value(run) for value in values]
        writer.writerow([cell if told is None else told(cell) for told, cell in zip(getters, row, strict=True)])
        written += 1
    return written


def _told(value: bool | None) -> str | None:  # noqa: FBT001 - a cell
    return None if value is None else str(value).lower()
