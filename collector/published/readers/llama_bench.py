"""llama-bench: JSON, JSON lines or Markdown table of llama.cpp's benchmark program, which does not time sampling.

A test `pp` is prefill, `tg` decoding, either behind the depth `d`; the rate of a test `pg`, of both, is no figure. `model_size` is all
weights: of a mixture of experts, or where the table of embeddings is looked up, a token reads fewer, so it is a condition and not
`weights_mb`. Not stated: the board, its power mode. Source: ggml-org/llama.cpp, tools/llama-bench.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PureWindowsPath
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import parse_json, whole_number
from edgemeter.collector.published import ReadTable, RowCollector
from edgemeter.collector.published.readers.file_facts import version_fact
from edgemeter.collector.published.readers.markup_tables import markdown_tables

_TEST = re.compile(r"(pp|tg) ?(\d+)(?: @ d(\d+))?")
_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:\s*±\s*(\d+(?:\.\d+)?))?")
_BUILD = re.compile(r"build: ([0-9a-f]{6,40}) \((\d+)\)")
_FILE_TYPE = re.compile(r"\b((?:TQ|IQ|Q)\d\w*|MXFP4|BF16|F16|F32)(?: - (Small|Medium|Large))?\b")
_ACTIVE = re.compile(r"\.A(\d+(?:\.\d+)?)B\b")
_SCALES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_COLUMNS = ("model", "test", "t/s")
_READ_COLUMNS = {*_COLUMNS, "params", "backend", "threads"}


class _Test(msgspec.Struct):
    """One test; versions of the program differ in its other fields."""

    model_filename: str
    model_type: str
    model_size: int
    model_n_params: int
    n_threads: int
    n_prompt: int
    n_gen: int
    test_time: str
    avg_ts: float
    stddev_ts: float
    build_commit: str
    build_number: int
    n_depth: int = 0
    backends: str = ""
    samples_ts: list[float] = []
    cpu_info: str = ""
    gpu_info: str = ""
    n_batch: int | None = None
    n_ubatch: int | None = None
    n_gpu_layers: int | None = None
    type_k: str = ""
    type_v: str = ""
    flash_attn: Any = None


class LlamaBench:
    """Reads what `-o json`, `-o jsonl` and `-o md` print."""

    def recognises(self, name: str, text: str) -> bool:  # noqa: ARG002 - the name says nothing
        """Return whether there are tests of llama-bench."""
        if text.lstrip()[:1] in ("[", "{"):
            try:
                return any(isinstance(entry, dict) and {"avg_ts", "model_type", "n_gen"} <= entry.keys() for _, entry in _entries(text))
            except ConfigError:
                return False
        return any(table.rows and table.has(*_COLUMNS) for table in markdown_tables(text, is_output=True))

    def read(self, text: str, defaults: Mapping[str, Any]) -> ReadTable:
        """Return a rate of each test."""
        collector = RowCollector(defaults)
        if text.lstrip()[:1] in ("[", "{"):
            for where, entry in _entries(text):
                _add_test(collector, where, entry, defaults)
        else:
            _add_tables(collector, text, defaults)
        if not collector.rows and not collector.left_out:
            raise ConfigError("this has no test of llama-bench: give what `llama-bench -o json` (or jsonl, md) prints")
        return collector.table()


def _entries(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the objects of a JSON list, or one a line, and where they stand; raises ConfigError for text that is neither."""
    try:
        decoded = parse_json(text)
        yield from ((f"test {number}", entry) for number, entry in enumerate(decoded if isinstance(decoded, list) else [decoded], start=1))
    except ConfigError as error:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
        if not all(line.startswith("{") for _, line in lines):
            raise ConfigError(f"this is no whole JSON of llama-bench: {error}; a run that was ended early can print `-o jsonl`") from error
        for number, line in lines:
            try:
                yield f"line {number}", parse_json(line)
            except ConfigError as damage:
                yield f"line {number}", damage


