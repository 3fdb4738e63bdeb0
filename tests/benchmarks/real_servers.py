"""TTFT and TPOT of real servers as our generator stamps them, beside the moments at which a proxy passed the same bytes on.

    python -m tests.benchmarks.real_servers vllm=http://127.0.0.1:8000 lite='http://127.0.0.1:9379;endpoint=chat;model=tiny'

Any server that runs: nothing is started here. What comes after an address are further keys of the `.server` file. The proxy is a process
of its own, shares no code with the generator and knows only lines that begin with `data:` or `{` and hold a text. It costs both of us the
same; what remains of a difference is the way from its socket to our stamp.
"""

import base64
import json
import queue
import re
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from edgemeter.agent import generators
from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.engine.generation_queries import GenerationSubject
from edgemeter.agent.engine.prompts.synthetic import SyntheticPrompts
from edgemeter.agent.engine.request_loops import TimedRequest
from edgemeter.agent.generators import Limits
from edgemeter.agent.runtimes import Options

PROMPT_TOKENS, OUTPUT_TOKENS, QUERIES, WARM_UP = 64, 32, 20, 3
PROXY = Path(__file__).with_name("stamping_proxy.py")
# A line of an answer that holds a text which is not empty.
_TEXT = re.compile(rb'^(?:data:\s*)?\{.*"(?:content|text|response|reasoning_content|reasoning)":\s*"(?!")')
_QUIET_S = 0.3
Passed = tuple[int, str, int, bytes]


@contextmanager
def proxied(url: str) -> Iterator[tuple[str, "queue.Queue[Passed]"]]:
    """Yield the address of a proxy before the server at `url`, and the pieces that it passes on."""
    parts = urlsplit(url)
    command = [sys.executable, str(PROXY), parts.hostname or "", str(parts.port)]
    pieces: queue.Queue[Passed] = queue.Queue()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                number, way, moment_ns, content = json.loads(line)
                pieces.put((number, way, moment_ns, base64.b64decode(content)))

        threading.Thread(target=read, daemon=True).start()
        yield f"{parts.scheme}://127.0.0.1:{port}{parts.path}", pieces
        process.kill()


def log_of(pieces: "queue.Queue[Passed]") -> tuple[float, list[float]]:
    """Return, of the last request that was passed on, TTFT in ms and the moments of its lines with text after the first, ms."""
    begun_ns, moments_ns, buffer = 0, [], b""
    while True:
        try:
            _, way, moment_ns, content = pieces.get(timeout=_QUIET_S)
        except queue.Empty:
            break
        if way == "up" and content.startswith(b"POST "):
            begun_ns, moments_ns, buffer = moment_ns, [], b""
        elif way == "down":
            *lines, buffer = (buffer + content).split(b"\n")
            moments_ns += [moment_ns for line in lines if _TEXT.match(line)]
    if not moments_ns:
        return float("nan"), []
    return (moments_ns[0] - begun_ns) / 1e6, [(moment_ns - moments_ns[0]) / 1e6 for moment_ns in moments_ns]


def measured(name: str, address: str) -> dict[str, Any]:
    """Return our figures of one server beside those of the log, or why there are none."""
    url, *keys = address.split(";")
    with proxied(url) as (proxy_url, pieces), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.server"
        settings = [f'url = "{proxy_url}"', *(f'{key} = "{value}"' for key, _, value in (entry.partition("=") for entry in keys))]
        path.write_text("\n".join(settings) + "\n")
        generator = generators.create("server")
        try:
            loaded = generator.load(path, Options(), PROMPT_TOKENS + OUTPUT_TOKENS)
            subject = GenerationSubject(generator, loaded, SyntheticPrompts(loaded, PROMPT_TOKENS, 0), Limits(OUTPUT_TOKENS))
            for _ in range(WARM_UP):
                subject.warm()
            log_of(pieces)
            pairs = [(subject.warm(), log_of(pieces)) for _ in range(QUERIES)]
        except EdgemeterError as error:
            return {"server": name, "error": str(error)}
        finally:
            generator.close()
    return {"server": name, "package": loaded.package, "version": loaded.version} | _figures(pairs)


def _figures(pairs: Sequence[tuple[TimedRequest, tuple[float, list[float]]]]) -> dict[str, Any]:
    tokens = [len(query.token_ns) for query, _ in pairs]
    edge = [(query.token_ns[0] / 1e6, (query.token_ns[-1] - query.token_ns[0]) / 1e6) for query, _ in pairs]
    logged = [(ttft_ms, moments[-1] if moments else float("nan")) for _, (ttft_ms, moments) in pairs]
    steps = [max(count - 1, 1) for count in tokens]
    return {
        "tokens": statistics.median(tokens),
        "lines": statistics.median(len(moments) for _, (_, moments) in pairs),
        "ttft_ms": statistics.median(ttft for ttft, _ in edge),
        "log_ttft_ms": statistics.median(ttft for ttft, _ in logged),
        "ttft_later_us": statistics.median((mine[0] - log[0]) * 1e3 for mine, log in zip(edge, logged, strict=True)),
        "tpot_ms": statistics.median(spent / step for (_, spent), step in zip(edge, steps, strict=True)),
        "log_tpot_ms": statistics.median(spent / step for (_, spent), step in zip(logged, steps, strict=True)),
        "tpot_later_us": statistics.median((mine[1] - log[1]) / step * 1e3 for mine, log, step in zip(edge, logged, steps, strict=True)),
    }


def main(arguments: Sequence[str]) -> None:
    """Measure the servers named, and print a table; with --json the rows."""
    rows = [measured(*entry.split("=", 1)) for entry in arguments if entry != "--json"]
    if "--json" in arguments:
        print(json.dumps(rows, indent=2))
        return
    columns = dict.fromkeys(key for row in rows for key in row)
    table = Table(*columns)
    for row in rows:
        table.add_row(*(f"{value:.4g}" if isinstance(value := row.get(key, ""), float) else str(value) for key in columns))
    Console(width=220).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
