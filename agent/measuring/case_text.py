"""The results of measured cases in words.

They are one case as a block of lines, and the lines below several.
"""

import math
from collections.abc import Iterator, Sequence

from edgemeter.agent.base.decision import MOST_FURTHER
from edgemeter.agent.base.number_text import (
    ABSENT,
    count,
    duration,
    percentage,
    plain_digits,
    significant,
    span,
)
from edgemeter.agent.contract.case_settings import PRECISION_RATIO
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
    figure,
)
from edgemeter.agent.contract.held_load import are_in_time
from edgemeter.agent.contract.mode_answer import mode_text
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Neighbour, Steady
from edgemeter.agent.contract.steady_facts import held_out, moment, steady_facts
from edgemeter.agent.measuring.measured_case import (
    DECODING,
    MeasuredCase,
    load_text,
    model_text,
)
from edgemeter.agent.session.run_plan import further_runs, precision_reach
from edgemeter.agent.verdict.words import assumed_scatter, verdict_lines

TITLES = {
    "onnx": "ONNX Runtime", "litert": "LiteRT", "edgetpu": "Edge TPU", "openvino": "OpenVINO",
    "executorch": "ExecuTorch", "pytorch": "PyTorch", "tensorrt": "TensorRT", "hailo": "HailoRT",
    "llama": "llama.cpp", "python": "Python",
}  # fmt: skip
SLOW_DOWN = "together_slow_down_ratio"
Row = tuple[str, str, str]  # Subject of the line, its figure, further figures.


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
    """Return model and device.

    For example `yolov8n.onnx, fp32, ONNX Runtime 1.31 (cpu), 1 thread, on pi5-01`.
    """
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
        latency = case.text(LATENCY) if case.values(LATENCY) else TOO_FEW_QUERIES
        tails = [
            f"{figure(name).title} {case.middle(name)}"
            for name in ("latency_p90_ms", "latency_p99_ms")
            if len(case.values(name)) == len(case.counted)
        ]
        yield "Latency", latency, ", ".join(tails)
        yield "Throughput", case.text(THROUGHPUT), ""
    yield from _accuracy_row(case)
    yield from _energy_row(case)
    yield "Memory", case.middle("memory_peak_mb"), ""
    starts = [
        f"{figure(name).title} {case.middle(name)}"
        for name in ("cold_start_load_ms", "cold_start_compile_ms", "cold_start_first_ms")
        if case.values(name)
    ]
    yield "Start-up", ", ".join(starts) or ABSENT, ""
    if run.sustained and not run.steady:
        yield "Over time", held_out(run.sustained), ""


def _text_rows(case: MeasuredCase) -> Iterator[Row]:
    run = case.typical
    generation = run.generation
    if generation is None:
        return
    prompt = "" if generation.prompt_tokens is None else f" {generation.prompt_tokens}"
    yield (
        f"pp{prompt}",
        case.text("generation_prefill_tokens_per_s"),
        f"TTFT {case.text(TTFT)}",
    )
    tpot = case.text(TPOT)
    yield (
        f"tg {generation.output_tokens}",
        case.text(DECODING),
        "" if tpot == ABSENT else f"TPOT {tpot}",
    )
    if run.load and (run.load.concurrency or run.load.target_per_s):
        yield (
            "Requests",
            case.text(THROUGHPUT),
            f"{case.text('generation_output_tokens_per_s')} in all",
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
    value = case.text(ENERGY)
    if run.generation and case.values(TOKEN_ENERGY):
        value = case.text(TOKEN_ENERGY, "J/token", per=1000)
    net = f"{case.middle('energy_net_mj')} above idle" if case.values("energy_net_mj") else ""
    power = f"{plain_digits(energy.mean_power_w, 3)} W" if run.steady else ""
    origin = f"{energy.sensor}{'' if provenance == 'measured' else f', {provenance}'}"
    details = ", ".join(filter(None, (net, power)))
    yield "Energy", value, f"{details} ({origin})" if details else origin


def result_lines(cases: Sequence[MeasuredCase], seconds: float | None) -> Iterator[str]:
    """Yield the lines below the figures.

    They are runs and time, detectable difference, several cases' answers, verdicts, and missing
    parts.
    """
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
    """Return the smallest detectable difference of two cases.

    It is the width of their intervals on the log scale, times the root of two.
    """
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
