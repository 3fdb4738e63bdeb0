"""The footnote that MLCommons requires wherever one of its results is used.

Source: mlcommons/policies, MLPerf_Results_Messaging_Guidelines.adoc, sections 3.2 (what it has to name) and 11.2 (the legend).
"""

from edgemeter.collector.reference.mlperf import MlperfRow

LEGEND = (
    "The MLPerf\N{TRADE MARK SIGN} name and logo are trademarks of MLCommons Association in the United States and other countries. "
    "All rights reserved. Unauthorized use strictly prohibited. See www.mlcommons.org for more information."
)
UNVERIFIED = "Result not verified by MLCommons Association."
APART = (
    "MLPerf\N{TRADE MARK SIGN} results may only be compared with compatible MLPerf\N{TRADE MARK SIGN} results: they stand apart from what "
    "Edgemeter measures, and rank nowhere."
)
DERIVED = "Energy is derived from the measured system power and throughput; it is no official metric of the benchmark."


def footnote(row: MlperfRow, source: str, retrieved: str, *, is_verified: bool) -> str:
    """Return the footnote of a row: suite, version, division, benchmark, scenario, where and when it was retrieved, entry, legend."""
    first = f"MLPerf\N{TRADE MARK SIGN} {row.round} Inference {row.division.capitalize()} {row.model} {row.scenario} ({row.suite})."
    parts = [first, f"Retrieved from {source} {retrieved}, entry {row.id}.", *([] if is_verified else [UNVERIFIED])]
    return " ".join([*parts, *([DERIVED] if row.is_energy_derived else []), LEGEND])
