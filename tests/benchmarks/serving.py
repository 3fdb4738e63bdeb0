"""Users of a served language model as we time them, beside aiperf and the server's own log: the same server in the same minutes.

aiperf is a program of its own, in an environment of its own: `EDGEMETER_AIPERF` names it (`pip install aiperf==0.13.0`). Both send prompts
of the same kind to OpenAI's completions, and in an open loop by the same schedule. Two servers: a made one with known times and a log, and
llama.cpp's with four places and an untrained model of 20 million weights. `python -m tests.benchmarks serving` prints the ratios; the pairs
stand in the results. The server has a core of its own, as one on another machine has: aiperf is a dozen processes. Requests take
0.75 s: of shorter ones, what a client does between an answer and the next request is a large part of its throughput.
"""

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.engine.prompts.synthetic import SyntheticPrompts
from edgemeter.agent.engine.scenarios import poisson
from edgemeter.agent.engine.scenarios.timing import TimingPlan
from edgemeter.agent.generators import LoadedGenerator
from tests.benchmarks.comparison import ROOT, Comparison, LeftOutError, Line, compared_pairs, within
from tests.fixtures.language_server import llama_cpp_server
from tests.fixtures.paced_server import PacedServer, paced_server

AIPERF = "EDGEMETER_AIPERF"
PROMPT_TOKENS, OUTPUT_TOKENS, ROUNDS = 64, 64, 4
SHARE = 0.02
TURN_AROUND = "from an answer to the next request"
LIMIT_S = 300
FIGURES = {
    "TTFT p50": "ms", "TPOT p50": "ms", "request p50": "ms", "requests": "per s", "output tokens in all": "per s",
    "output tokens a user": "per s",
}  # fmt: skip
CORES = sorted(os.sched_getaffinity(0))
_seeds = count(1)


@dataclass(frozen=True)
class Offered:
    """A load: users of a closed loop, or a rate; and how many requests."""

    name: str
    requests: int
    users: int | None = None
    rate_per_s: float | None = None
    seed: int = 0

    def offsets_ms(self) -> list[float]:
        """Return when the requests of an open loop are due, as our scenario draws them."""
        return (poisson.schedule_ns(TimingPlan(self.requests, 0.0, 0, self.seed, rate_per_s=self.rate_per_s)) / 1e6).tolist()


