"""The output of `edgemeter run`: one case is a block of lines, several are a table; verdicts and missing parts follow."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.console import Console
from edgemeter.agent.base.decision import MOST_FURTHER
from edgemeter.agent.base.figures import (
    ABSENT,
    count,
    duration,
    percentage,
    plain_digits,
    short_id,
    significant,
    span,
)
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text, table_width
from edgemeter.agent.cli.case_options import data_options
from edgemeter.agent.cli.measured_case import (
    DECODING,
    MeasuredCase,
    cases_of,
    load_text,
    model_text,
    setting_text,
)
from edgemeter.agent.contract.decode_energy import decode_lines
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import (
    ENERGY,
    LATENCY,
    MISSED,
    THROUGHPUT,
    TOKEN_ENERGY,
    TOO_FEW_QUERIES,
    TPOT,
    TTFT,
    FigureView,
    in_view,
)
from edgemeter.agent.contract.held_load import are_in_time
from edgemeter.agent.contract.mode_answer import mode_answers, mode_text
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Neighbour, Steady, Sustained
from edgemeter.agent.contract.steady_facts import held_out, moment, steady_facts
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.session.run_plan import PRECISION_RATIO, further_runs, precision_reach
from edgemeter.agent.verdict.words import assumed_scatter, verdict_lines

STYLE = {"ok": "green", "disturbed": "yellow", "invalid": "red"}
STRETCHES = 6  # Rows of the table of a long run over time.
TITLES = {
    "onnx": "ONNX Runtime", "litert": "LiteRT", "edgetpu": "Edge TPU", "openvino": "OpenVINO", "executorch": "ExecuTorch",
    "pytorch": "PyTorch", "tensorrt": "TensorRT", "hailo": "HailoRT", "llama": "llama.cpp", "python": "Python",
}  # fmt: skip
SLOW_DOWN = "together_slow_down_ratio"
Row = tuple[str, str, str]  # Subject of the line, its figure, further figures.


def print_runs(
    runs: Sequence[RunRecord],
    console: Console | None = None,
    *,
    wide: bool = False,
    seconds: float | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Print the results of the runs, then the notes; with `wide` also every run with all its figures. `seconds` is the duration of all."""
    if not runs:
        return
    console = console or Console()
    for device in dict.fromkeys(run.device for run in runs):
        cases = cases_of(run for run in runs if run.device == device)
        if len(cases) == 1:
            print_block(cases[0], console)
        else:
            columns = list(_columns(cases))
            shared = [
                column for column in columns if column.narrowed and len(set(column.cells)) == 1
            ]
            print_text(
                console,
                ", ".join(
                    [
                        f"{len(cases)} cases on {device}",
                        *(column.cells[0] for column in shared if column.cells[0]),
                    ]
                ),
            )
            columns = [column for column in columns if column not in shared]
            console.print(
                fitted_table(columns, table_width(console), STYLE, "--wide shows each run")
            )
            print_text(console, "")
        for answer in mode_answers(run for case in cases for run in case.runs):
            print_text(console, f"{answer.title}:")
            columns = [TableColumn(*cells, "left") for cells in answer.columns.items()]
            console.print(fitted_table(columns, console.width))
            print_text(console, "")
        if wide:
            console.print(fitted_table(list(_wide_columns(cases)), console.width, STYLE))
            print_text(console, "")
        for line in dict.fromkeys(_lines(cases, seconds)):
            print_text(console, f"  {line}")
    for line in notes:
        print_text(console, f"  {line}")


def saved_line(
    runs: Sequence[RunRecord], of_suite: Sequence[Case], options: Mapping[str, Any]
) -> str:
    """Return the ids of the first runs of the cases, and the next command; another model gets the same data options."""
    cases = cases_of(runs)
    ids = [short_id(case.runs[0].id) for case in cases]
    if len(ids) > 1:
        return f"saved as {', '.join(ids)}: edgemeter runs"
    file = cases[0].typical.model.file
    own_case = min(of_suite, key=lambda case: Path(case.model).name != file, default=None)
    of_data = data_options(msgspec.structs.asdict(own_case) if own_case else options)
    return f"saved as {ids[0]}: edgemeter compare {ids[0]} OTHER{Path(file).suffix}{of_data}"


