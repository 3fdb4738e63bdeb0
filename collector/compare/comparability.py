"""What may be compared with what: the table behind `compare`, made from the same list that it pairs by."""

from collections.abc import Sequence

import msgspec

from edgemeter.collector.compare.pairing import LIKENESSES, PRECISION_CLASSES

Row = dict[str, str]

_WHY = {
    "provenance": "what was played back is true of the recording only",
    "model": "another network does other work",
    "task": "a classification is no detection",
    "scenario": "one query at a time and batches are two questions",
    "samples a query": "a query of eight takes longer than one of one; only in multi_stream",
    "rate": "waiting times are those of their rate; only in an open loop",
    "data": "accuracy and latency are those of these images (their hash)",
    "input size": "more pixels take longer; the layout makes no difference",
}


def rules() -> list[Row]:
    """Return what is asked of two cases, in the order in which it is asked, and what happens where it does not hold."""
    classes = "; ".join(f"{name}: {', '.join(members)}" for name, members in PRECISION_CLASSES.items())
    left_out = "left out, with the nearest comparable case"
    equal = [_row(one.name, "equal, where both are known", left_out, _WHY[one.name]) for one in LIKENESSES]
    return [
        _row("verdict", "valid or suspect", "an invalid run is left out; suspect ones are marked", "its own rules say not to believe it"),
        *equal,
        _row("accuracy gate", "enough of the most precise reference's accuracy", "no ratio and no rank", "fast and wrong is not fast"),
        _row("class of precision", "equal", "a ratio, marked, and no verdict", classes),
        _row("energy's scope and provenance", "equal", "no energy ratio", "a board's input and a wall socket are never divided"),
        _row("metric, images and data of the accuracy", "equal", "no difference", "AP minus top-1 is no number"),
        _row("runtime, backend, threads, batch", "preferred equal", "marked", "each machine takes what suits it"),
        _row("runs", "three on each side", "a ratio without an interval and without a verdict", "from fewer the spread is not known"),
    ]


def kinds() -> list[Row]:
    """Return which kinds of figures stand beside which."""
    return [
        _kind("measured", "measured", "yes", "by the same agent; a server takes part in the role `reference`"),
        _kind("replayed", "replayed", "marked", "played back from a recording"),
        _kind("estimated", "nothing", "no", "shown in words, as a reason and not as a figure"),
        _kind("imported (MLPerf)", "compatible MLPerf results", "no", "shown apart with the footnote that MLCommons requires"),
        _kind("published", "nothing", "no", "shown with source, version, date and conditions"),
    ]


def as_json() -> str:
    """Return both tables as JSON."""
    return msgspec.json.format(msgspec.json.encode({"comparing": rules(), "kinds": kinds()}), indent=2).decode()


def markdown() -> str:
    """Return both tables as Markdown."""
    return f"{_markdown(rules())}\n{_markdown(kinds())}"


def _row(what: str, asked: str, otherwise: str, why: str) -> Row:
    return {"what": what, "asked": asked, "otherwise": otherwise, "why": why}


def _kind(kind: str, beside: str, ranks: str, note: str) -> Row:
    return {"kind": kind, "stands beside": beside, "ranks": ranks, "note": note}


def _markdown(rows: Sequence[Row]) -> str:
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *(list(row.values()) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