@dataclass(frozen=True)
class Bench:
    """A server: the file that describes it, its address and model, a folder for what is written, and its log, if it has one."""

    file: Path
    url: str
    model: str
    folder: Path
    log: Callable[[], list[dict[str, Any]]] | None = None

    def edgemeter(self, load: Offered) -> tuple[dict[str, float], dict[str, Any]]:
        """Return our figures of a run of `edgemeter run`, in a process of its own as every run, and its record."""
        keys = [f"concurrency = {load.users}"] if load.users else ['scenario = "poisson"', f"rate_per_s = {load.rate_per_s}"]
        lengths = f"prompt_tokens = {PROMPT_TOKENS}\noutput_tokens = {OUTPUT_TOKENS}"
        run = f'mode = "rapid"\nrepeats = 1\nseconds = 0\nqueries = {load.requests}\nseed = {load.seed}'
        suite = self.folder / "bench.toml"
        suite.write_text("\n".join(['name = "bench"', "[[case]]", f'model = "{self.file}"', lengths, run, *keys]))
        command = [sys.executable, "-m", "edgemeter.agent.cli", "run", str(suite), "--power", "none", "--no-save", "--quiet", "--json"]
        record = json.loads(_output(command, cwd=ROOT, env=os.environ | {"EDGEMETER_HOME": str(self.folder)}))["runs"][0]
        generation = record["generation"]
        figures = (
            generation["ttft"]["p50_ms"], generation["tpot"]["p50_ms"], record["latency"]["p50_ms"], record["throughput_per_s"],
            generation["output_tokens_per_s"], generation["user_tokens_per_s"],
        )  # fmt: skip
        return dict(zip(FIGURES, figures, strict=True)) | self._turn_around(load), record

    def aiperf(self, load: Offered) -> dict[str, float]:
        """Return the figures of `aiperf profile`."""
        artifacts = self.folder / "aiperf"
        shutil.rmtree(artifacts, ignore_errors=True)
        due = [] if load.users else load.offsets_ms()
        lines = [
            {"text": text, "output_length": OUTPUT_TOKENS} | ({"timestamp": due[index]} if due else {})
            for index, text in enumerate(prompts(load.requests))
        ]
        (self.folder / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        how = ["--concurrency", str(load.users), "--request-count", str(load.requests)] if load.users else ["--fixed-schedule"]
        command = [
            os.environ[AIPERF], "profile", "-m", self.model, "--url", self.url, "--endpoint-type", "completions", "--streaming", *how,
            "--input-file", str(self.folder / "prompts.jsonl"), "--custom-dataset-type", "single_turn", "--tokenizer", str(self.folder),
            "--use-server-token-count", "--ui", "none", "--artifact-dir", str(artifacts),
            "--extra-inputs", f"max_tokens:{OUTPUT_TOKENS}", "--extra-inputs", "temperature:0",
        ]  # fmt: skip
        _output(command, cwd=self.folder, env=dict(os.environ))
        exported = json.loads((artifacts / "profile_export_aiperf.json").read_text())
        figures = (
            exported["time_to_first_token"]["p50"], exported["inter_token_latency"]["p50"], exported["request_latency"]["p50"],
            exported["request_throughput"]["avg"], exported["output_token_throughput"]["avg"],
            exported["output_token_throughput_per_user"]["avg"],
        )  # fmt: skip
        return dict(zip(FIGURES, figures, strict=True)) | self._turn_around(load)

    def _turn_around(self, load: Offered) -> dict[str, float]:
        """Return how long users take from an answer to the next request, by the server's log of the last requests, ms."""
        if self.log is None or load.users is None:
            return {}
        last: dict[int, int] = {}
        between_ms: list[float] = []
        for entry in self.log()[-load.requests :]:
            if entry["connection"] in last:
                between_ms.append((entry["came_ns"] - last[entry["connection"]]) / 1e6)
            last[entry["connection"]] = entry["token_ns"][-1]
        return {TURN_AROUND: statistics.median(between_ms)}


def prompts(requests: int) -> list[str]:
    """Return texts as our own requests send, of another seed."""
    loaded = LoadedGenerator("text", "1", "http", 0, 0, 4096, np.empty(0, np.int32))
    synthetic = SyntheticPrompts(loaded, PROMPT_TOKENS, 1_000_000 + next(_seeds))
    return [str(synthetic.of(number)) for number in range(requests)]


@contextmanager
def _on(core: int) -> Iterator[None]:
    """Start what is started meanwhile on this core, 0 (the server's) or 1 (the clients'), where there are two."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CORES[core % len(CORES)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _output(command: Sequence[str], **options: Any) -> str:
    with _on(1):
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S, **options)
    if ended.returncode:
        raise LeftOutError(f"{Path(command[0]).name} failed: {(ended.stderr or ended.stdout)[-500:]}")
    return ended.stdout


def loads(rate_per_s: float) -> list[Offered]:
    """Return the loads of both servers."""
    closed = [Offered(f"{users} user{'s' * (users > 1)}", 12 + 12 * users, users=users) for users in (1, 2, 4)]
    return [*closed, Offered(f"Poisson, {rate_per_s:g} a second", 48, rate_per_s=rate_per_s)]


def comparisons() -> Iterator[Comparison]:
    """Yield the comparisons; none without aiperf."""
    if not Path(os.environ.get(AIPERF, "")).is_file():
        raise LeftOutError(f"{AIPERF} names no aiperf: pip install aiperf==0.13.0 in an environment of its own")
    with tempfile.TemporaryDirectory() as name, _on(0):
        folder = Path(name)
        _write_tokenizer(folder)
        with paced_server(folder, places=4, prefill_ms=100, step_ms=10) as server:
            bench = Bench(server.file, server.url, "paced", folder, server.requests)
            for load in loads(3.0):
                yield from _beside_aiperf(bench, load, "made server")
        (folder / "many").mkdir()
        with paced_server(folder / "many", places=32, prefill_ms=100, step_ms=10) as server:
            bench = Bench(server.file, server.url, "paced", folder)
            for users in (1, 8, 16, 32):
                yield from _beside_log(bench, server, Offered(f"{users} user{'s' * (users > 1)}", 12 + 8 * users, users=users))
        with _llama_server(folder) as bench:
            for load in loads(1.0):
                yield from _beside_aiperf(bench, load, "llama-server")


def _write_tokenizer(folder: Path) -> None:
    """Write what aiperf wants to load although the server counts the tokens."""
    shutil.copy(ROOT / "models" / "language" / "edgemeter-notes_f16" / "tokenizer.json", folder)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')


@contextmanager
def _llama_server(folder: Path) -> Iterator[Bench]:
    missing = [name for name in ("xllamacpp", "gguf") if importlib.util.find_spec(name) is None]
    if missing:
        raise LeftOutError(f"{' and '.join(missing)} not installed: pip install 'edgemeter[llama]' gguf")
    from tests.fixtures.generators.make_llama import Shape, write  # noqa: PLC0415 - needs gguf

    model = folder / "bench_q8_0.gguf"
    write(model, shape=Shape(width=512, layers=6, heads=8, kv_heads=8, hidden=1408, context=1024))
    with llama_cpp_server(model, folder, places=4) as file:
        url = file.read_text().split('"')[1]
        file.write_text(f'url = "{url}"\nserver = "openai"\n')
        yield Bench(file, url, "bench", folder)


def _beside_aiperf(bench: Bench, load: Offered, server: str) -> Iterator[Comparison]:
    rounds: list[tuple[dict[str, float], dict[str, float]]] = []
    for turn in range(ROUNDS):
        # Other prompts, which no cache holds, and another schedule, which is that of both.
        load = replace(load, seed=next(_seeds))
        if turn % 2:
            peer = bench.aiperf(load)
            rounds.append((bench.edgemeter(load)[0], peer))
        else:
            rounds.append((bench.edgemeter(load)[0], bench.aiperf(load)))
    for name in rounds[0][0]:
        is_judged = name != TURN_AROUND
        line = Line(f"{name}, {load.name}, {server}", FIGURES.get(name, "ms"), "aiperf", within(SHARE) if is_judged else None)
        yield compared_pairs(line, [(edge[name], peer[name]) for edge, peer in rounds])


def _beside_log(bench: Bench, server: PacedServer, load: Offered) -> Iterator[Comparison]:
    """Yield our figures beside those of the server's log of the same requests."""
    rounds = []
    for _ in range(ROUNDS):
        edge, record = bench.edgemeter(load)
        rounds.append((edge, _of_log(server, record, load.users or 1)))
    for name in rounds[0][1]:
        line = Line(f"{name}, {load.name}, made server", FIGURES[name], "the server's log", within(SHARE))
        yield compared_pairs(line, [(edge[name], logged[name]) for edge, logged in rounds])


def _of_log(server: PacedServer, record: dict[str, Any], users: int) -> dict[str, float]:
    begin_ns = record["windows"]["timed_start_ns"]
    end_ns = begin_ns + record["windows"]["timed_end_ns"]
    logged = [entry for entry in server.requests() if begin_ns <= entry["came_ns"] <= end_ns]
    # The first query of each of several users is in no figure.
    ramp_up_ns = begin_ns + round((record["load"]["ramp_up_ms"] or 0) * 1e6)
    logged = logged[users if users > 1 else 0 :]
    median: Callable[[Callable[[Any], float]], float] = lambda value: statistics.median(map(value, logged)) / 1e6  # noqa: E731
    busy_end_ns = sorted(entry["token_ns"][-1] for entry in logged)[-users]
    tokens = sum(ramp_up_ns < moment <= busy_end_ns for entry in logged for moment in entry["token_ns"])
    return {
        "TTFT p50": median(lambda entry: entry["token_ns"][0] - entry["came_ns"]),
        "TPOT p50": median(lambda entry: (entry["token_ns"][-1] - entry["token_ns"][0]) / (len(entry["token_ns"]) - 1)),
        "request p50": median(lambda entry: entry["token_ns"][-1] - entry["came_ns"]),
        "output tokens in all": tokens * 1e9 / (busy_end_ns - (ramp_up_ns if users > 1 else logged[0]["came_ns"])),
    }
