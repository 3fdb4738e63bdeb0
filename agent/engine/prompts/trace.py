"""Traces of requests: when each came and how long it was, replayed as an open loop with synthetic prompts of these lengths.

| trace | form | columns | time |
|---|---|---|---|
| Mooncake | JSON Lines | timestamp, input_length, output_length | ms |
| plain | JSON Lines, CSV | timestamp_s, input_length, output_length | s |
| Azure LLM inference | CSV | TIMESTAMP, ContextTokens, GeneratedTokens | date and time |
| BurstGPT | CSV | Timestamp, Request tokens, Response tokens | s |

Other columns are ignored, `hash_ids` too: prompts share no prefix. Requests without a token, which failed when the trace was recorded,
are left out. Source: kvcache-ai/Mooncake, FAST25 traces; Azure/AzurePublicDataset, AzureLLMInferenceDataset2023 and 2024; HPMLL/BurstGPT.
"""

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from edgemeter.agent.base.durable_file import sha256_of
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.items import json_lines, read_text
from edgemeter.agent.engine.prompts import Prompts
from edgemeter.agent.engine.prompts.synthetic import SyntheticPrompts
from edgemeter.agent.generators import Limits, Prompt

# Column of the time, its unit in ns (None: date and time), columns of the lengths.
_FORMS: tuple[tuple[str, float | None, str, str], ...] = (
    ("timestamp", 1e6, "input_length", "output_length"),
    ("timestamp_s", 1e9, "input_length", "output_length"),
    ("TIMESTAMP", None, "ContextTokens", "GeneratedTokens"),
    ("Timestamp", 1e9, "Request tokens", "Response tokens"),
)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:\+00:00|Z)?")


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request: when it came after the first, in ns, and its lengths in tokens."""

    offset_ns: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """The requests of a file in the order of their arrival; `left_out` had no tokens."""

    name: str
    sha256: str
    requests: tuple[TracedRequest, ...]
    left_out: int

    @property
    def offsets_ns(self) -> tuple[int, ...]:
        """When each request comes after the first."""
        return tuple(request.offset_ns for request in self.requests)

    @property
    def longest_output_tokens(self) -> int:
        """The most tokens that are asked for."""
        return max(request.output_tokens for request in self.requests)

    @property
    def longest_tokens(self) -> int:
        """The longest request with its answer."""
        return max(request.input_tokens + request.output_tokens for request in self.requests)


def read_trace(path: Path) -> Trace:
    """Return the trace in a file; raises ConfigError if it is of no form that is known, with the line, or holds no request."""
    text = read_text(path, "the trace")
    requests = []
    is_json = text.lstrip().startswith("{")
    rows = json_lines(repr(str(path)), text.encode(), dict[str, Any]) if is_json else enumerate(csv.DictReader(io.StringIO(text)), 2)
    for number, row in rows:
        try:
            requests.append(_request(row))
        except (KeyError, TypeError, ValueError) as error:
            forms = "; ".join(f"{time}, {inputs}, {outputs}" for time, _, inputs, outputs in _FORMS)
            raise ConfigError(f"{str(path)!r}, line {number} is no request ({error}): its columns have to be one of {forms}") from error
    with_tokens = sorted(
        (request for request in requests if request.input_tokens and request.output_tokens), key=lambda request: request.offset_ns
    )
    if not with_tokens:
        raise ConfigError(f"{str(path)!r} holds no request with tokens: give a trace with at least one")
    begin_ns = with_tokens[0].offset_ns
    shifted = tuple(replace(request, offset_ns=request.offset_ns - begin_ns) for request in with_tokens)
    return Trace(path.name, sha256_of(path), shifted, len(requests) - len(with_tokens))


def _request(row: Mapping[str, Any]) -> TracedRequest:
    for column, unit_ns, inputs, outputs in _FORMS:
        if column in row and inputs in row:
            moment_ns = _date_ns(row[column]) if unit_ns is None else round(float(row[column]) * unit_ns)
            lengths = int(row[inputs]), int(row[outputs])
            if min(lengths) < 0:
                raise ValueError(f"{min(lengths)} tokens")
            return TracedRequest(moment_ns, *lengths)
    raise KeyError("no such columns")


def _date_ns(text: str) -> int:
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no date and time")
    day, clock, fraction = match.groups()
    whole_s = datetime.strptime(f"{day} {clock}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    return int(whole_s) * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


class TracePrompts(Prompts):
    """Makes a synthetic prompt as long as each request of a trace, in the warm-up as its first, so that times settle."""

    def __init__(self, trace: Trace, synthetic: SyntheticPrompts) -> None:
        self._requests, self._synthetic = trace.requests, synthetic

    def of(self, number: int) -> Prompt:
        """Return the prompt of a request; see `Prompts.of`."""
        return self._synthetic.of(number, self._requests[max(number, 0)].input_tokens)

    def limits(self, number: int, limits: Limits) -> Limits:
        """Return the limits with the request's own number of tokens."""
        return replace(limits, output_tokens=self._requests[max(number, 0)].output_tokens)
