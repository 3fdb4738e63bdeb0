"""Published rows by what they are of, so that a figure finds the nearest one of its case in each other edition among thousands."""

import math
import operator
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from edgemeter.collector.published.against import against_row, few
from edgemeter.collector.published.conditions import CONDITIONS, conditions_of, differences, is_one_case
from edgemeter.collector.published.judgement import PublishedComparison
from edgemeter.collector.published.name_matching import device_name, model_name
from edgemeter.collector.published.row import PublishedRow
from edgemeter.collector.runs.cases import grouped

# Conditions whose values are the same or not: what differs in one is not looked at.
_EXACT = [index for index, condition in enumerate(CONDITIONS) if condition.is_same is operator.eq and condition.is_decisive]
# A row with the logarithm of its value, its number and its conditions.
_Entry = tuple[float, int, PublishedRow, tuple[Any, ...]]


class OtherRows:
    """Rows, by model, device and figure; results of MLPerf, which may not be compared with others, are none of them."""

    def __init__(self, rows: Sequence[PublishedRow]) -> None:
        entries = [(math.log(row.canonical[0]), number, row, conditions_of(row)) for number, row in enumerate(rows) if not row.is_mlperf]
        self._editions = {
            subject: {key: _Edition(of_key) for key, of_key in grouped((entry[2].key, entry) for entry in of_subject).items()}
            for subject, of_subject in grouped((_subject(entry[2]), entry) for entry in entries).items()
            if all(subject)
        }

    def comparisons(self, row: PublishedRow) -> tuple[list[PublishedComparison], int]:
        """Return how a row compares with the nearest that fits of each other edition, and how many more editions there are."""
        if row.is_mlperf:
            return [], 0
        values, position = conditions_of(row), math.log(row.canonical[0])
        editions = self._editions.get(_subject(row), {})
        pairs = [pair for key, edition in editions.items() if key != row.key and (pair := edition.nearest(row, values, position))]
        compared = few(pairs, lambda pair: abs(pair[0][0] - position))
        return [
            against_row(row, entry[2], differences(row, values, entry[3], is_case=False), is_nearest=is_nearest)
            for entry, is_nearest in compared
        ], len(pairs) - len(compared)


class _Edition:
    """The rows of one edition, in the order of their values."""

    def __init__(self, entries: Sequence[_Entry]) -> None:
        self._entries = sorted(entries, key=lambda entry: entry[:2])
        self._by_value = {index: grouped((entry[3][index], entry) for entry in self._entries) for index in _EXACT}

    def nearest(self, row: PublishedRow, values: Sequence[Any], position: float) -> tuple[_Entry, bool] | None:
        """Return the row nearest to `position` that may be of the case of `row`, and whether there are others; None: there is none."""
        fitting = list(islice(self._fitting(row, values, position), 2))
        return (fitting[0], len(fitting) > 1) if fitting else None

    def _fitting(self, row: PublishedRow, values: Sequence[Any], position: float) -> Iterator[_Entry]:
        for entry in _outwards(self._candidates(values), position):
            is_one_statistic = None in (row.statistic, entry[2].statistic) or row.statistic == entry[2].statistic
            if is_one_statistic and is_one_case(row, values, entry[3]):
                yield entry

    def _candidates(self, values: Sequence[Any]) -> list[_Entry]:
        """Return the entries that have the row's value of the condition that the fewest have, or none."""
        stated_in = [index for index in _EXACT if values[index] is not None]
        sides = [(self._by_value[index].get(values[index], []), self._by_value[index].get(None, [])) for index in stated_in]
        same, absent = min(sides, key=lambda pair: len(pair[0]) + len(pair[1]), default=(self._entries, []))
        return sorted([*same, *absent], key=lambda entry: entry[:2]) if same and absent else same or absent


def _outwards(entries: Sequence[_Entry], center: float) -> Iterator[_Entry]:
    """Yield entries in the order of their distance from `center`."""
    above = bisect_left(entries, center, key=operator.itemgetter(0))
    below = above - 1
    while below >= 0 or above < len(entries):
        if above == len(entries) or (below >= 0 and center - entries[below][0] <= entries[above][0] - center):
            yield entries[below]
            below -= 1
        else:
            yield entries[above]
            above += 1


def _subject(row: PublishedRow) -> tuple[str, str, str]:
    return model_name(row.model).name, device_name(row.device).name, row.figure
