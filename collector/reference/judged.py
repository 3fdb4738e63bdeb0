"""The published rows of a store, judged; again only where the store or the own runs have changed."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published.judge import judge
from edgemeter.collector.published.judgement import RowJudgement
from edgemeter.collector.reference.imported import ReferenceStore, default_store


@dataclass(slots=True)
class JudgedReferences:
    """Judgements of what `store` holds; used by any number of threads."""

    store: ReferenceStore = field(default_factory=default_store)
    _judged: tuple[str, Sequence[RowJudgement]] = ("", ())
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, runs_version: str, summaries: Callable[[], Sequence[CaseSummary]]) -> Sequence[RowJudgement]:
        """Return the judgement of each published row against the own cases, which are asked for only where something changed.

        Raises:
            ConfigError: a file of the store cannot be read.
        """
        version = f"{runs_version} {self.store.version()}"
        with self._lock:
            if self._judged[0] != version:
                self._judged = version, judge(self.store.published(), summaries())
            return self._judged[1]
