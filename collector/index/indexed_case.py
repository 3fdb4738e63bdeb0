"""A case as a list of thousands needs it: one row of counts and of what is shown of all, over all its runs or those of a period."""

from collections.abc import Sequence
from sys import intern
from typing import Any, NamedTuple

import msgspec

from edgemeter.agent.contract.case_identity import CaseKey

_decode_fields = msgspec.json.Decoder(dict[str, Any]).decode


class IndexedCase(NamedTuple):
    """One case of the index: its number, its identity, the board that it last ran on, and the number of its runs.

    `throttled` are of those that report it (`throttling_known`). Of the figures, invalid runs have no part; `p50_ms` is the median of the
    level that the board has now, or of all days where that was asked for.
    """

    number: int
    key: CaseKey
    board: str
    p50_ms: float | None
    runs: int
    usable: int
    suspect: int
    throttled: int
    throttling_known: int
    first_ns: int
    newest_ns: int
    hottest_c: float | None


# SQL over the runs of a case in the table `measured`; those since `since_ns` are of the level that the board has now.
COUNTED = {
    "p50_ms": "median(measured.p50_ms) FILTER (WHERE is_usable AND started_at_ns >= since_ns)",
    "runs": "count(*)",
    "usable": "count(*) FILTER (WHERE is_usable)",
    "suspect": "count(*) FILTER (WHERE is_usable AND verdict = 'suspect')",
    "throttled": "count(*) FILTER (WHERE throttled_ratio)",
    "throttling_known": "count(throttled_ratio)",
    "first_ns": "min(started_at_ns)",
    "newest_ns": "max(started_at_ns)",
    "hottest_c": "max(temperature_c) FILTER (WHERE is_usable)",
}
# Counts the runs of the case of a number, and takes the board of the newest.
COUNT_CASE = f"""UPDATE cases SET ({", ".join(COUNTED)}, p50_of_all_ms) = (
    SELECT {", ".join(COUNTED.values())}, median(measured.p50_ms) FILTER (WHERE is_usable)
    FROM measured WHERE measured.case_number = ?1
), board = (
    SELECT json_extract(CAST(key AS TEXT), '$.board') FROM measured JOIN series USING (series)
    WHERE measured.case_number = ?1 ORDER BY started_at_ns DESC, row DESC LIMIT 1
) WHERE case_number = ?1"""  # noqa: S608 - our own names


def decode_case(row: Sequence[Any]) -> IndexedCase:
    """Return the case of a row of its fields, the key as JSON."""
    number, key, *others = row
    # The same words in ten thousand keys are kept once.
    fields: dict[str, Any] = {name: intern(value) if isinstance(value, str) else value for name, value in _decode_fields(key).items()}
    return IndexedCase(number, CaseKey(**fields), *others)
