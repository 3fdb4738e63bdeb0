"""The kit: tables, methods, plots, and the runs that they were made of, as one archive or folder from which they can be made again."""

import hashlib
import io
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from edgemeter.agent.base import durable_file, figures
from edgemeter.agent.base.errors import UnavailableError, os_error_as
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.bundle.archive import BUNDLE_SUFFIX
from edgemeter.agent.contract.record import RunRecord, encode
from edgemeter.collector.charts import vega
from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.charts.front import against_accuracy
from edgemeter.collector.compare.summary import CaseSummary, DaysCounted
from edgemeter.collector.paper.methods import methods
from edgemeter.collector.paper.paper_cases import paper_cases
from edgemeter.collector.paper.paper_tables import tables
from edgemeter.collector.paper.typesetting import as_paragraph
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.runs.store import oldest_first
from edgemeter.collector.show.comparison_charts import (
    ENERGY_TITLE,
    LATENCY_TITLE,
    Cost,
    bounds_of,
    distribution_chart,
    energy_cost,
    front_point,
    fronts_of,
    latency_cost,
    latency_distribution,
)
from edgemeter.collector.show.series_style import SeriesStyle, numbered_style
from edgemeter.collector.show.wording import case_names

TABLES, METHODS, RECORDS, BUNDLES = "tables.tex", "methods.tex", "records.json", "bundles"
# Every file has the same date: what differs between two archives is their content.
_DATE = (1980, 1, 1, 0, 0, 0)
_README = """# {title}

Made by Edgemeter {version} from {runs}. Every number here can be made again from the runs in this folder:

```console
$ pip install 'edgemeter[report,sign]=={version}'
{verify}$ edgemeter report {sources} -o again/{options}
$ diff tables.tex again/tables.tex && diff methods.tex again/methods.tex
$ sha256sum -c SHA256SUMS
```

| file | what it is |
|---|---|
| `tables.tex` | the tables, LaTeX with booktabs: every figure with its 95% interval or uncertainty, and its unit |
| `methods.tex` | how the runs were measured, in sentences made from the records |
| `plots/` | latency of every query, and cost against accuracy, as SVG and PDF |
{contents}| `SHA256SUMS` | the hash of every other file |

To cite Edgemeter: CITATION.cff in its repository, with version {version}.
"""


def kit(runs: Iterable[RunRecord], bundles: Mapping[str, Path], days: DaysCounted, version: str) -> dict[str, bytes]:
    """Return the files of the kit; `bundles` (by run id) stay as they are; raises UnavailableError without runs, a bundle or charts."""
    ordered = oldest_first(runs)
    paper = paper_cases(ordered, days)
    files = {TABLES: tables(paper).encode(), METHODS: as_paragraph(methods(paper)).encode()}
    for name, chart in plots(paper.cases).items():
        files |= {f"plots/{name}.svg": as_svg(chart), f"plots/{name}.pdf": vega.pdf(chart)}
    without_bundle = [run for run in ordered if run.id not in bundles]
    files |= {f"{BUNDLES}/{run.id}{BUNDLE_SUFFIX}": _read(bundles[run.id]) for run in ordered if run.id in bundles}
    if without_bundle:
        files[RECORDS] = b'{"runs": [' + b",\n".join(encode(run) for run in without_bundle) + b"]}\n"
    files["README.md"] = _readme(ordered, len(without_bundle), days, version).encode()
    files["SHA256SUMS"] = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)).encode()
    return files


def tables_of(runs: Iterable[RunRecord], days: DaysCounted) -> bytes:
    """Return the tables alone; raises as `kit`."""
    return tables(paper_cases(runs, days)).encode()


def write_kit(files: Mapping[str, bytes], path: Path) -> None:
    """Write the files as the archive `path` (.zip), or into the folder `path`; raises UnavailableError if they cannot be written."""
    with os_error_as(UnavailableError, f"cannot write {str(path)!r}", "give a writable place with enough space"):
        if path.suffix.lower() == ".zip":
            archive = io.BytesIO()
            with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
                for name in sorted(files):
                    packed.writestr(zipfile.ZipInfo(name, _DATE), files[name], zipfile.ZIP_DEFLATED)
            written = {path: archive.getvalue()}
        else:
            written = {path / name: content for name, content in files.items()}
        for target, content in written.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            with durable_file.replacing(target, 0o644) as file:
                file.write(content)


