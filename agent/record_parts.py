"""A record in two parts: what is asked for often, and the raw samples, which are most of its bytes.

Both parts are the JSON text as it came, so that a store keeps the fields that this version does not know yet.
"""

import msgspec

from edgemeter.agent.errors import ConfigError

NO_SAMPLES = b"[]"

_document = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()


def part(payload: bytes) -> tuple[bytes, bytes]:
    """Return the record's JSON without its samples, and the JSON array of its samples.

    Raises:
        ConfigError: `payload` is not a JSON object.
    """
    fields = _fields(payload)
    samples = fields.pop("samples", None)
    return _encoder.encode(fields), NO_SAMPLES if samples is None else bytes(samples)


def whole(head: bytes, samples: bytes) -> bytes:
    """Return the record's JSON that `part` took apart.

    Raises:
        ConfigError: `head` is not a JSON object.
    """
    return _encoder.encode(_fields(head) | {"samples": msgspec.Raw(samples)})


def changed(head: bytes, **changes: str | int) -> bytes:
    """Return the record's JSON with these fields changed or added.

    Raises:
        ConfigError: `head` is not a JSON object.
    """
    return _encoder.encode(_fields(head) | {name: msgspec.Raw(_encoder.encode(value)) for name, value in changes.items()})


def _fields(payload: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _document.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        message = f"not a run record: {error}"
        raise ConfigError(message) from error
