"""What the engine adds to a latency: p50 by our loop against a bare loop around the runtime's own call."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tests.benchmarks.comparison import Comparison, at_most, interleaved, real_models
from tests.benchmarks.subject import Loops

SECONDS = 35.0
# Model, its goal, queries a block, pairs of blocks. A block is short against what else happens on a machine.
QUICK = ("mobilenet_v1_0.25_128_quant.tflite", 1.002, 128, 400)
SLOW = ("coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite", 1.005, 4, 300)


def comparisons() -> Iterator[Comparison]:
    """Yield the comparison for a model of about 0.2 ms and one of about 6 ms."""
    models = real_models()
    for file, limit, queries, pairs in (QUICK, SLOW):
        with closing(Loops(models / file, queries)) as loops:
            paired = interleaved(loops.ours_ms, loops.bare_ms, pairs, SECONDS)
        yield at_most(f"engine p50, {Path(file).stem}, 1 thread", "ms", "bare loop around invoke()", paired, limit)
