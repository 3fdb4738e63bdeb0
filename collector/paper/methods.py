"""The methods paragraph: how the runs were measured, in sentences that hold only what the records say."""

from collections import Counter
from collections.abc import Iterable, Sequence

from edgemeter.agent.base import figures
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import hottest_c
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.paper.paper_cases import PaperCases
from edgemeter.collector.runs.cases import distinct
from edgemeter.collector.show.wording import listed

MOST = 12
# How `run_statistics.median_interval` and `spread` make them.
_INTERVALS = (
    "95% intervals of a median are from order statistics, of three or four values from Student's t on their logarithms, over devices, "
    "days or runs, whichever is the highest level with three values or more; where two levels fit the days of a case better than one, they "
    "reach to the level since"
)


def methods(paper: PaperCases) -> str:
    """Return the paragraph as plain text, one sentence after the other."""
    runs = paper.runs
    parts = (
        _extent(paper.cases, runs), _procedure(runs), _latency(runs), _software(runs), _machines(runs), _energy(runs),
        _accuracy(paper.cases), _verdicts(paper, runs),
    )  # fmt: skip
    return " ".join(sentence for part in parts for sentence in part)


def _extent(cases: Sequence[CaseSummary], runs: Sequence[RunRecord]) -> list[str]:
    devices, models = distinct(run.device for run in runs), distinct(run.model.name for run in runs)
    first, last = figures.stamp(runs[0].started_at_ns)[:10], figures.stamp(runs[-1].started_at_ns)[:10]
    when = f"on {first}" if first == last else f"between {first} and {last}"
    sentence = (
        f"We report {figures.count(len(runs), 'run')} of {figures.count(len(cases), 'case')} ({listed(models, MOST)}) on "
        f"{figures.count(len(devices), 'device')} ({listed(devices, MOST)}), measured {when} (UTC)."
    )
    sources = Counter(run.provenance.get("latency", "of unstated origin") for run in runs)
    other = [
        f"{figures.count(number, 'run')} {'is' if number == 1 else 'are'} {name}" for name, number in sources.items() if name != "measured"
    ]
    return [sentence, *([f"Of these, {listed(other)}, not measured."] if other else [])]


def _procedure(runs: Sequence[RunRecord]) -> list[str]:
    steady = sum(run.warm_up.steady for run in runs)
    scenarios = listed(distinct(run.scenario.replace("_", " ") for run in runs), MOST)
    modes = listed(distinct(run.mode for run in runs), MOST)
    warm_up = _range([run.warm_up.queries for run in runs], "query", "queries")
    warm_up_s = _range([run.warm_up.duration_ms / 1000 for run in runs], "s", "s")
    timed = _range([run.latency.count for run in runs], "query", "queries")
    settled = f"the running median had settled before timing in {steady} of {figures.count(len(runs), 'run')}"
    sentences = [f"A run warmed up for {warm_up} ({warm_up_s}; {settled}), and then timed {timed} (scenario {scenarios}, mode {modes})."]
    cooled = [run.cool_down for run in runs if run.cool_down]
    if cooled:
        limits = listed([f"{figures.significant(below_c)} °C" for below_c in sorted({wait.below_c for wait in cooled})])
        sentences.append(f"Before {figures.count(len(cooled), 'run')} the machine was left to cool below {limits}.")
    compared = sum(run.output_check.compared for run in runs)
    if compared:
        sentences.append(f"{compared:,} timed outputs were compared with those for the same input after timing.")
    return sentences


def _latency(runs: Sequence[RunRecord]) -> list[str]:
    generated = [run for run in runs if run.generation]
    sentences = ["Latency is the time of the runtime's call, without pre- and post-processing."] if len(generated) < len(runs) else []
    sentences += [*_generation(generated), f"Reported is the median over the runs of a case; {_INTERVALS}."]
    refused = sum(run.latency.p99_ms is None for run in runs)
    if refused:
        sentences.append(f"In {figures.count(refused, 'run')} there were too few queries for a 99th percentile, which is left out.")
    return sentences


def _generation(runs: Sequence[RunRecord]) -> list[str]:
    generations = [run.generation for run in runs if run.generation]
    if not generations:
        return []
    lengths = listed(distinct(generation.lengths for generation in generations), MOST)
    by_whom = {"exact": "by the engine, token by token", "usage": "by the server, request by request", "estimated": "from chunks of text"}
    counted = listed(distinct(by_whom[generation.counts] for generation in generations), MOST)
    prompts, sampling = (
        listed(distinct(getattr(generation, name) for generation in generations), MOST) for name in ("prompts", "sampling")
    )
    how = (
        f"Text was generated from {prompts} prompts, one request after the other (prompt + output tokens: {lengths}, counted {counted}; "
        f"sampling {sampling})."
    )
    definitions = (
        "Its latency is from handing the prompt over to the last token, time to first token (TTFT) to the first; time per output token "
        "(TPOT) of a request is the time after its first token by the tokens after it; rates are ratios of sums."
    )
    if any(generation.decodes_from_start for generation in generations):
        definitions += " At a depth a request begins behind a context that was filled before, and TPOT is its time by all of its tokens."
    return [how, definitions]


def _software(runs: Sequence[RunRecord]) -> list[str]:
    runtimes = distinct(f"{run.runtime.package} {run.runtime.version} ({run.runtime.backend}, {run.runtime.threads_text})" for run in runs)
    agents = distinct(f"Edgemeter {run.environment.agent}" for run in runs)
    return [f"Models ran on {listed(runtimes, MOST)}, measured by {listed(agents, MOST)}."]


