"""The published rows of a store, judged; among themselves where the store has changed, against own runs where either has."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published.judge import judge_apart, with_own_runs
from edgemeter.collector.published.judgement import RowJudgement
from edgemeter.collector.reference.imported import ReferenceStore, default_store
from edgemeter.collector.runs.cases import named


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """The judgement of each row, and the own cases that comparisons name."""

    judgements: Sequence[RowJudgement] = ()
    own_cases: Mapping[str, CaseKey] = field(default_factory=dict)


@dataclass(slots=True)
class JudgedReferences:
    """Judgements of what `store` holds; used by any number of threads."""

    store: ReferenceStore = field(default_factory=default_store)
    _apart: tuple[str | None, Sequence[RowJudgement]] = None, ()
    _judged: tuple[str, JudgedRows] = ("", JudgedRows())
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, runs_version: str, summaries: Callable[[], Sequence[CaseSummary]]) -> JudgedRows:
        """Return the published rows, judged against the own cases, which are asked for only where something changed.

        Raises:
            ConfigError: a file of the store cannot be read.
        """
        store_version = self.store.version()
        version = f"{runs_version} {store_version}"
        with self._lock:
            if self._apart[0] != store_version:
                # A run that arrives changes nothing among the rows.
                self._apart = store_version, judge_apart(self.store.published())
            if self._judged[0] != version:
                cases = summaries()
                rows = JudgedRows(with_own_runs(self._apart[1], cases), {named(case.key): case.key for case in cases})
                self._judged = version, rows
            return self._judged[1]