def print_block(case: MeasuredCase, console: Console) -> None:
    first, *figures = block_lines(heading(case.typical), list(block_rows(case)))
    for line in (first, "", *figures):
        print_text(console, line)
    if (curve := case.typical.sustained) and len(curve.points) >= STRETCHES:
        print_text(console, "")
        console.print(fitted_table(list(_over_time(curve)), console.width))
    print_text(console, "")


def block_lines(title: str, rows: Sequence[Row]) -> list[str]:
    """Return a title and an indented line for each row, with aligned columns."""
    name_width = max(len(name) for name, _, _ in rows)
    value_width = max((len(value) for _, value, detail in rows if detail), default=0)
    return [
        title,
        *(
            f"  {name:{name_width}}  {value:{value_width}}  {detail}".rstrip()
            for name, value, detail in rows
        ),
    ]


def heading(run: RunRecord) -> str:
    """Return model and device: `yolov8n.onnx, fp32, ONNX Runtime 1.31 (cpu), 1 thread, on pi5-01`."""
    precision = "" if run.precision == "unknown" else run.precision
    threads = "" if run.runtime.threads_reason else run.runtime.threads_text
    parts = (
        model_text(run),
        precision,
        _runtime_text(run),
        threads,
        mode_text(run),
        load_text(run),
    )
    return f"{', '.join(filter(None, parts))}, on {run.device}"


def _runtime_text(run: RunRecord) -> str:
    runtime = run.runtime
    return (
        f"{TITLES.get(runtime.name, runtime.name)} {runtime.version} "
        f"({runtime.backend.removesuffix('ExecutionProvider')})"
    )


def block_rows(case: MeasuredCase) -> Iterator[Row]:
    """Yield the lines of a case; for a language model in the words of its field."""
    run = case.typical
    if run.generation:
        yield from _text_rows(case)
    elif run.steady:
        yield from (
            (name.capitalize(), text, "")
            for name, text in steady_facts(run, run.steady).items()
            if name != "energy"
        )
    else:
        latency = case.text(LATENCY, "ms") if case.values(LATENCY) else TOO_FEW_QUERIES
        tails = [
            f"{name} {case.middle(f'latency_{name}_ms', 'ms')}"
            for name in ("p90", "p99")
            if _has(case, name)
        ]
        yield "Latency", latency, ", ".join(tails)
        yield "Throughput", case.text(THROUGHPUT, "/s"), ""
    yield from _accuracy_row(case)
    yield from _energy_row(case)
    yield "Memory", case.middle("memory_peak_mb", "MB"), ""
    steps = (("load", "load_ms"), ("compilation", "compile_ms"), ("first inference", "first_ms"))
    starts = [
        f"{words} {case.middle(f'cold_start_{step}', 'ms')}"
        for words, step in steps
        if case.values(f"cold_start_{step}")
    ]
    yield "Start-up", ", ".join(starts) or ABSENT, ""
    if run.sustained and not run.steady:
        yield "Over time", held_out(run.sustained), ""


def _has(case: MeasuredCase, level: str) -> bool:
    return len(case.values(f"latency_{level}_ms")) == len(case.counted)


