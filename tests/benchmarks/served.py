"""A model behind a server, as our runtime asks it, beside tritonclient's own loop: encode, ask and decode on both sides.

The servers are a real MLServer (JSON over HTTP, and gRPC) and a real Triton (these and binary tensors; without it that of the tests, for
these), each in a process of its own, asked in turn. What our runs state, the bare call without encode and decode, stands beside it.
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
from tests.benchmarks.comparison import ROOT, Comparison, LeftOutError, at_most, interleaved
from tests.fixtures.real_mlserver import real_mlserver
from tests.fixtures.real_triton import TritonModel, real_triton
from tests.fixtures.servers import free_port

PAIRS, QUERIES, LIMIT = 7, 100, 1.02
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
        with (
            tempfile.TemporaryDirectory() as folder,
            real_mlserver(Path(folder), rank) as mlserver,
            _binary_server(Path(folder), rank) as peer,
        ):
            mlserver_forms = [("MLServer", "json", mlserver.url), ("MLServer", "grpc", mlserver.grpc_url)]
            for server, form, address in mlserver_forms + peer:
                yield from _compared(Path(folder), server, form, address, shape)


def _compared(folder: Path, server: str, form: str, address: str, shape: tuple[int, ...]) -> Iterator[Comparison]:
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

        def our_ms(*, is_bare: bool = False) -> float:
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

        def peer_ms() -> float:
            assert peer.stdin is not None
            assert peer.stdout is not None
            peer.stdin.write(f"{QUERIES}\n")
            peer.stdin.flush()
            return float(peer.stdout.readline())

        name = f"{'x'.join(map(str, shape))} float32 by {form} of {server}"
        yield at_most(name, "ms", "tritonclient", interleaved(our_ms, peer_ms, PAIRS), LIMIT)
        yield at_most(f"{name}, the bare call", "ms", "tritonclient", interleaved(lambda: our_ms(is_bare=True), peer_ms, PAIRS), LIMIT)
        peer.kill()


@contextmanager
def _binary_server(folder: Path, shape: tuple[int, ...]) -> Iterator[list[tuple[str, str, str]]]:
    """Yield the name, form and address of each way to ask a server that reads binary tensors."""
    if requirements.triton_python():
        double = TritonModel(inputs=(("x", "FP32", shape),), outputs=(("y", "FP32", shape),))
        with real_triton(folder / "triton", {"double": double}) as triton:
            yield [("Triton", form, triton.address(form)) for form in ("json", "binary", "grpc")]
    else:
        with _test_server(shape) as url:
            yield [("the test server", "binary", url)]


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
