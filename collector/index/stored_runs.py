"""A run as a row of the index: what is stored of it. What follows from that SQL works out, by the steps of `figures_of`."""

from operator import itemgetter

from edgemeter.agent.contract.figures import NORMAL_95, USUAL_K, Figure, reader
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.runs.run_figures import INDEXED, RUN_COLUMNS, VALUE_COLUMNS, RunFigures, bound_columns, u_column

# What runs have in common is kept once, under its number: its fingerprint, and of what kind its figures are.
COMMON = ("energy_kind", "energy_by", "energy_provenance", "accuracy_kind")
_OWN = tuple(name for name in RUN_COLUMNS if name not in (*COMMON, "at_ns"))

# Of a figure with an uncertainty that is stored, as the record has it, and the coverage factor unless it is the usual one.
_UNCERTAIN = tuple(entry for entry in INDEXED if entry.u)
_VALUES = tuple(
    name for entry in INDEXED for name in (entry.key, *(bound_columns(entry) if entry.has_bounds and entry not in _UNCERTAIN else ()))
)
_picked = itemgetter(*map(VALUE_COLUMNS.index, _VALUES))
_U_READERS = tuple((VALUE_COLUMNS.index(entry.key), reader(entry.u), entry.coverage) for entry in _UNCERTAIN)
_FIGURES = (*_VALUES, *(name for entry in _UNCERTAIN for name in (f"{entry.key}_expanded", f"{entry.key}_k")))

# The columns that are stored, the run's row first; `reason` is why it cannot be compared, NULL if it can, `own_at_ns` is NULL where it is
# the start.
OF_RUN = ("row", "case_number", "series", "session", "seq", "reason", "own_at_ns", *_OWN, *_FIGURES)
# The columns by which a record is unpacked: what it has in common with its row is kept only there.
BESIDE_BODY = ", ".join(f"measured.{name}" for name in ("id", "started_at_ns", *_FIGURES))


def _worked_out(entry: Figure) -> dict[str, str]:
    """Return SQL of the columns of a figure that are not stored."""
    low, high = bound_columns(entry)
    if not entry.u:
        return {u_column(entry): f"({high} - {low}) / {2 * NORMAL_95!r} / {entry.key}"}
    below, above = (f"{entry.key} {sign} {entry.key}_expanded" for sign in "-+")
    u = f"(({above}) - ({below})) / (2 * coalesce({entry.key}_k, {USUAL_K!r})) / {entry.key}"
    return {low: below, high: above, u_column(entry): u}


WORKED_OUT = {"at_ns": "coalesce(own_at_ns, started_at_ns)"} | {
    name: sql for entry in INDEXED if entry.has_bounds for name, sql in _worked_out(entry).items()
}


def stored_run(run: RunRecord, figures: RunFigures) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Return the values of `OF_RUN` from `own_at_ns` on, and those of `BESIDE_BODY`."""
    values = [*_picked(figures.values)]
    for column, u_of, coverage_of in _U_READERS:
        is_there, k = figures.values[column] is not None, coverage_of(run)
        values += u_of(run) if is_there else None, k if is_there and k != USUAL_K else None
    at_ns = None if figures.at_ns == figures.started_at_ns else figures.at_ns
    return (at_ns, *(getattr(figures, name) for name in _OWN), *values), (figures.id, figures.started_at_ns, *values)