def _readme(runs: Sequence[RunRecord], unbundled: int, days: DaysCounted, version: str) -> str:
    has_bundles = unbundled < len(runs)
    sources = [*([BUNDLES] if has_bundles else []), *([RECORDS] if unbundled else [])]
    contents = "| `bundles/` | runs as bundles: record and raw samples, with signatures where they were signed |\n" if has_bundles else ""
    contents += "| `records.json` | runs as records, with their raw samples where they were kept |\n" if unbundled else ""
    return _README.format(
        title="What these tables were made of", version=version, runs=figures.count(len(runs), "run"), sources=" ".join(sources),
        verify=f"$ edgemeter bundle verify {BUNDLES}/*{BUNDLE_SUFFIX}\n" if has_bundles else "",
        options=" --all-days" if days == "all" else "", contents=contents,
    )  # fmt: skip


def _read(path: Path) -> bytes:
    with os_error_as(UnavailableError, f"cannot read the bundle {str(path)!r}"):
        return path.read_bytes()


STEPS = 320


def plots(cases: Sequence[CaseSummary]) -> dict[str, Chart]:
    """Return every plot by the name of its file without suffix; those without data are left out."""
    charts: dict[str, Chart] = {}
    by_device = len({case.key.device for case in cases}) > 1
    for name, members in _grouped(cases, attrgetter("key.model", "key.scenario", "key.provenance", "key.dataset_sha256")).items():
        labels = [f"{case.key.device} · {label}" if by_device else label for case, label in zip(members, case_names(members), strict=True)]
        distributions = [latency_distribution(case.runs, STEPS) for case in members]
        if lines := [(label, line) for label, line in zip(labels, distributions, strict=True) if line]:
            charts[f"latency-{name}"] = distribution_chart(f"{members[0].key.model}: latency of every query", lines)
    # A series is a device where there are several, else a runtime.
    series_of = attrgetter("key.device" if by_device else "key.runtime")
    styles = {series: numbered_style(index) for index, series in enumerate(sorted(set(map(series_of, cases))))}
    for kind, title, cost, apart in _COSTS:
        for name, members in _grouped([case for case in cases if front_point(case, cost)], apart).items():
            charts[f"{kind}-against-accuracy-{name}"] = _front(members, list(map(series_of, members)), styles, cost, title)
    return charts


def as_svg(chart: Chart) -> bytes:
    """Return a plot as SVG; with the paper's own caption it needs no title. Raises UnavailableError if the library is not installed."""
    return f"{vega.svg(chart, is_alone=False)}\n".encode()


def _by_accuracy(case: CaseSummary) -> tuple[str, ...]:
    key = case.key
    return key.task, key.scenario, case.accuracy.metric if case.accuracy else "", key.provenance, key.dataset_sha256


def _by_energy(case: CaseSummary) -> tuple[str, ...]:
    return (*_by_accuracy(case), str(case.energy.ranks_as) if case.energy else "")


# What is set against accuracy: the file's name, the axis, the figure, and what keeps cases on sheets of their own.
_COSTS: tuple[tuple[str, str, Cost, Callable[[CaseSummary], tuple[str, ...]]], ...] = (
    ("latency", LATENCY_TITLE, latency_cost, _by_accuracy),
    ("energy", ENERGY_TITLE, energy_cost, _by_energy),
)


def _grouped(cases: Iterable[CaseSummary], key: Callable[[CaseSummary], tuple[str, ...]]) -> dict[str, list[CaseSummary]]:
    """Return the cases that share a sheet, by a name for its file: the first part of the key, with a number where there are several."""
    sheets = grouped((key(case), case) for case in cases)
    stems: dict[str, list[CaseSummary]] = {}
    for parts, members in sheets.items():
        stem = re.sub(r"[^a-z0-9]+", "-", parts[0].lower()).strip("-")[:60] or "model"
        names = (stem if number == 1 else f"{stem}-{number}" for number in range(1, len(sheets) + 1))
        stems[next(name for name in names if name not in stems)] = members
    return stems


def _front(cases: Sequence[CaseSummary], series: Sequence[str], styles: Mapping[str, SeriesStyle], cost: Cost, cost_title: str) -> Chart:
    metric = metric_name(cases[0].accuracy.metric) if cases[0].accuracy else "Accuracy"
    points = [point for case in cases if (point := front_point(case, cost))]
    statuses, bands, fronts = fronts_of(points, series)
    values: list[dict[str, Any]] = [
        {
            "case": f"{case.key.device}, {name}", "series": series_name, **bounds_of(point), "standing": statuses[index],
            "verdict": case.verdict, "is_hollow": "int" in case.key.precision, "label": name,
        }
        for index, (case, name, series_name, point) in enumerate(zip(cases, case_names(cases), series, points, strict=True))
    ]  # fmt: skip
    legend = [(name, style.paint, style.shape) for name, style in styles.items() if name in series]
    return Chart(f"{cost_title} against {metric}", against_accuracy(cost_title, metric, legend, values, bands, fronts), rows_table(values))
