"""A model behind a server, as our runtime asks it, beside tritonclient's own loop: encode, ask and decode on both sides.

The servers are a real MLServer (JSON over HTTP, and gRPC) and, for binary tensors, which it refuses, that of the tests; each in a process
of its own, asked in turn. What our runs state, the bare call without encode and decode, stands beside it without a goal.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from edgemeter.agent.runtimes import Options, create
from tests import requirements
from tests.benchmarks.comparison import ROOT, Comparison, LeftOutError, at_most, interleaved, unjudged
from tests.fixtures.real_mlserver import real_mlserver
from tests.fixtures.servers import free_port

PAIRS, QUERIES, LIMIT = 7, 300, 1.02
PROGRAM = ROOT / "tests" / "fixtures" / "tritonclient_program.py"
SHAPES = ((1, 4), (1, 3, 64, 64))


def comparisons() -> Iterator[Comparison]:
    """Yield the time of a query in each form, small and large.

    Raises:
        LeftOutError: MLServer is not here.
    """
    if requirements.mlserver_python() is None:
        raise LeftOutError("`make mlserver`, and set EDGEMETER_MLSERVER to its python")
    for shape in SHAPES:
        rank = (-1, *shape[1:])
        with tempfile.TemporaryDirectory() as folder, real_mlserver(Path(folder), rank) as mlserver, _test_server(rank) as url:
            for form, address in (("json", mlserver.url), ("grpc", mlserver.grpc_url), ("binary", url)):
                yield from _compared(Path(folder), form, address, shape)


def _compared(folder: Path, form: str, address: str, shape: tuple[int, ...]) -> Iterator[Comparison]:
    file = folder / f"{form}.server"
    file.write_text(f'url = "{address}"\nprotocol = "oip"\ntransport = "{form}"\nmodel = "double"\n')
    values = np.random.default_rng(0).random(shape, np.float32)
    transport = "grpc" if form == "grpc" else "http"
    command = [requirements.mlserver_python(), PROGRAM, transport, urlsplit(address).netloc, form, ",".join(map(str, shape))]
    with (
        closing(create("served")) as runtime,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer,
    ):
        assert peer.stdin is not None
        assert peer.stdout is not None
        assert '"is_right": true' in peer.stdout.readline()
        runtime.load(file, Options())

        def ours(*, is_bare: bool = False) -> float:
            took = []
            for _ in range(QUERIES):
                # A copy each, as a request that was made before is not made again.
                array, begun = values.copy(), time.perf_counter()
                call = runtime.bind([array])
                begun = time.perf_counter() if is_bare else begun
                call()
                ended = time.perf_counter()
                outputs = runtime.outputs()
                took.append((ended if is_bare else time.perf_counter()) - begun)
                assert outputs[0].shape == shape
            return statistics.median(took) * 1e3

        def theirs() -> float:
            assert peer.stdin is not None
            assert peer.stdout is not None
            peer.stdin.write(f"{QUERIES}\n")
            peer.stdin.flush()
            return float(peer.stdout.readline())

        name = f"{'x'.join(map(str, shape))} float32 by {form}"
        yield at_most(name, "ms", "tritonclient", interleaved(ours, theirs, PAIRS), LIMIT)
        yield unjudged(f"{name}, the bare call", "ms", "tritonclient", interleaved(lambda: ours(is_bare=True), theirs, PAIRS))
        peer.kill()


@contextmanager
def _test_server(shape: tuple[int, ...]) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "tests.fixtures.oip_server", str(port), ",".join(map(str, shape))]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
