"""Each series of a page has one colour and one shape in all charts.

Series are distinguishable without colour too. The colours themselves are `--s0` to `--s6` in
`web/page.css`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgemeter.collector.compare.comparison import ComparedCase

# The style sheet has this many (after Okabe and Ito, and darker or lighter where the paper requires
# it).
COLOURS = 7
_STAR = (
    "M0,-1L0.24,-0.31L0.95,-0.31L0.36,0.12L0.59,0.81"
    "L0,0.38L-0.59,0.81L-0.36,0.12L-0.95,-0.31L-0.24,-0.31Z"
)
# Vega's names of shapes, and the sign for each in tables and legends.
GLYPHS = {
    "circle": "●",
    "square": "■",
    "triangle-up": "▲",
    "diamond": "◆",
    "triangle-down": "▼",
    "cross": "✚",
    _STAR: "★",
}
SHAPES = tuple(name for name in GLYPHS if name != _STAR)


@dataclass(frozen=True, slots=True)
class SeriesStyle:
    """How one series is drawn: the style sheet's colour and a shape."""

    colour: str
    shape: str


REFERENCE = SeriesStyle("reference", _STAR)


def numbered_style(index: int) -> SeriesStyle:
    return SeriesStyle(f"s{index % COLOURS}", SHAPES[index % len(SHAPES)])


@dataclass(frozen=True, slots=True)
class SeriesStyles:
    """The styles of all series.

    They are devices if there are several (or board types), else runtimes; the reference is the
    star.

    If nothing is compared with it, as with a single device, its cases are ordinary series.
    """

    by_device: bool
    names: tuple[str, ...]
    by_board: bool = False
    # Names of devices in several fleets.
    shared_names: frozenset[str] = frozenset()
    has_reference: bool = True

    def is_reference(self, row: ComparedCase) -> bool:
        return row.is_reference and self.has_reference

    def series(self, row: ComparedCase) -> str:
        """Return the name of the series that `row` belongs to.

        That of the reference is `reference`.
        """
        if self.is_reference(row):
            return "reference"
        if self.by_board:
            return row.board
        key = row.case.key
        if not self.by_device:
            return key.runtime
        return f"{key.device}, fleet {key.fleet}" if key.device in self.shared_names else key.device

    def of(self, row: ComparedCase) -> SeriesStyle:
        return (
            REFERENCE
            if self.is_reference(row)
            else numbered_style(self.names.index(self.series(row)))
        )


def assign_styles(rows: Sequence[ComparedCase], most_devices: int | None = None) -> SeriesStyles:
    """Return a style for each series of the page, the same in every chart.

    With more devices than `most_devices` the series are their board types.
    """
    compared_rows = [row for row in rows if not row.is_reference]
    device_rows = compared_rows or rows
    devices = {row.case.device for row in device_rows}
    boards = {row.board for row in device_rows}
    has_reference = bool(compared_rows)
    if most_devices is not None and len(devices) > most_devices and len(boards) < len(devices):
        return SeriesStyles(
            by_device=True, names=tuple(sorted(boards)), by_board=True, has_reference=has_reference
        )
    styles = SeriesStyles(
        len(devices) > 1,
        (),
        shared_names=frozenset(
            name for name, count in Counter(device for _, device in devices).items() if count > 1
        ),
        has_reference=has_reference,
    )
    return replace(styles, names=tuple(sorted({styles.series(row) for row in device_rows})))
