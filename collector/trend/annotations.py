"""Annotations: what people know of a day. One that begins a new level ends the comparison with what was before; history stays."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from edgemeter.collector.show.figures import printable
from edgemeter.collector.trend.finding import iso
from edgemeter.collector.trend.run_figures import SeriesKey
from edgemeter.collector.trend.watch_file import WatchFile, beside


@dataclass(frozen=True, slots=True)
class Annotation:
    """What is known of `day` (since 1970): a remark, or the beginning of a new level. What is None may be anything."""

    day: int
    text: str
    begins_level: bool = True
    fleet: str | None = None
    device: str | None = None
    model: str | None = None
    metric: str | None = None
    author: str | None = None
    number: int = 0

    def is_about(self, key: SeriesKey, metric: str) -> bool:
        """Return whether it is about this series; of a board type only what is about no single device."""
        asked = ((self.fleet, key.fleet), (self.device, key.device), (self.model, key.model), (self.metric, metric))
        return all(own is None or own == other for own, other in asked)


def add(file: WatchFile, annotation: Annotation) -> int:
    """Keep an annotation; return its number."""
    values = (
        annotation.day, annotation.text, annotation.begins_level, annotation.fleet, annotation.device, annotation.model,
        annotation.metric, annotation.author, time.time_ns(),
    )  # fmt: skip
    insert = """INSERT INTO annotations (day, text, begins_level, fleet, device, model, metric, author, made_ns)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
    with file.writing() as connection:
        return int(connection.execute(insert, values).lastrowid or 0)


def remove(file: WatchFile, number: int) -> bool:
    """Take an annotation back; return whether it was there."""
    with file.writing() as connection:
        return connection.execute("DELETE FROM annotations WHERE number = ?", (number,)).rowcount > 0


def read(file: WatchFile) -> list[Annotation]:
    """Return every annotation by day."""
    query = "SELECT day, text, begins_level, fleet, device, model, metric, author, number FROM annotations ORDER BY day, number"
    with file.reading() as connection:
        rows = connection.execute(query).fetchall()
    return [Annotation(row[0], row[1], bool(row[2]), *row[3:]) for row in rows]


def cuts(annotations: Sequence[Annotation], key: SeriesKey, metric: str) -> dict[int, str]:
    """Return the days on which a new level of the series was declared, with the texts."""
    found: dict[int, str] = {}
    for one in annotations:
        if one.begins_level and one.is_about(key, metric):
            found[one.day] = f"{found[one.day]}; {one.text}" if one.day in found else one.text
    return found


def of_store(store: str) -> list[Annotation]:
    """Return the annotations beside a store, none where nobody made any."""
    path = beside(store)
    if "://" in store or not path.exists():
        return []
    with WatchFile(path) as file:
        return read(file)


def today() -> int:
    """Return today (UTC) in days since 1970."""
    return int(time.time() // 86_400)


def listed(annotations: Sequence[Annotation], *, as_json: bool) -> str:
    """Return the annotations as lines, or as JSON."""
    if as_json:
        rows = [asdict(one) | {"day": iso(one.day)} for one in annotations]
        return json.dumps({"annotations": rows}, indent=2)
    return "\n".join(
        printable(f"{one.number}  {iso(one.day)}  {one.text}  ({'new level' if one.begins_level else 'remark'}; {_about(one)})")
        for one in annotations
    )


def _about(one: Annotation) -> str:
    return ", ".join(value for value in (one.fleet, one.device, one.model, one.metric) if value is not None) or "everything"
