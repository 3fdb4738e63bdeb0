"""The address of a ledger in PostgreSQL, as for libpq.

Its form is `postgresql://[USER[:PASSWORD]@]HOST[:PORT][,...]/DATABASE[?KEY=VALUE...]`.
"""

import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlencode

from edgemeter.agent.base.errors import ConfigError

SCHEMES = ("postgresql://", "postgres://")
_ENCODED = "and in a password / as %2F, ? as %3F, # as %23, @ as %40"
# Keys of an address with secret values.
_SECRET_KEYS = ("password", "sslpassword")
_PARTS = re.compile(
    r"postgres(?:ql)?://(?:(?P<user>[^/?#]*)@)?(?P<hosts>[^/?#@]*)"
    r"(?:/(?P<database>[^/?#@]*))?(?:\?(?P<query>[^#@]*))?$"
)


def is_postgres(text: str) -> bool:
    return text.startswith(SCHEMES)


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """The address of a database, shown without its password; `connection` is the text for libpq.

    The server's certificate is verified unless every host is this machine, or the address says
    otherwise (`sslmode`): libpq silently falls back to clear text.

    Raises:
        ConfigError: it is not an address, or names no database.
    """

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self._parts.get("database"):
            raise ConfigError(
                f"{self} is not the address of a database: write "
                f"postgresql://USER@HOST/DATABASE, {_ENCODED}"
            )

    def __str__(self) -> str:
        parts = self._parts
        if not parts:
            return "the given address"
        user = parts["user"].partition(":")[0]
        public = [(key, value) for key, value in self._options if key not in _SECRET_KEYS]
        query = f"?{urlencode(public, safe='/,:')}" if public else ""
        return (
            f"postgresql://{f'{user}@' if user else ''}{parts['hosts']}/{parts['database']}{query}"
        )

    def __repr__(self) -> str:
        return f"PostgresAddress({str(self)!r})"

    @property
    def connection(self) -> str:
        """The address for libpq, with the certificate verified unless it says otherwise."""
        if "sslmode" in dict(self._options) or all(map(_is_here, self._hosts)):
            return self.text
        # By default, libpq uses the user's certificate authorities only; the system's have to be
        # named (from version 16 on).
        return f"{self.text}{'&' if '?' in self.text else '?'}sslmode=verify-full"

    @property
    def name(self) -> str:
        """A name for files about this ledger.

        It is independent of user, password and options except the schema.
        """
        import hashlib  # noqa: PLC0415 - it brings OpenSSL

        schema = [value for key, value in self._options if key == "options"]
        parts = [*sorted(self._hosts), unquote(self._parts["database"]), *schema]
        return f"postgresql-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}"

    @property
    def _parts(self) -> dict[str, str]:
        match = _PARTS.match(self.text)
        return match.groupdict("") if match else {}

    @property
    def _options(self) -> list[tuple[str, str]]:
        return parse_qsl(self._parts["query"], keep_blank_values=True)

    @property
    def _hosts(self) -> list[str]:
        named = [value for key, value in self._options if key in ("host", "hostaddr")]
        return ",".join(named or [self._parts["hosts"]]).split(",")


def _is_here(host: str) -> bool:
    """Return whether a host is this machine: the loopback address, or the folder of a socket."""
    name = unquote(host)
    bare = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    if not bare or bare == "localhost" or bare.startswith(("/", "@")):
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False
