"""The names of figures in options and addresses of the page, and the names of their parts."""

from collections.abc import Iterable, Mapping

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.metrics import METRICS
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.contract.figures import FIGURES, Figure, FigureView, in_view

# The figures that comparisons judge, and that limits and choices may name: by their ratio, shares
# and accuracies by their difference.
JUDGED: Mapping[str, Figure] = {entry.name: entry for entry in in_view(FigureView.JUDGED)}
# The syntax of limits.
EXAMPLE = "p99<=33ms, ap>=.74, energy<=60mJ, memory<=500MB, board=Raspberry Pi 5"
# Suffixes that are units; parts of a name come before them.
_UNIT_ENDS = ("_per_s", "_ms", "_s", "_mj", "_mb", "_w", "_c", "_ratio")


def with_part(name: str, part: str) -> str:
    """Return a name with a part before its unit: `latency_p50_min_ms`."""
    end = next((end for end in _UNIT_ENDS if name.endswith(end)), "")
    return f"{name.removesuffix(end)}{part}{end}"


def figure_called(text: str, among: Iterable[Figure] | None = None) -> Figure:
    """Return the figure of that name, with or without the unit, or of one of its `figure_words`.

    An accuracy also has its metric's title.

    Raises:
        ConfigError: none of `among` (all, if None) has that name.
    """
    figures = FIGURES if among is None else tuple(among)
    called = {
        _plain(name): entry
        for entry in figures
        for name in (
            with_part(entry.name, "\0").partition("\0")[0],
            entry.name,
            *figure_words([entry]),
        )
    }
    if metric_called(text):
        called |= {_plain(text): entry for entry in figures if entry.group == "accuracy"}
    if _plain(text) not in called:
        raise ConfigError(f"{text!r} is not a figure: {near(text, figure_words(figures))}")
    return called[_plain(text)]


def figure_words(figures: Iterable[Figure]) -> list[str]:
    """Return the titles of the figures, and their names in a sentence."""
    return list(
        dict.fromkeys(
            word for entry in figures for word in (entry.title, entry.spoken or entry.title)
        )
    )


def metric_called(text: str) -> str:
    """Return the title of the metric of accuracy with that name or title.

    `AP` is returned for `ap`; the text is empty if there is none.
    """
    return next(
        (
            metric.title
            for name, metric in METRICS.items()
            if _plain(text) in (_plain(name), _plain(metric.title))
        ),
        "",
    )


def _plain(name: str) -> str:
    return "_".join(name.lower().replace("-", " ").replace("_", " ").split())
