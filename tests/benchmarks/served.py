"""A model behind a server, as our runtime asks it, beside tritonclient's own loop: encode, ask and decode on both sides.

The servers are a real MLServer (JSON over HTTP, and gRPC) and a real Triton (these and binary tensors; without it that of the tests, for
these), each in a process of its own, asked in turn. What our runs state, the bare call without encode and decode, stands beside it. Each
query of either side makes its request anew, and uses the same copy of grpc.
"""

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from unittest import mock
from urllib.parse import urlsplit

import numpy as np

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.runtimes import Options, create, served
from tests import requirements
from tests.benchmarks import comparison
from tests.benchmarks.comparison import ROOT, Comparison, LeftOutError, Line, at_most, compared_pairs
from tests.benchmarks.interleaving import Pair, in_turn
from tests.fixtures.real_mlserver import real_mlserver
from tests.fixtures.real_triton import TritonModel, real_triton
from tests.fixtures.servers import free_port

# Blocks so short that a busy machine is as busy in both of a pair.
BLOCK_S, SECONDS, GOAL = 0.015, 10.0, at_most(1.02)
PROGRAM = ROOT / "tests" / "fixtures" / "tritonclient_program.py"
SHAPES = ((1, 4), (1, 3, 64, 64))


def comparisons() -> Iterator[Comparison]:
    """Yield the time of a query in each form, small and large.

    Raises:
        LeftOutError: MLServer is not here, or what one form needs; the others have been measured then.
    """
    if requirements.mlserver_python() is None:
        raise LeftOutError("`make mlserver`, and set EDGEMETER_MLSERVER to its python")
    left_out: dict[str, None] = {}
    for shape in SHAPES:
        rank = (-1, *shape[1:])
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            folder = Path(name)
            ways = stack.enter_context(_binary_server(folder, rank))
            try:
                mlserver = stack.enter_context(real_mlserver(folder, rank))
                ways = [("MLServer", "json", mlserver.url), ("MLServer", "grpc", mlserver.grpc_url), *ways]
            except RuntimeError as error:
                left_out[f"json and grpc of MLServer: {error}"] = None
            for server, form, address in ways:
                try:
                    yield from compared(folder, server, form, address, shape)
                except (UnavailableError, LeftOutError) as error:
                    left_out[f"{form} of {server}: {error}"] = None
    if left_out:
        raise LeftOutError("; ".join(left_out))


def compared(folder: Path, server: str, form: str, address: str, shape: tuple[int, ...]) -> Iterator[Comparison]:
    """Yield the whole of a query, and the bare call, beside tritonclient's whole.

    Raises:
        UnavailableError: our library is not here, or no server answers.
        LeftOutError: tritonclient does not run.
    """
    file = folder / f"{form}.server"
    file.write_text(f'url = "{address}"\nprotocol = "oip"\ntransport = "{form}"\nmodel = "double"\n')
    values = np.random.default_rng(0).random(shape, np.float32)
    transport = "grpc" if form == "grpc" else "http"
    command = [requirements.mlserver_python(), PROGRAM, transport, urlsplit(address).netloc, form, ",".join(map(str, shape))]
    # As tritonclient, which keeps no request.
    with closing(create("served")) as runtime, mock.patch.object(served, "_READY_BYTES", 0), ExitStack() as stack:
        runtime.load(file, Options())
        variables = _with_our_grpc(folder) if form == "grpc" else os.environ
        peer = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables))
        stack.callback(peer.kill)
        assert peer.stdin is not None
        assert peer.stdout is not None
        if '"is_right": true' not in peer.stdout.readline():
            raise LeftOutError("tritonclient does not run")
        queries, call_ms = 3, 0.0

        def our_ms() -> float:
            nonlocal call_ms
            query_s, call_s = [], []
            for _ in range(queries):
                begun = time.perf_counter()
                call = runtime.bind([values])
                bound = time.perf_counter()
                call()
                answered = time.perf_counter()
                outputs = runtime.outputs()
                query_s.append(time.perf_counter() - begun)
                call_s.append(answered - bound)
                assert outputs[0].shape == shape
            call_ms = statistics.median(call_s) * 1e3
            return statistics.median(query_s) * 1e3

        def peer_ms() -> float:
            assert peer.stdin is not None
            assert peer.stdout is not None
            peer.stdin.write(f"{queries}\n")
            peer.stdin.flush()
            return float(peer.stdout.readline())

        our_ms()
        queries = max(round(BLOCK_S * 1e3 / our_ms()), 1)
        queries_in_turn, calls = in_turn(our_ms, peer_ms), []

        def pair() -> Pair:
            times_ms = queries_in_turn()
            calls.append((call_ms, times_ms[1]))
            return times_ms

        name = f"{'x'.join(map(str, shape))} float32 by {form} of {server}"
        yield comparison.compared(Line(name, "ms", "tritonclient", GOAL), pair, SECONDS)
        yield compared_pairs(Line(f"{name}, the bare call", "ms", "tritonclient", GOAL), calls)


def _with_our_grpc(folder: Path) -> Mapping[str, str]:
    """Return variables by which tritonclient loads our copy of grpc: its own is that of MLServer, whose pages are in the caches already."""
    package = importlib.util.find_spec("grpc")
    assert package is not None
    assert package.origin is not None
    library = folder / "libraries" / "grpc"
    if not library.exists():
        library.parent.mkdir()
        library.symlink_to(Path(package.origin).parent)
    return {**os.environ, "PYTHONPATH": str(library.parent)}


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
