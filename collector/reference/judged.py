"""The published rows of a store, judged; again only where the store or the own runs have changed."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published.judge import judge
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
    _judged: tuple[str, JudgedRows] = ("", JudgedRows())
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, runs_version: str, summaries: Callable[[], Sequence[CaseSummary]]) -> JudgedRows:
        """Return the published rows, judged against the own cases, which are asked for only where something changed.

        Raises:
            ConfigError: a file of the store cannot be read.
        """
        version = f"{runs_version} {self.store.version()}"
        with self._lock:
            if self._judged[0] != version:
                cases = summaries()
                rows = JudgedRows(judge(self.store.published(), cases), {named(case.key): case.key for case in cases})
                self._judged = version, rows
            return self._judged[1]
