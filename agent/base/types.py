"""Constrained types of configuration, messages and records.

They are names, numbers, ratios, quantities and hashes.

JSON and Python know integers of any size; a database, an array and most languages do not, so each
integer that travels has bounds. What is measured has bounds too: wider than any machine, and so
narrow that ratios, squares and logarithms of it stay finite.
"""

from typing import Annotated, Literal

import msgspec

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Hex = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{1,64}\Z")]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
TimeNs = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
# Every language reads such integers exactly from JSON; sums of counts stay well within 64 bits.
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
Positive = Annotated[int, msgspec.Meta(ge=1, lt=2**53)]
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]
LEAST, MOST = 1e-12, 1e15
# A time, an energy or a power that is above 0; one that may be 0, as a rate; and one that may be
# below 0, as a difference.
Quantity = Annotated[float, msgspec.Meta(ge=LEAST, le=MOST)]
QuantityOrZero = Annotated[float, msgspec.Meta(ge=0, le=MOST)]
SignedQuantity = Annotated[float, msgspec.Meta(ge=-MOST, le=MOST)]
Celsius = Annotated[float, msgspec.Meta(ge=-273.15, le=10_000)]
# A name becomes an MQTT topic level and an InfluxDB tag: neither may contain a separator, a
# wildcard or a control character. A reference is the device that others are compared with.
Role = Literal["device", "reference"]
Name = Annotated[
    str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:@-]*\Z")
]
