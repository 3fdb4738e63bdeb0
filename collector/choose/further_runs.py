"""The next measurements: how many more days (or images) would make a limit certain, by the scatter seen so far, and the command."""

import math
import re
import shlex
from dataclasses import dataclass

from edgemeter.agent.base import figures
from edgemeter.agent.base.decision import Bounds
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.run_statistics import CONFIDENCE, FEWEST
from edgemeter.agent.base.statistics import student_quantile
from edgemeter.agent.contract.figures import Figure
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_generation import Generation
from edgemeter.collector.choose.certainty import FEW, FEW_MEMBERS, LimitFinding, bounds_of, change, few_days, interval_of, reach_of
from edgemeter.collector.compare.judged_figures import ACCURACY
from edgemeter.collector.compare.judgement import FORESEEN
from edgemeter.collector.compare.summary import CaseSummary

# Of a hundred such plans so many end in certainty, if the value and the scatter are what they seem.
POWER = 0.8
RUNS_A_DAY = 3
# What a record's backend says of the run, after the backend that was asked for; the precision is among its options.
_COMPUTED = re.compile(r"(,(auto|fp?16|bf16|fp32))+$")


@dataclass(frozen=True, slots=True)
class FurtherRuns:
    """The plan that would settle a limit of a case: in words, about how many more days or boards (None: no number would), the command."""

    words: str
    count: int | None
    command: str = ""


def further_runs(case: CaseSummary, finding: LimitFinding, confidence: float) -> FurtherRuns:
    """Return what would make a limit certain that a case may meet."""
    entry, run = finding.limit.figure, case.newest
    if finding.value is None:
        return FurtherRuns(f"measure its {finding.limit.title}", None, command_of(run, entry))
    if entry.choice == ACCURACY:
        return _further_images(case, finding)
    if case.suspect:
        return FurtherRuns(f"measure it on {FEWEST} days without what makes its runs suspect", FEWEST, command_of(run, entry))
    if entry.is_share:
        return FurtherRuns(f"measure its {finding.limit.title} longer", None, command_of(run, entry))
    count = further_members(case, entry, _gap(finding.value, finding.limit.value), confidence)
    if count is None:
        return FurtherRuns(f"so close to {finding.limit.amount}, no reasonable number of runs would settle it", None)
    return FurtherRuns(f"measure it on {_more(case, entry, count)}", count, command_of(run, entry))


def _more(case: CaseSummary, entry: Figure, count: int) -> str:
    interval = interval_of(case, entry)
    return figures.count(count, "more board" if interval and interval.level == "device" else "more day")


def members_apart(entry: Figure, case: CaseSummary, other: CaseSummary, confidence: float) -> str:
    """Return about how many more days or boards of each would tell two cases apart in a figure; empty where no reasonable number would."""
    changed = change(entry, case, other, confidence)
    if entry.choice == ACCURACY or entry.is_share or changed is None:
        return ""
    # Both sides scatter: to each goes its share of the distance.
    gap = abs(math.log(changed[0])) / math.sqrt(2)
    plans = {side.key: further_members(side, entry, gap, confidence) for side in (case, other)}
    counts = [count for count in plans.values() if count is not None]
    return _more(case, entry, max(counts)) if len(counts) == len(plans) else ""


def _gap(value: float, limit: float) -> float:
    return abs(math.log(value / limit)) if value > 0 and limit > 0 else 0.0


