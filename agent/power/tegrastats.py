"""NVIDIA's `tegrastats`: a fallback where the monitors' own files may not be read.

Protocol: it prints a rail as `NAME now/mean`, in mW: without a unit under JetPack 4, `4500mW/4400mW` under 5 and 6, `now/mean/peak` under
7. The mean runs since its start, so `now` is taken. What of it is the total: `jetson_rails`, by the names alone.

On some releases it prints no rails unless it runs as root.
It is started with `--interval`, by default 100 ms, and stays until the sensor is closed. It costs a process of its own that reads far more
than power; the sensors `ina3221`, `ina3221x` and `jetson_thor` come before it. A reading may be as old as the interval. Voltages are not
printed: the resolution is that of the board's usual voltages. Gain: 5% (k = 1) by default, see `jetson_rails`.

    [sensors.tegrastats]
    interval_ms = "100"

Tested with: lines recorded on Nano, TX2, AGX Xavier, AGX Orin and Orin Nano under JetPack 4 to 7; not yet run on a board.
"""

import re
import time

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.power import Description, Rail, Reading, jetson_rails
from edgemeter.agent.power.jetson import IIO_PERIOD_MS
from edgemeter.agent.power.jetson_rails import JetsonBoard
from edgemeter.agent.power.world import HERE, CommandStream, SensorWorld

# Above the interval, for the start of the program.
LINE_TIMEOUT_S = 5.0
# A line that is cut at its beginning, or precedes the first reading of the power, may be followed by a whole one.
FIRST_LINES = 3
SEARCHED_LINES = 50
SEARCHED_BYTES = 1_000_000
# After so many intervals the pipe may have filled, and what comes out of it is of the past: lines take up to 1.5 KB, a pipe 64.
STALE_LINES = 20
MEMORY = re.compile(r"\bI?(?:SYS)?(?:RAM|SWAP)\s+\d+/\d+\s*(?:[kMG]?B)?(?:\s*\([^)]*\)?)?")
# A figure that is cut off has no unit or no slash behind it and is not taken.
RAIL = re.compile(
    r"(?<![@\w])(?P<name>[A-Z][A-Z0-9_]*)\s+(?P<now>-?\d+)(?:\s*(?P<unit>mW))?\s*/\s*-?\d+(?:\s*mW)?(?:\s*/\s*-?\d+(?:\s*mW)?)?(?![\w(.])"
)
LINE = re.compile(
    r"\bRAM \d+/\d+|\bCPU \[|\b(?:EMC|GR3D)_FREQ\b|@-?[\d.]+C\b|\b[A-Z][A-Z0-9_]*\s+-?\d+mW\s*/|\b(?:POM|VDD|VIN)\w*\s+-?\d+/-?\d+"
)
NAMED = re.compile(r"\btegrastats\b")
# A rail, be what follows whole or not.
RAIL_BEGINS = re.compile(r"\b(?:POM|VDD|VIN)\w*")


class Tegrastats:
    """Reads the rails that tegrastats prints."""

    def __init__(self, interval_ms: str = "100", world: SensorWorld = HERE) -> None:
        self._interval_ms = interval_ms
        self._world = world
        self._stream: CommandStream | None = None
        self._board: JetsonBoard | None = None
        self._read_ns = 0

    def describe(self) -> Description:
        """Return which board's total it is; starts tegrastats for one line."""
        try:
            rails, has_units, board = self._first()
        finally:
            # What it prints until the first reading would be old by then.
            self.close()
        # Without units it is JetPack 4, whose driver may take 422 ms for a fresh value.
        period_ms = float(self._interval()) if has_units else max(IIO_PERIOD_MS, self._interval())
        return jetson_rails.describe("tegrastats", board, rails, period_ms)

    def read(self) -> Reading:
        """Return what it printed last."""
        if self._world.content is None and time.monotonic_ns() - self._read_ns > STALE_LINES * self._interval() * NS_PER_MS:
            self.close()
        if self._stream is None or self._board is None:
            rails, _, board = self._first()
        else:
            (rails, _), board = _parsed(self._newest(self._stream)), self._board
        # It measures just before it prints.
        self._read_ns = time.monotonic_ns()
        return Reading(taken_ns=self._read_ns, power_w=jetson_rails.total_w(board, rails), rails=rails)

    def close(self) -> None:
        """End tegrastats."""
        if self._stream is not None:
            self._stream.close()
        self._stream = None

    @staticmethod
    def recognises(content: bytes) -> bool:
        """Return whether it holds a line of tegrastats, or the reason why there is none."""
        text = content[:SEARCHED_BYTES].decode(errors="replace")
        return LINE.search(text) is not None or NAMED.search(text) is not None

    def _interval(self) -> int:
        if not self._interval_ms.isdecimal() or not 10 <= int(self._interval_ms) <= 60_000:
            raise ConfigError(
                f"interval_ms is {self._interval_ms!r}: set it to a whole number of milliseconds from 10 to 60000 in [sensors.tegrastats]"
            )
        return int(self._interval_ms)

    def _first(self) -> tuple[tuple[Rail, ...], bool, JetsonBoard]:
        """Start tegrastats and return the rails of its first whole line, whether these have units, and whose they are."""
        self._stream = self._world.stream(["tegrastats", "--interval", str(self._interval())])
        timeout_s = LINE_TIMEOUT_S + 2 * self._interval() / 1000
        failed: EdgemeterError | None = None
        unexpected, lines = "", 0
        for _ in range(SEARCHED_LINES):
            try:
                text = self._stream.line(timeout_s)
            except EdgemeterError as error:
                raise failed or UnavailableError(_why(unexpected, error)) from error
            if not LINE.search(text):
                unexpected = unexpected or text.strip()
                continue
            try:
                rails, has_units = _parsed(text)
                if not rails:
                    raise UnavailableError("tegrastats prints no power rails: on this release only root sees them; run as root")
                self._board = jetson_rails.board_of([rail.name for rail in rails])
            except EdgemeterError as error:
                failed, lines = failed or error, lines + 1
                if lines == FIRST_LINES:
                    break
            else:
                return rails, has_units, self._board
        raise failed or UnavailableError(_why(unexpected, None))

    def _newest(self, stream: CommandStream) -> str:
        """Return the newest line that waits, else the next; of a recording, the next."""
        line = stream.line(LINE_TIMEOUT_S + 2 * self._interval() / 1000)
        while self._world.content is None:
            try:
                line = stream.line(0)
            except TransientError:
                break
        return line


def _parsed(text: str) -> tuple[tuple[Rail, ...], bool]:
    """Return the rails of a line, and whether they have units."""
    matches = [match for match in RAIL.finditer(MEMORY.sub(" ", text)) if jetson_rails.is_rail(match["name"])]
    names = [match["name"] for match in matches]
    if len(set(names)) < len(names):
        raise TransientError(f"tegrastats printed a rail twice in one line ({', '.join(names)}): the line is garbled; read it again")
    if not matches and (begun := RAIL_BEGINS.search(text)):
        raise TransientError(
            f"tegrastats printed {text[begun.start() :][:40].strip()!r}, and no whole rail: the line is cut or garbled; read it again"
        )
    return tuple(Rail(match["name"], int(match["now"]) / 1000) for match in matches), any(match["unit"] for match in matches)


def _why(unexpected: str, error: EdgemeterError | None) -> str:
    if unexpected:
        return f"tegrastats printed no line of its own but {unexpected[:200]!r}: start it by hand and follow what it prints"
    return f"tegrastats printed no line that we know{f' ({error})' if error else ''}: start it by hand to see why"