def _text_rows(case: MeasuredCase) -> Iterator[Row]:
    run = case.typical
    generation = run.generation
    if generation is None:
        return
    prompt = "" if generation.prompt_tokens is None else f" {generation.prompt_tokens}"
    yield (
        f"pp{prompt}",
        case.text("generation_prefill_tokens_per_s", "t/s"),
        f"TTFT {case.text(TTFT, 'ms')}",
    )
    tpot = case.text(TPOT, "ms")
    yield (
        f"tg {generation.output_tokens}",
        case.text(DECODING, "t/s"),
        "" if tpot == ABSENT else f"TPOT {tpot}",
    )
    if run.load and (run.load.concurrency or run.load.target_per_s):
        yield (
            "Requests",
            case.text(THROUGHPUT, "/s"),
            f"{case.text('generation_output_tokens_per_s', 't/s')} in all",
        )


def _accuracy_row(case: MeasuredCase) -> Iterator[Row]:
    scored = case.scored
    if scored is None or scored.accuracy is None:
        yield "Accuracy", "none", case.runs[0].reasons.get("accuracy", "")
        return
    accuracy = scored.accuracy
    bounds = (
        ""
        if accuracy.low is None or accuracy.high is None
        else f"95% {span(accuracy.low, accuracy.high)}, "
    )
    yield (
        "Accuracy",
        case.accuracy_text(),
        f"{bounds}{count(accuracy.images, 'question' if scored.generation else 'image')}",
    )


def _energy_row(case: MeasuredCase) -> Iterator[Row]:
    run = case.typical
    if (energy := run.energy) is None:
        yield "Energy", "none", run.reasons.get("energy", "")
        return
    provenance = energy_provenance(run)
    if provenance == "shared" and run.together:
        yield (
            "Energy",
            f"{plain_digits(energy.mean_power_w)} W",
            f"of {len(run.together.neighbours) + 1} models at once ({energy.sensor})",
        )
        return
    value = case.text(ENERGY, "mJ")
    if run.generation and case.values(TOKEN_ENERGY):
        value = case.text(TOKEN_ENERGY, "J/token", per=1000)
    net = f"{case.middle('energy_net_mj', 'mJ')} above idle" if case.values("energy_net_mj") else ""
    power = f"{plain_digits(energy.mean_power_w, 3)} W" if run.steady else ""
    origin = f"{energy.sensor}{'' if provenance == 'measured' else f', {provenance}'}"
    details = ", ".join(filter(None, (net, power)))
    yield "Energy", value, f"{details} ({origin})" if details else origin


