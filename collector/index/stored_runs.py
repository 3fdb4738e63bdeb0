"""A run as a row of the index: what is stored of it."""

from edgemeter.agent.contract.run_figures import RUN_COLUMNS, VALUE_COLUMNS, RunFigures

# What runs have in common is kept once, under its number: its fingerprint, and of what kind its figures are.
COMMON = ("energy_kind", "energy_by", "energy_provenance", "accuracy_kind")
_OWN = tuple(name for name in RUN_COLUMNS if name not in (*COMMON, "at_ns", "verdict"))

# Of a run that lies apart from its siblings their number and median, else NULL; its session, NULL where it cannot have any.
OF_SIBLINGS = ("session_started_at_ns", "siblings_p50_ms", "siblings")
# The columns that are stored, the run's row first; `reason` is why it cannot be compared, NULL if it can, `own_at_ns` is NULL where it is
# the start.
OF_RUN = ("row", "case_number", "series", "session", "seq", "reason", *OF_SIBLINGS, "own_at_ns", "own_verdict", *_OWN, *VALUE_COLUMNS)
# The columns by which a record is unpacked: what it has in common with its row is kept only there.
BESIDE_BODY = ", ".join(f"measured.{name}" for name in ("id", "started_at_ns", *VALUE_COLUMNS))


def stored_run(figures: RunFigures) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Return the values of `OF_RUN` from `own_at_ns` on, and those of `BESIDE_BODY`."""
    at_ns = None if figures.at_ns == figures.started_at_ns else figures.at_ns
    own_values = (getattr(figures, name) for name in _OWN)
    return (at_ns, figures.verdict, *own_values, *figures.values), (figures.id, figures.started_at_ns, *figures.values)
