"""Sinks: where the drain brings points to. The protocol, and what opens one."""

from collections.abc import Sequence
from typing import Protocol

from edgemeter.collector.keep.influx import InfluxSink
from edgemeter.collector.keep.influx1 import Influx1Sink
from edgemeter.collector.keep.influx_config import InfluxConfig
from edgemeter.collector.keep.refusals import Refused


class Sink(Protocol):
    """Where points go. Called from one thread at a time, may block as long as its own timeouts."""

    @property
    def name(self) -> str:
        """Its name in the ledger: the same place has the same name."""
        ...

    def prepare(self) -> None:
        """Find out whether points would be taken.

        Raises:
            ConfigError: not before somebody corrects the configuration.
            TransientError: not now.
        """
        ...

    def write(self, lines: Sequence[str]) -> list[Refused]:
        """Store points; return those that are not taken, when all others are stored; raises as `prepare` does."""
        ...

    def close(self) -> None:
        """Give everything back; may be called twice."""
        ...


def open_sink(config: InfluxConfig) -> Sink:
    """Return the sink of `config`; nothing is asked yet.

    Raises:
        UnavailableError: the library that it needs is not installed.
    """
    return InfluxSink(config) if config.database is None else Influx1Sink(config)
