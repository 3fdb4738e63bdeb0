"""The plots of a paper: the drawings of the page, each as one SVG that needs no style sheet, and as PDF."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from edgemeter.agent.base import figures
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.collector.compare.spread import Spread
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.show.lanes import Lane, distribution_lanes, latency_distribution
from edgemeter.collector.show.markup import text_of
from edgemeter.collector.show.scatter import ScatterPoint, scatter
from edgemeter.collector.show.series_style import COLOURS, SHAPES, SeriesStyle
from edgemeter.collector.show.wording import case_names, metric_name

DOTS = 320
# Of a figure over a paper's column; the drawings are as wide as the page's.
_WIDTH_PX = 440
_RULES = """text{font:12px Helvetica,Arial,sans-serif;fill:#16202a}.tick,.title{fill:#56636f;font-size:11.5px}.figure{font-weight:600}
.name{font-size:11.5px;paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}
.grid{stroke:#dde3e8}.axis{stroke:#56636f}.run{stroke:#16202a}.front,.dots{fill:none}.front{stroke-width:1.5;opacity:.55}
.dots{stroke-width:2.4;stroke-linecap:round;opacity:.38}.box{fill:#fff;fill-opacity:.75}.box,.whisker,.mark{stroke-width:1.5}.median{stroke-width:3}
"""


def plots(cases: Sequence[CaseSummary]) -> dict[str, str]:
    """Return every plot as SVG, by the name of its file without suffix; those without data are left out."""
    found: dict[str, str] = {}
    for name, members in _grouped(cases, _alike).items():
        lanes = [(case, one) for case in members if (one := latency_distribution(case.runs, DOTS)) is not None]
        if lanes:
            title = f"{members[0].key.model}: latency of every query"
            drawn = distribution_lanes(_lanes(cases, [case for case, _ in lanes]), [one for _, one in lanes], title, "Latency, ms")
            found[f"latency-{name}"] = standalone(drawn)
    for kind, title, cost, apart in _COSTS:
        for name, members in _grouped([case for case in cases if case.accuracy and cost(case)], apart).items():
            found[f"{kind}-against-accuracy-{name}"] = standalone(_scatter(cases, members, cost, title))
    return found


def standalone(drawing: str) -> str:
    """Return a drawing of the page as a whole SVG file: its own rules, its own size, no links."""
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', drawing)
    width, height = size.groups() if size else (str(_WIDTH_PX), str(_WIDTH_PX))
    plain = re.sub(r"<a\b[^>]*>", "<g>", drawing).replace("</a>", "</g>")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
    return plain.replace("<svg", head, 1).replace(">", f"><style>{_RULES}{_series_rules()}</style>", 1) + "\n"


def as_pdf(svg: str) -> bytes:
    """Return an SVG as PDF of one page.

    Raises:
        UnavailableError: the library is not installed.
    """
    try:
        import vl_convert  # noqa: PLC0415 - 33 MB that only this needs
    except ImportError as error:
        raise UnavailableError("plots as PDF need vl-convert-python: pip install 'edgemeter[pdf]'; SVG needs nothing") from error
    content: bytes = vl_convert.svg_to_pdf(svg)
    return content


def _series_rules() -> str:
    """Return the rules of the series' colours, which are those of the page in the light."""
    colours = dict(re.findall(r"--(s\d|reference): (#\w+)", text_of("show/report.css").partition("@media")[0]))
    return "".join(
        f".mark.{name}{{fill:{colour};stroke:{colour}}}.front.{name},.dots.{name},.box.{name},.whisker.{name},.median.{name}{{stroke:{colour}}}"
        f".mark.hollow.{name}{{fill:#fff}}"
        for name, colour in colours.items()
    )


def _alike(case: CaseSummary) -> tuple[str, ...]:
    key = case.key
    return key.model, key.scenario, key.provenance, key.dataset_sha256


def _by_accuracy(case: CaseSummary) -> tuple[str, ...]:
    key = case.key
    return key.task, key.scenario, case.accuracy.metric if case.accuracy else "", key.provenance, key.dataset_sha256


def _by_energy(case: CaseSummary) -> tuple[str, ...]:
    energy = str(case.energy.ranks_as) if case.energy else ""
    return (*_by_accuracy(case)[:-1], energy, case.key.dataset_sha256)


# What is set against accuracy: the file's name, the axis, the figure, and what keeps cases on sheets of their own.
_COSTS: tuple[tuple[str, str, Callable[[CaseSummary], Spread | None], Callable[[CaseSummary], tuple[str, ...]]], ...] = (
    ("latency", "Latency p50, ms", lambda case: case.p50_ms, _by_accuracy),
    ("energy", "Energy per inference, gross, mJ", lambda case: case.gross_mj, _by_energy),
)


def _grouped(cases: Iterable[CaseSummary], key: Callable[[CaseSummary], tuple[str, ...]]) -> dict[str, list[CaseSummary]]:
    """Return the cases that share a sheet, by a name for its file: the first part of the key, with a number where there are several."""
    grouped: dict[tuple[str, ...], list[CaseSummary]] = {}
    for case in cases:
        grouped.setdefault(key(case), []).append(case)
    found: dict[str, list[CaseSummary]] = {}
    for parts, members in grouped.items():
        stem = re.sub(r"[^a-z0-9]+", "-", parts[0].lower()).strip("-")[:60] or "model"
        names = (stem if number == 1 else f"{stem}-{number}" for number in range(1, len(grouped) + 1))
        found[next(name for name in names if name not in found)] = members
    return found


def _styles(cases: Sequence[CaseSummary]) -> Mapping[str, SeriesStyle]:
    """Return the style of each series: of devices where there are several, else of runtimes."""
    names = sorted({_series(cases, case) for case in cases})
    return {name: SeriesStyle(f"s{place % COLOURS}", SHAPES[place % len(SHAPES)]) for place, name in enumerate(names)}


def _series(cases: Sequence[CaseSummary], case: CaseSummary) -> str:
    return case.key.device if len({one.key.device for one in cases}) > 1 else case.key.runtime


def _lanes(every: Sequence[CaseSummary], cases: Sequence[CaseSummary]) -> list[Lane]:
    styles, by_device = _styles(every), len({one.key.device for one in every}) > 1
    return [
        Lane(
            f"{case.key.device} · {name}" if by_device else name,
            f"{figures.significant(case.p50_ms.median)} ms" if case.p50_ms else "",
            styles[_series(every, case)],
            "",
        )
        for case, name in zip(cases, case_names(cases), strict=True)
    ]


def _scatter(
    every: Sequence[CaseSummary], cases: Sequence[CaseSummary], cost: Callable[[CaseSummary], Spread | None], cost_title: str
) -> str:
    styles, metric = _styles(every), metric_name(cases[0].accuracy.metric) if cases[0].accuracy else "Accuracy"
    points = [
        ScatterPoint(
            cost=found.median,
            accuracy=case.accuracy.value.median,
            series=_series(every, case),
            style=styles[_series(every, case)],
            name=name,
            explanation=f"{case.key.device}, {name}",
            link="",
            is_reference=False,
            is_hollow="int" in case.key.precision,
            is_suspect=case.suspect > 0,
        )
        for case, name in zip(cases, case_names(cases), strict=True)
        if (found := cost(case)) and case.accuracy
    ]
    return scatter(points, f"{cost_title} against {metric}", cost_title, metric)