def _add_test(collector: RowCollector, where: str, entry: Any, defaults: Mapping[str, Any]) -> None:
    try:
        test = msgspec.convert(entry, _Test)
    except msgspec.ValidationError as error:
        collector.leave_out(where, f"not understood: {entry if isinstance(entry, Exception) else error}")
        return
    if test.n_prompt and test.n_gen:
        collector.leave_out(where, f"a rate of {test.n_prompt} prompt and {test.n_gen} output tokens together is no figure")
        return
    conditions = {
        "": test.model_type,
        "tested": test.test_time[:10],
        "weights, MB": f"{test.model_size / 1e6:g}",
        "CPU": test.cpu_info,
        "GPU": test.gpu_info,
        "n_batch": test.n_batch,
        "n_ubatch": test.n_ubatch,
        "gpu layers": test.n_gpu_layers if test.backends != "CPU" else None,
        "type_k": test.type_k,
        "type_v": test.type_v,
        "flash_attn": test.flash_attn,
    }
    software = f"llama.cpp b{test.build_number} ({test.build_commit})"
    collector.add(
        where,
        **_kind_of("pp" if test.n_prompt else "tg", test.n_prompt or test.n_gen, test.n_depth),
        **_of_type(test.model_type),
        **_of_build(software, defaults),
        model=PureWindowsPath(test.model_filename).stem or None,
        value=test.avg_ts,
        standard_deviation=test.stddev_ts if len(test.samples_ts) > 1 else None,
        low=min(test.samples_ts, default=None),
        high=max(test.samples_ts, default=None),
        repeats=len(test.samples_ts) or None,
        backend="cpu" if test.backends == "CPU" else test.backends or None,
        parameters=test.model_n_params,
        threads=test.n_threads,
        conditions=_in_words(conditions),
    )


def _add_tables(collector: RowCollector, text: str, defaults: Mapping[str, Any]) -> None:
    lines = text.splitlines()
    builds = [(number, build) for number, line in enumerate(lines, start=1) if (build := _BUILD.search(line))]
    for table in markdown_tables(text, is_output=True):
        if not table.has(*_COLUMNS):
            collector.leave_out(f"table at line {table.line}", f"none of llama-bench, which has the columns {', '.join(_COLUMNS)}")
            continue
        # It is printed below its table.
        build = next((build for position, build in builds if position > table.line), None)
        software = f"llama.cpp b{build[2]} ({build[1]})" if build else None
        for number, cells in table.records(collector):
            if lines[number - 1].rstrip().endswith("|"):
                _add_line(collector, f"line {number}", cells, software, defaults)
            else:
                collector.leave_out(f"line {number}", "it is cut, perhaps within a number")


def _add_line(collector: RowCollector, where: str, cells: Mapping[str, str], software: str | None, defaults: Mapping[str, Any]) -> None:
    test, rate = _TEST.fullmatch(cells["test"]), _RATE.fullmatch(cells["t/s"])
    tokens, depth = (whole_number(test[2]), whole_number(test[3] or "0")) if test else (None, None)
    if not test or not rate or tokens is None or depth is None:
        collector.leave_out(where, f"no figure: test {cells['test'][:80]!r}, t/s {cells['t/s'][:80]!r}")
        return
    columns = {name: cell for name, cell in cells.items() if name not in _READ_COLUMNS}
    backend = cells.get("backend")
    collector.add(
        where,
        **_kind_of(test[1], tokens, depth),
        **_of_type(cells["model"]),
        **_of_build(software, defaults),
        model=cells["model"],
        value=float(rate[1]),
        standard_deviation=float(rate[2]) if rate[2] else None,
        backend="cpu" if backend == "CPU" else backend,
        parameters=_number(cells.get("params", "")),
        threads=whole_number(cells.get("threads")),
        conditions=_in_words({"": "llama-bench", **columns}),
    )


def _kind_of(test: str, tokens: int, depth: int) -> dict[str, Any]:
    is_prefill = test == "pp"
    return {
        "figure": "prefill-tokens" if is_prefill else "tokens",
        "unit": "tokens/s",
        "statistic": "mean",
        "runtime": "llama",
        "prompt_tokens" if is_prefill else "output_tokens": tokens,
        "depth_tokens": depth,
        "concurrency": 1,
    }


def _of_build(software: str | None, defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {"software": software, "version": version_fact(defaults, software)}


def _of_type(model_type: str) -> dict[str, Any]:
    """Return what the name of the type states: the quantisation as its file calls it, and the parameters that a token passes."""
    file_type, active = _FILE_TYPE.search(model_type), _ACTIVE.search(model_type)
    precision = None
    if file_type and "(guessed)" not in model_type:
        size = f"_{file_type[2][0]}" if file_type[2] else ""
        # llama.cpp prints `Q2_K - Medium` for what everybody calls Q2_K.
        precision = f"{file_type[1]}{size}".replace("Q2_K_M", "Q2_K").lower()
    return {"precision": precision, "read_parameters": float(active[1]) * 1e9 if active else None}


def _number(text: str) -> float | None:
    """Return `6.74 B` as a number, None where it is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ([KMBT])", text)
    return float(match[1]) * _SCALES[match[2]] if match else None


def _in_words(conditions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}".strip() for name, value in conditions.items() if value not in (None, ""))
