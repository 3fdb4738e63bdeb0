"""Facts about the example in CONTRIBUTING.md: it is a reader that reads."""

import re
from pathlib import Path

CONTRIBUTING = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"
DEFAULTS = {"source": "A bench", "version": "1", "date": "2026-11-26", "address": "https://example.org/bench", "device": "Board"}


def test_the_example_of_a_reader_reads_a_figure():
    """As a contributor copies it."""
    (code,) = re.findall(r"^```python\n(.*?)^```", CONTRIBUTING.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names = {}
    exec(compile(code, CONTRIBUTING, "exec"), names)  # noqa: S102
    reader = names["MyReader"]()
    assert reader.recognises("results.mybench", "")
    table = reader.read("yolov8n: 31 fps\n", DEFAULTS)
    assert [(row.model, row.figure, row.value) for row in table.rows] == [("yolov8n", "throughput", 31.0)]
