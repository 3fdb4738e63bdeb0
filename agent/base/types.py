"""Constrained types of configuration, messages and records: names, counts, ratios, hashes."""

from typing import Annotated

import msgspec

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, msgspec.Meta(ge=0)]
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]
# A name becomes an MQTT topic level and an InfluxDB tag: neither may hold a separator, a wildcard or a control character.
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:@-]*\Z")]
