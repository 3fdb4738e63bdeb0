"""The picture of the overhead of measuring.

It shows the published figures of `make bench`, each as a share of its goal.
"""

from typing import Any

from tools.benchmarks import history
from tools.benchmarks.harness import digits
from tools.pictures.canvas import Canvas, Scale

ROW_PX, TOP_PX = 34, 64
# Words of a benchmark's name that only its makers know, and what the picture has instead.
SHORTER = {"coco_ssd_mobilenet_v1_1.0_quant_2018_06_29": "ssd_mobilenet_v1", "`": ""}


def ratios() -> str:
    """Return the picture: the newest run in colour, earlier ones of its benchmarks pale."""
    rows = history.published()
    newest = {row["benchmark"]: row for row in rows}
    x = Scale(0.25, 4.0, 660, 860, is_log=True)
    bottom = TOP_PX + ROW_PX * len(newest)
    canvas = Canvas(880, bottom + 48)
    days = sorted({row["day"] for row in newest.values()})
    canvas.text(" ".join(["Figures as a share of their goals,", *days[-1:]]), (20, 26), "title")
    canvas.axis(
        x, bottom, [(tick, f"{tick:g}") for tick in (0.25, 0.5, 1.0, 2.0, 4.0)], TOP_PX - 20
    )
    canvas.line((x(1.0), bottom), (x(1.0), TOP_PX - 20), kind="truth")
    for number, (benchmark, row) in enumerate(newest.items()):
        y = TOP_PX + ROW_PX * number
        name, _, peer = benchmark.partition(" / ")
        for words, shorter_words in SHORTER.items():
            name = name.replace(words, shorter_words)
        canvas.text(name, (20, y), "small")
        canvas.text(f"/ {peer}" if peer else "", (20, y + 14), "small soft")
        canvas.text(_value(row), (450, y), "small")
        canvas.text(_goal(row), (450, y + 14), "small soft")
        for earlier in rows:
            if earlier["benchmark"] == benchmark and earlier is not row:
                canvas.dot((x(_share(row, earlier["value"])), y), "idle", 4)
        if row["low"] is not None:
            canvas.line(
                (x(_share(row, row["low"])), y), (x(_share(row, row["high"])), y), kind="a thick"
            )
        canvas.dot((x(_share(row, row["value"])), y), "a", 4)
    canvas.text(
        "left of 1: better than the goal; line: 95% interval",
        (860, bottom + 36),
        "small soft",
        "end",
    )
    return canvas.svg()


def _share(row: dict[str, Any], value: float) -> float:
    share: float = value / row["at_most"] if row["at_most"] else row["at_least"] / value
    return share


def _value(row: dict[str, Any]) -> str:
    interval = "" if row["low"] is None else f" ({digits(row['low'])} to {digits(row['high'])})"
    return f"{digits(row['value'])}{interval} {row['unit']}".strip()


def _goal(row: dict[str, Any]) -> str:
    goal = f"at most {row['at_most']:g}" if row["at_most"] else f"at least {row['at_least']:g}"
    return f"goal: {goal} {row['unit']}".strip()
