"""Load a ledger into columns and fit a straight line to the latency of each case over time.

python docs/examples/fit_trend.py [LEDGER]
"""

import sys

import numpy as np

import edgemeter

# pandas and polars make a table of the columns: pandas.DataFrame(edgemeter.load()).
NAMED_BY = ("device", "model", "precision", "runtime")


def main(*sources: str) -> None:
    """Print the change of p50 per week for each case, with its standard error.

    `edgemeter trend` finds steps too.
    """
    runs = edgemeter.load(*sources, columns=[*NAMED_BY, "verdict_state", "latency_p50_ms"])
    weeks = (runs["started_at"] - runs["started_at"].min()) / np.timedelta64(7, "D")
    cases = np.array(
        [
            " ".join(map(str, names))
            for names in zip(*(runs[name] for name in NAMED_BY), strict=True)
        ]
    )
    for case in np.unique(cases):
        used = (
            (cases == case)
            & (runs["verdict_state"] != "invalid")
            & np.isfinite(runs["latency_p50_ms"])
        )
        if used.sum() < 4 or np.ptp(weeks[used]) == 0:
            print(f"{case}: too few runs for a trend ({used.sum()})")
            continue
        (slope, _), covariance = np.polyfit(
            weeks[used], 100 * np.log(runs["latency_p50_ms"][used]), 1, cov=True
        )
        print(
            f"{case}: {slope:+.2f}% a week (standard error {np.sqrt(covariance[0, 0]):.2f}, "
            f"{used.sum()} runs)"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