def further_members(case: CaseSummary, entry: Figure, gap: float, confidence: float) -> int | None:
    """Return how many more days of runs, or boards, carry the bounds over a distance (on logarithms); None: no reasonable number."""
    interval, spread = interval_of(case, entry), case.spreads.get(entry.name)
    if interval is None or spread is None:
        days = len({run.started_at_ns // NS_PER_DAY for run in case.runs})
        return max(1, FEWEST - days)
    least = max(1, FEWEST - interval.days) if few_days(interval, entry) else 1
    gap = _without_meter(case, entry, gap, confidence)
    if gap <= 0:
        return None
    few = FEW if interval.members < FEW_MEMBERS else 1.0
    scatter = reach_of(spread, interval) / few / student_quantile(CONFIDENCE, interval.members - 1) * math.sqrt(interval.members)
    first = interval.members + 1 if not few_days(interval, entry) else FEWEST
    for members in range(first, FORESEEN):
        freedom = members - 1
        reach = student_quantile(confidence, freedom) * (FEW if members < FEW_MEMBERS else 1.0) + student_quantile(2 * POWER - 1, freedom)
        if reach * scatter / math.sqrt(members) <= gap:
            return max(least, members - (interval.days if few_days(interval, entry) else interval.members))
    return None


def _without_meter(case: CaseSummary, entry: Figure, gap: float, confidence: float) -> float:
    """Return what of a distance is left to the scatter of runs, the uncertainty of the meter apart."""
    bounds, spread = bounds_of(case, entry, confidence), case.spreads[entry.name]
    u = case.uncertainties.get(entry.name) if entry.u else None
    if bounds is None or u is None or spread.interval is None:
        return gap
    of_both = math.log(bounds[1] / spread.median)
    freedom = spread.interval.members - 1
    of_runs = reach_of(spread, spread.interval) * student_quantile(confidence, freedom) / student_quantile(CONFIDENCE, freedom)
    return math.sqrt(max(0.0, gap * gap - max(0.0, of_both * of_both - of_runs * of_runs)))


def _further_images(case: CaseSummary, finding: LimitFinding) -> FurtherRuns:
    accuracy, bounds, value = case.accuracy, finding.bounds, finding.value
    command = command_of(case.newest, finding.limit.figure)
    if accuracy is None or bounds is None or value is None:
        return FurtherRuns(f"score its {finding.limit.title} with bounds", None, command)
    images = _images(accuracy.images, bounds, value, finding.limit.value)
    if images is None:
        return FurtherRuns(f"so close to {finding.limit.amount}, no reasonable number of images would settle it", None)
    return FurtherRuns(f"score it on about {images:,} images instead of {accuracy.images:,}", None, command)


def _images(images: int, bounds: Bounds, value: float, limit: float) -> int | None:
    gap, reach = abs(value - limit), max(value - bounds[0], bounds[1] - value)
    needed_images = images * (reach / gap) ** 2 if gap > 0 else math.inf
    return math.ceil(needed_images / 100) * 100 if needed_images <= FORESEEN * images else None


def _prompt_options(generation: Generation) -> list[tuple[str, object]]:
    return [("--prompt-tokens", generation.prompt_tokens), ("--output-tokens", generation.output_tokens)]


def command_of(run: RunRecord, entry: Figure) -> str:
    """Return the command that measures the case of a run again, with what it cannot know in capitals."""
    options: list[tuple[str, object]] = [("--runtime", run.runtime.name), ("--backend", _COMPUTED.sub("", run.runtime.backend))]
    options += [] if run.runtime.threads_reason else [("--threads", run.runtime.threads)]
    options += [("--option", f"{name}={value}") for name, value in sorted(run.runtime.options.items())]
    options += [("--scenario", run.scenario)] if run.scenario != "single_stream" else []
    if run.load is not None and run.scenario == "multi_stream":
        options.append(("--samples-per-query", run.load.samples_per_query))
    if run.load is not None and run.load.target_per_s is not None:
        options.append(("--rate", f"{run.load.target_per_s:g}"))
    if run.steady is not None:
        options += [("--deadline", f"{run.steady.deadline_ms:.7g}ms"), ("--queue-frames", run.steady.queue_frames)]
    if run.load is not None and run.load.concurrency is not None:
        options.append(("--concurrency", run.load.concurrency))
    options += [("--batch", run.batch)] if run.scenario == "offline" and run.batch > 1 else []
    if run.generation is not None:
        options += _prompt_options(run.generation)
    # A p99 takes more queries than the quicker modes have.
    mode = "normal" if entry.choice == "latency-p99" and entry.value(run) is None else run.mode
    options += [("--mode", mode), ("--repeats", 1 if entry.choice == ACCURACY else RUNS_A_DAY), ("--device", run.device)]
    if run.dataset.annotated or entry.choice == ACCURACY:
        options += [("--data", run.dataset.name), ("--annotations", "ANNOTATIONS")]
    texts = [text for name, value in options if value is not None for text in (name, shlex.quote(str(value)))]
    return " ".join(["edgemeter run", shlex.quote(run.model.file), *texts])