def _over_time(curve: Sustained) -> Iterator[TableColumn]:
    """Yield the columns of a long run in a few stretches: the median of the intervals in each, and all missed frames."""
    points, number = curve.points, len(curve.points)
    edges = [number * index // STRETCHES for index in range(STRETCHES + 1)]
    stretches = [points[begin:end] for begin, end in pairwise(edges)]
    yield TableColumn("from", [moment(begin * curve.interval_s) for begin in edges[:-1]])
    if any(point.missed is not None for point in points):
        yield TableColumn(
            "missed", [f"{sum(point.missed or 0 for point in stretch):,}" for stretch in stretches]
        )
    for title, name, per in (
        ("p50 ms", "p50_ms", 1.0),
        ("MHz", "clock_hz", 1e6),
        ("°C", "temperature_c", 1.0),
        ("W", "power_w", 1.0),
    ):
        by_stretch = [
            [value for point in stretch if (value := getattr(point, name)) is not None]
            for stretch in stretches
        ]
        yield TableColumn(
            title,
            [
                plain_digits(statistics.median(values) / per, 3) if values else ABSENT
                for values in by_stretch
            ],
        )


def _columns(cases: Sequence[MeasuredCase]) -> Iterator[TableColumn]:
    """Yield the columns of several cases: latency, accuracy and energy first."""
    runs = [case.typical for case in cases]
    yield TableColumn("model", [model_text(run) for run in runs], "left", narrowed="shortens")
    yield TableColumn("", _settings(runs), "left", narrowed="shortens")
    for title, name in (("p50 ms", LATENCY), ("/s", THROUGHPUT), ("missed", MISSED)):
        yield TableColumn(
            title, [case.text(name) if case.first_figure == name else ABSENT for case in cases]
        )
    for title, name, rank in (
        ("pp t/s", "generation_prefill_tokens_per_s", 2),
        ("tg t/s", DECODING, 0),
        ("TTFT ms", TTFT, 3),
    ):
        yield TableColumn(
            title, [case.text(name) if case.values(name) else ABSENT for case in cases], rank=rank
        )
    yield TableColumn("accuracy", [case.accuracy_text() for case in cases], rank=1)
    yield TableColumn(
        "mJ", [ABSENT if case.typical.generation else case.text(ENERGY) for case in cases], rank=1
    )
    energies = [
        case.text(TOKEN_ENERGY, per=1000) if case.values(TOKEN_ENERGY) else ABSENT for case in cases
    ]
    yield TableColumn("J/token", energies, rank=1)
    yield TableColumn("runs", [str(len(case.counted)) for case in cases], rank=4)
    yield TableColumn("verdict", [case.state for case in cases], "left")


def _wide_columns(cases: Sequence[MeasuredCase]) -> Iterator[TableColumn]:
    runs = [MeasuredCase((run,)) for case in cases for run in case.runs]
    yield TableColumn("run", [short_id(case.runs[0].id) for case in runs], "left")
    if len(cases) > 1:
        yield TableColumn(
            "model", [model_text(case.runs[0]) for case in runs], "left", narrowed="shortens"
        )
        yield TableColumn(
            "", [setting_text(case.runs[0]) for case in runs], "left", narrowed="shortens"
        )
    for entry in in_view(FigureView.RUN):
        yield TableColumn(entry.heading, [case.text(entry.name) for case in runs], rank=entry.rank)
    yield TableColumn("verdict", [case.state for case in runs], "left")


def _settings(runs: Sequence[RunRecord]) -> list[str]:
    """Return the settings of cases, with power mode and options if otherwise two cases would have the same row."""
    modes = [mode_text(run) for run in runs]
    cells = [
        " ".join(filter(None, (setting_text(run), mode * (len(set(modes)) > 1))))
        for run, mode in zip(runs, modes, strict=True)
    ]
    rows = [
        (model_text(run), cell, run.runtime.options) for run, cell in zip(runs, cells, strict=True)
    ]
    texts = []
    for model, cell, options in rows:
        alike = [compared for *names, compared in rows if names == [model, cell]]
        differing = [
            name
            for name in options
            if any(compared.get(name) != options[name] for compared in alike)
        ]
        texts.append(
            " ".join((cell, *(f"{name}={Path(options[name]).name}" for name in differing)))
        )
    return texts


def _lines(cases: Sequence[MeasuredCase], seconds: float | None) -> Iterator[str]:
    """Yield the lines below the figures: runs and time, detectable difference, several cases' answers, verdicts, and missing parts."""
    runs = [run for case in cases for run in case.runs]
    took = "" if seconds is None else f", {duration(seconds)}"
    yield f"{count(len(runs), 'run')}{took}. {resolution(cases)}".rstrip()
    if with_interval := [
        case for case in cases if any(case.interval(name) for name in (case.first_figure, ENERGY))
    ]:
        yield assumed_scatter(max(case.session_sd for case in with_interval))
    for case in cases:
        if (together := case.typical.together) and case.values(SLOW_DOWN):
            neighbours = " and ".join(
                f"{neighbour.model} {neighbour.setting_text}" for neighbour in together.neighbours
            )
            this_model = Neighbour.of(case.typical.model, case.typical.runtime, case.typical.cpus)
            yield (
                f"{this_model.model} {this_model.setting_text} with {neighbours}: "
                f"{case.text(SLOW_DOWN)} times as long"
            )
    verdicts = [verdict for case in cases for verdict in case.verdicts]
    yield from verdict_lines(verdicts, len(runs) - len(verdicts))
    for case in cases:
        if untried := case.typical.runtime.facts.get("untried"):
            yield f"{_runtime_text(case.typical)} is {untried}"
        yield from _load_lines(case)
        yield from _energy_lines(case.typical)
    yield from decode_lines([case.typical for case in cases])


def resolution(cases: Sequence[MeasuredCase]) -> str:
    """Return the smallest detectable difference of two cases: the width of their intervals on the log scale, times the root of two."""
    intervals = [
        (case, case.interval(case.first_figure)) for case in cases if case.first_figure != MISSED
    ]
    if not intervals or any(interval is None for _, interval in intervals):
        return ""
    case, width_ratio = max(
        ((case, interval.half_width_ratio) for case, interval in intervals if interval),
        key=lambda pair: pair[1],
    )
    text = f"Differences above {percentage((1 + width_ratio) ** math.sqrt(2) - 1)} can be seen."
    values = case.values(case.first_figure)
    # The same share will not count.
    further = math.ceil(
        further_runs([values], PRECISION_RATIO, case.session_sd)
        * len(case.runs)
        / len(case.counted)
    )
    precise = percentage(math.expm1(precision_reach(PRECISION_RATIO, case.session_sd)))
    if not 0 < further <= MOST_FURTHER or precise == percentage(width_ratio):
        return text
    needed_runs = len(case.runs) + further
    return (
        f"{text} About {needed_runs} runs would narrow the interval to ± {precise}: --repeats "
        f"{needed_runs}."
    )


def _load_lines(case: MeasuredCase) -> Iterator[str]:
    run = case.typical
    load = run.load
    if run.steady:
        yield _frames_line(
            run.model.name, case.text(MISSED), [run.steady for run in case.counted if run.steady]
        )
        return
    if load is None or (load.is_sustained is None and not load.target_per_s):
        return
    busy = (
        "" if load.utilisation_ratio is None else f", busy {load.utilisation_ratio:.0%} of the time"
    )
    if load.is_sustained is None:
        yield (
            f"{run.model.name}: the schedule is too short to show whether it sustains this rate; "
            "use --mode normal"
        )
    elif load.is_sustained:
        yield f"{run.model.name} holds this rate{busy}."
    else:
        yield f"{run.model.name} does not hold this rate{busy}: offer a lower one."


def _frames_line(name: str, missed: str, frames: Sequence[Steady]) -> str:
    rate, is_held = f"{plain_digits(frames[0].rate_per_s)} frames a second", are_in_time(frames)
    if is_held is None:
        arrived = sum(steady.frames for steady in frames)
        length = moment(sum(steady.frames / steady.rate_per_s for steady in frames))
        return (
            f"{name} missed {missed} of {arrived:,} frames in {length}, too few to show whether "
            f"it holds {rate}; use --mode normal"
        )
    return (
        f"{name} holds {rate}."
        if is_held
        else f"{name} does not hold {rate}, because it misses {missed} of them: offer a lower rate."
    )


def _energy_lines(run: RunRecord) -> Iterator[str]:
    if (energy := run.energy) is None:
        return
    idle_ns = run.windows.idle_before_ns if run.windows else None
    if no_net := energy.why_no_net(
        (idle_ns[1] - idle_ns[0]) / 1e9 if idle_ns else 0.0, "idle_seconds ="
    ):
        yield f"net energy by {energy.sensor} is {no_net} in a suite"
    certainty = f"has no uncertainty: {energy.interval_reason}"
    if energy.gross_u_mj is not None:
        certainty = (
            f"has an uncertainty of ± {percentage(energy.gross_u_mj / abs(energy.gross_mj))}"
            if energy.gross_mj
            else ""
        )
    left_out = f"leaves out {', '.join(energy.excludes)}" if energy.excludes else ""
    yield (
        f"energy by {energy.sensor} ({energy.scope}) "
        f"{' and '.join(filter(None, (certainty, left_out)))}"
    )
    for other in run.other_energies:
        yield f"also {significant(other.gross_mj)} mJ by {other.sensor} ({other.scope})"