def _machines(runs: Sequence[RunRecord]) -> list[str]:
    facts = []
    for words, field in (("governor", "governor"), ("power mode", "power_mode"), ("kernel", "kernel"), ("firmware", "firmware")):
        values = distinct(getattr(run.environment, field) for run in runs)
        facts += [f"{words} {listed(values, MOST)}"] if values else []
    hottest = hottest_c(runs)
    facts += [f"highest temperature {figures.significant(hottest)} °C"] if hottest is not None else []
    return [f"The machines ran with {', '.join(facts)}."] if facts else []


def _energy(runs: Sequence[RunRecord]) -> list[str]:
    having = [run for run in runs if run.energy]
    sentences = []
    for instrument in distinct(_instrument(run) for run in having):
        runs_of_instrument = [run for run in having if _instrument(run) == instrument]
        sentences += [f"{instrument}.", _uncertainty(runs_of_instrument)]
    if having:
        sentences.append("Gross energy is all that the sensor sees.")
    if any(run.energy.net_state != "no_idle" for run in having if run.energy):
        sentences.append("Net energy is above the idle power that was measured before or after the timed part.")
    without = [run for run in runs if run.energy is None]
    if without:
        reasons = listed(distinct(run.energy_reason for run in without) or ["no reason is recorded"], MOST)
        sentences.append(f"Energy was not measured in {figures.count(len(without), 'run')}: {reasons}.")
    return sentences


def _instrument(run: RunRecord) -> str | None:
    energy = run.energy
    if energy is None:
        return None
    provenance = energy_provenance(run)
    how = {"measured": "was measured", None: "is of unstated origin, read"}.get(provenance, f"is {provenance}, read")
    excludes = f", which excludes {listed(energy.excludes, MOST)}" if energy.excludes else ""
    resolution = f" and a step of {figures.significant(energy.resolution_w)} W" if energy.resolution_w is not None else ""
    period = f"with a period of {figures.significant(energy.period_ms)} ms{resolution}"
    return f"Energy {how} by {energy.sensor} at the scope {energy.scope}{excludes}, {period}"


def _uncertainty(runs: Sequence[RunRecord]) -> str:
    energies = [run.energy for run in runs if run.energy]
    with_uncertainty = [energy for energy in energies if energy.gross_u_mj is not None]
    unknown = distinct(term.term for energy in energies for term in energy.budget if term.u_mj is None)
    why = f", because these terms are: {listed(unknown, MOST)}" if unknown else ""
    if not with_uncertainty:
        return f"Its uncertainty is unknown{why}."
    terms = distinct(term.term for energy in with_uncertainty for term in energy.budget)
    factors = [energy.gross_k for energy in with_uncertainty if energy.gross_k is not None]
    ends = dict.fromkeys(figures.significant(factor) for factor in (min(factors), max(factors))) if factors else ()
    factor = f" (k = {' to '.join(ends)})" if factors else ""
    combined = f" and combine {listed(terms, MOST)}" if terms else ""
    without_uncertainty = len(energies) - len(with_uncertainty)
    without = f"; in {figures.count(without_uncertainty, 'run')} they are unknown{why}" if without_uncertainty else ""
    return f"Its uncertainties are expanded to 95%{factor}{combined}{without}."


def _accuracy(cases: Sequence[CaseSummary]) -> list[str]:
    scored = distinct(
        f"{metric_name(case.accuracy.metric)} on {figures.count(case.accuracy.images, 'image')} of {case.newest.dataset.name} "
        f"(sha256 {case.accuracy.dataset_sha256[:12]})"
        for case in cases
        if case.accuracy
    )
    has_bounds = any(case.accuracy and case.accuracy.low is not None for case in cases)
    bounds = "; its 95% interval is over the images" if has_bounds else ""
    without = sum(case.accuracy is None for case in cases)
    sentences = [f"Accuracy is {listed(scored, MOST)}{bounds}."] if scored else []
    return [*sentences, *([f"The accuracy of {figures.count(without, 'case')} is unknown."] if without else [])]


def _verdicts(paper: PaperCases, runs: Sequence[RunRecord]) -> list[str]:
    sentences = []
    suspect = [run for run in runs if run.verdict.state == "suspect"]
    if suspect:
        rules = distinct(rule for run in suspect for rule in run.verdict.rules)
        sentences.append(
            f"{figures.count(len(suspect), 'run')} kept here violated measurement rules and count as suspect ({listed(rules, MOST)})."
        )
        # The kind and the rule of a reason: `invalid: throttled`, not which flag was set when.
    reasons = Counter(":".join(entry.reason.split(":")[:2]) for entry in paper.left_out)
    if reasons:
        texts = [f"{reason} ({number})" for reason, number in sorted(reasons.items())]
        sentences.append(f"Left out were {figures.count(len(paper.left_out), 'run')} or parts of runs: {listed(texts, MOST)}.")
    unsynchronised = sum(run.clock_synchronised is not True for run in runs)
    if unsynchronised:
        sentences.append(f"The wall clock was not known to be synchronised in {figures.count(unsynchronised, 'run')}.")
    return sentences


def _range(values: Iterable[float], singular: str, plural: str) -> str:
    ordered = sorted(values)
    low, high = (f"{value:,}" if isinstance(value, int) else figures.significant(value) for value in (ordered[0], ordered[-1]))
    return f"{low} {singular if low == high == '1' else plural}" if low == high else f"{low} to {high} {plural}"
