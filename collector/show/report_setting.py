"""The setting of the measurements: what each machine is, how it was set up, and how the runs were made."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from edgemeter.agent.records import RunRecord
from edgemeter.collector.compare.comparison import Comparison
from edgemeter.collector.compare.summary import environment, hottest_c
from edgemeter.collector.show import figures
from edgemeter.collector.show.markup import Markup, element, join

RULES = (
    "Latency is the call of the runtime alone; pre- and post-processing are timed apart. A percentile that too few queries support is not"
    " printed. Accuracy is of the same model file, by its sha256. Only cases of the same model, task, scenario, data and input size stand"
    " beside each other; energies only at the same scope."
)


def machines(comparison: Comparison) -> Markup:
    """Return what each device is and how it was set up; values that changed between runs stand side by side."""
    runs: dict[str, list[RunRecord]] = {}
    for row in comparison.rows:
        runs.setdefault(row.case.key.device, []).extend(row.case.runs)
    references = {row.case.key.device for row in comparison.rows if row.is_reference}
    parts = [_machine(f"{device}, reference" if device in references else device, found) for device, found in runs.items()]
    return element("div", {"class": "gallery"}, *parts)


def method(comparison: Comparison, asked: str) -> Markup:
    """Return how the runs were measured, read from the runs themselves; `asked` is what was asked to be compared."""
    runs = [run for row in comparison.rows for run in row.case.runs]
    warm_up = f"{_range([run.warm_up.queries for run in runs])}; steady before timing in {_share(runs, lambda run: run.warm_up.steady)}"
    facts = {
        "Asked": asked,
        "Mode": _counted(run.mode for run in runs),
        "Scenario": _counted(run.scenario for run in runs),
        "Timed queries per run": _range([run.latency.count for run in runs]),
        "Warm-up queries per run": warm_up,
        "Outputs compared with those for the same input later": _range([run.output_check.compared for run in runs]),
        "Clock synchronised": _share(runs, lambda run: run.clock_synchronised is True),
        "Runtimes": _counted(f"{run.runtime.package} {run.runtime.version}, {run.runtime.backend}" for run in runs),
        "Edgemeter on the devices": _counted(run.environment.agent for run in runs),
        "Provenance": _counted(f"{group} {source}" for run in runs for group, source in sorted(run.provenance.items())),
    }
    return join([element("p", None, RULES), _facts(facts)])


def _machine(heading: str, runs: Sequence[RunRecord]) -> Markup:
    def told(*fields: str) -> str | None:
        return " ".join(text for field in fields if (text := environment(runs, field))) or None

    hottest = hottest_c(runs)
    memory_mb = runs[-1].environment.memory_mb
    facts = {
        "Board": told("board"),
        "Processor": told("soc", "cpu"),
        "Cores": told("cores"),
        "Memory": None if memory_mb is None else f"{figures.significant(memory_mb / 1000)} GB",
        "System": told("os"),
        "Kernel": told("kernel", "arch"),
        "Virtualisation": told("virtualisation"),
        "Firmware": told("firmware"),
        "Governor": told("governor"),
        "Power mode": told("power_mode"),
        "Highest temperature": None if hottest is None else f"{figures.significant(hottest)} °C",
        "Attached": told("attached"),
        "Python": told("python"),
        "Libraries": ", ".join(dict.fromkeys(f"{name} {version}" for run in runs for name, version in run.environment.libraries.items())),
    }
    return element("section", None, element("h3", None, heading), _facts(facts))


def _facts(facts: Mapping[str, str | None]) -> Markup:
    """Return the facts as a list; what is not told stands together in one line."""
    untold = ", ".join(name for name, text in facts.items() if not text)
    told = {**{name: text for name, text in facts.items() if text}, **({"Not told": untold} if untold else {})}
    return element(
        "dl", None, *(element("div", None, element("dt", None, name), element("dd", None, text)) for name, text in told.items() if text)
    )


def _counted(texts: Iterable[str]) -> str:
    """Return the different texts, each with its number of times where there are several."""
    count = Counter(texts)
    return ", ".join(count) if len(count) < 2 else ", ".join(f"{text} ({number})" for text, number in count.most_common())


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers, default=0), max(numbers, default=0)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _share(runs: Sequence[RunRecord], holds: Callable[[RunRecord], bool]) -> str:
    return f"{sum(holds(run) for run in runs)} of {figures.count(len(runs), 'run')}"
