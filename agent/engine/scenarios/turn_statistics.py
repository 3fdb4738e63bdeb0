"""Figures of each turn of conversations, from the moments and the counts of their queries."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.record_generation import TurnFigures
from edgemeter.agent.engine.scenarios.generation_statistics import TokenMoments, summarise_tpot
from edgemeter.agent.engine.scenarios.latency_statistics import summarise_latency


def figures_by_turn(moments: TokenMoments, counts: Mapping[str, NDArray[np.int64]], *, has_times: bool) -> tuple[TurnFigures, ...]:
    """Return the figures of each turn; none where the queries are no turns.

    `counts` are raw samples of a record, int64 [queries]: `turn` from 1, and where the server states them `prompt_tokens` and
    `cached_tokens`. Without `has_times` there are counts only.
    """
    turn_of = counts.get("turn", np.empty(0, np.int64))
    figures = []
    for turn in np.unique(turn_of):
        selected = turn_of == turn
        of_turn = moments.of_queries(selected)
        means = {name: float(counts[name][selected].mean()) for name in ("prompt_tokens", "cached_tokens") if name in counts}
        ttft = summarise_latency(of_turn.first_ns) if has_times else None
        tpot = summarise_tpot(of_turn) if has_times else None
        figures.append(TurnFigures(turn=int(turn), queries=int(selected.sum()), **means, ttft=ttft, tpot=tpot))
    return tuple(figures)
