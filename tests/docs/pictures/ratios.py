"""The picture of what measuring costs: the published ratios of `make bench` to a bare loop or another tool."""

from tests.benchmarks import history
from tests.docs.pictures.canvas import Canvas, Scale

# The benchmarks that time a query, by how their names begin.
OF_QUERIES = ("edgemeter run", "engine", "runtime python", "decode rate", "prefill rate")
ROW_PX, TOP_PX = 24, 60
# Words of a benchmark's name that only its makers know, and what the picture has instead.
SHORTER = {
    "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29": "ssd_mobilenet_v1", ", same SUT": "", "'s pp512": "", "'s tg128": "", "'s tg -d": "",
    "engine p50": "p50 within a run", "runtime python p50, product in numpy": "p50 of a function in Python, product in numpy",
}  # fmt: skip


def ratios() -> str:
    """Return the picture; of each benchmark it shows the newest ratio."""
    latest = {row["benchmark"]: row for row in history.published() if row["benchmark"].startswith(OF_QUERIES)}
    x = Scale(0.7, 1.4, 640, 860, is_log=True)
    bottom = TOP_PX + ROW_PX * len(latest)
    canvas = Canvas(880, bottom + 48)
    canvas.text(f"Edgemeter's figure / the other program's, {max(row['day'] for row in latest.values())}", (20, 26), "title")
    canvas.axis(x, bottom, [(tick, f"{tick:g}") for tick in (0.8, 0.9, 1.0, 1.1, 1.25)], TOP_PX - 16)
    for number, (name, row) in enumerate(latest.items()):
        y = TOP_PX + ROW_PX * number
        canvas.text(_legible(name), (20, y + 4), "small")
        canvas.line((x(row["low"]), y), (x(row["high"]), y), kind="a thick")
        canvas.dot((x(row["ratio"]), y), "a", 4)
    canvas.text("1: both give the same; line: 95% interval", (720, bottom + 36), "small soft", "middle")
    return canvas.svg()


def _legible(benchmark: str) -> str:
    """Return the name of a benchmark in words of its readers."""
    for words, shorter_words in SHORTER.items():
        benchmark = benchmark.replace(words, shorter_words)
    return benchmark
