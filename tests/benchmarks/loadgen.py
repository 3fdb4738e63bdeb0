"""p50 by our loop against MLPerf LoadGen's, SingleStream, around the same call of the same model in the same process."""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from tests.benchmarks.comparison import Comparison, LeftOutError, at_most, interleaved, real_models
from tests.benchmarks.engine import QUICK
from tests.benchmarks.subject import Loops

QUERIES = 512
PAIRS = 80
SECONDS = 30.0


def comparisons() -> Iterator[Comparison]:
    """Yield the comparison for a model of about 0.2 ms; none where LoadGen is not installed."""
    if find_spec("mlperf_loadgen") is None:
        raise LeftOutError("MLPerf LoadGen is not installed (extra `bench`, x86_64)")
    models = real_models()
    with closing(Loops(models / QUICK[0], QUERIES)) as loops:
        paired = interleaved(loops.ours_ms, lambda: _loadgen_ms(loops), PAIRS, SECONDS)
    yield at_most(f"engine p50, {Path(QUICK[0]).stem}, 1 thread", "ms", "MLPerf LoadGen SingleStream, same SUT", paired, 1.0)


def _loadgen_ms(loops: Loops) -> float:
    from tests.fixtures import loadgen  # noqa: PLC0415 - only where LoadGen is

    with tempfile.TemporaryDirectory() as folder:
        summary = loadgen.single_stream(loops.invoke, Path(folder), queries=QUERIES, trace=False)
    return float(summary.figures["result_50.00_percentile_latency_ns"]) / 1e6
