"""A session with a ledger in PostgreSQL: the only module that imports psycopg.

It reconnects, and its errors have a remedy.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgemeter.agent.base.deadlines import SocketDeadline
from edgemeter.agent.base.errors import (
    ConfigError,
    EdgemeterError,
    TransientError,
    UnavailableError,
    one_line,
)
from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.agent.base.sqlite_file import Access

if TYPE_CHECKING:
    import psycopg

Cursor = Any
# A dead server or line is noticed within about 15 s; a client that stops in a transaction blocks
# others for no longer than this.
_PARAMETERS = {
    "connect_timeout": "10", "keepalives_idle": "5", "keepalives_interval": "2",
    "keepalives_count": "3", "tcp_user_timeout": "15000", "application_name": "edgemeter",
    "client_encoding": "utf8",
}  # fmt: skip
# Longer than the server's own limits, so that its error names the cause; and the limit of a
# reader's query.
DEADLINE_S, READ_DEADLINE_S = 40.0, 600.0
_SETTINGS = (
    "SET idle_in_transaction_session_timeout = '10s'; SET lock_timeout = '30s'; SET "
    "default_transaction_isolation = 'read committed'"
)
# Source: PostgreSQL, appendix A, error codes.
_MEANINGS: tuple[tuple[tuple[str, ...], type[EdgemeterError], str], ...] = (
    (
        ("42P01", "3F000", "42703"),
        ConfigError,
        (
            "no ledger at {where} ({text}): make its tables with `edgemeter collector "
            "init-ledger --ledger {where}`"
        ),
    ),
    (
        ("42501",),
        ConfigError,
        (
            "the user of {where} may not do this ({text}): grant it edgemeter_write, or "
            "edgemeter_keep, which may also remove records"
        ),
    ),
    (
        ("25006",),
        UnavailableError,
        "{where} is read-only: name the primary, not a standby, among the hosts of the address",
    ),
    (
        ("40", "55P03", "57014", "25P0", "23503"),
        TransientError,
        "{where} cannot do it now ({text}): try again",
    ),
    (
        ("53",),
        UnavailableError,
        "{where} has no room or no connection left ({text}): nothing is lost; free some",
    ),
)


class UnstorableError(ConfigError):
    """A value that PostgreSQL cannot store, such as a text with a NUL character."""


def number_array(numbers: Iterable[float | str | None]) -> str:
    """Return an array of numbers as one value, ten times as fast as a list in the driver."""
    return "{%s}" % ",".join(map(str, numbers))  # noqa: UP031 - braces


def text_array(texts: Sequence[str]) -> str:
    """Return an array of texts as one value, as `number_array`."""
    joined = '","'.join(texts)
    if "\\" in joined or joined.count('"') != 2 * max(0, len(texts) - 1):
        joined = '","'.join(text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return '{"%s"}' % joined if texts else "{}"  # noqa: UP031 - braces


class MarkedStatements:
    """Executes statements with SQLite's `?` markers; `executemany` accepts no values too.

    `awaiting` surrounds each call.
    """

    def __init__(
        self,
        connection: "psycopg.Connection[Any]",
        awaiting: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._connection = connection
        self._awaiting = awaiting

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Cursor:
        with self._awaiting():
            return self._connection.execute(statement.replace("?", "%s"), values or None)

    def executemany(self, statement: str, values: Iterable[Sequence[Any]], /) -> Cursor:
        cursor = self._connection.cursor()
        with self._awaiting():
            cursor.executemany(statement.replace("?", "%s"), list(values))
        return cursor

    @contextmanager
    def together(self) -> Iterator["MarkedStatements"]:
        """Yield an object that sends statements without waiting.

        The block ends when all are answered, or raises the first error.
        """
        with self._awaiting(), self._connection.pipeline():
            yield MarkedStatements(self._connection, nullcontext)


class LedgerSession:
    """A connection to `address`, made on first use and again after a failure.

    It is for one thread at a time.

    `generation` rises with each connection: cached facts about the database may not be valid after
    a failover.
    """

    def __init__(
        self, address: PostgresAddress, access: Access = "write", deadline_s: float | None = None
    ) -> None:
        self.address = address
        self._deadline_s = deadline_s or (DEADLINE_S if access == "write" else READ_DEADLINE_S)
        self._deadline: SocketDeadline | None = None
        self.generation = 0
        self._access = access
        self._driver = _driver()
        self._connection: psycopg.Connection[Any] | None = None
        self._warnings: list[str] = []

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._let_go()

    @contextmanager
    def transaction(self) -> Iterator["MarkedStatements"]:
        """Yield an object that executes statements in one transaction.

        It is committed when the block ends.

        A server that did not wait for its standby reports that in a warning only: then the commit
        counts as unsafe.

        Raises:
            UnstorableError: a value cannot be stored.
            ConfigError: there are no tables, or the role may not do this.
            UnavailableError: the server does not answer, or its disk is full.
            TransientError: another session holds a lock, or the commit is not safe; retry.
        """
        with self._mapped(), ExitStack() as stack:
            connection = self._connected()
            # COMMIT and ROLLBACK have the deadline too; work between statements has none.
            stack.enter_context(self._awaiting())
            stack.enter_context(connection.transaction())
            self._expect(is_awaited=False)
            try:
                yield MarkedStatements(connection, self._awaiting)
                self._warnings.clear()
            finally:
                self._expect(is_awaited=True)
        if self._warnings:
            raise TransientError(
                f"{self.address} warned at COMMIT ({one_line(self._warnings[0])}): it is "
                "committed again"
            )

    def query(self, statement: str, *values: Any) -> list[Any]:
        """Return the rows of a query; raises as `transaction`."""
        with self._mapped():
            connection = self._connected()
            with self._awaiting():
                return connection.execute(statement.replace("?", "%s"), values or None).fetchall()

    def _connected(self) -> "psycopg.Connection[Any]":
        if self._connection is None or self._connection.closed:
            self._let_go()
            parameters = self._driver.conninfo.conninfo_to_dict(self.address.connection)
            defaults = _PARAMETERS | (
                {"target_session_attrs": "read-write"} if self._access == "write" else {}
            )
            connection = self._driver.connect(
                **{**defaults, **parameters}, autocommit=True, prepare_threshold=None
            )
            connection.add_notice_handler(self._noticed)
            try:
                self._deadline = SocketDeadline(connection.fileno())
                with self._awaiting():
                    connection.execute(
                        _SETTINGS
                        + (
                            "; SET default_transaction_read_only = on"
                            if self._access == "read"
                            else ""
                        )
                    )
            except self._driver.Error:
                connection.close()
                raise
            except OSError as error:
                connection.close()
                raise UnavailableError(
                    f"no connection to {self.address} ({error}): raise the limit of "
                    "open files (ulimit -n)"
                ) from error
            self._connection = connection
            self.generation += 1
        return self._connection

    @contextmanager
    def _awaiting(self) -> Iterator[None]:
        """Limit the time of the server's answers in the block."""
        self._expect(is_awaited=True)
        try:
            yield
        finally:
            self._expect(is_awaited=False)

    def _expect(self, *, is_awaited: bool) -> None:
        if self._deadline is not None:
            self._deadline.begin(self._deadline_s) if is_awaited else self._deadline.end()

    def _let_go(self) -> None:
        if self._deadline is not None:
            self._deadline.close()
            self._deadline = None

    def _noticed(self, diagnostic: Any) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            self._warnings.append(diagnostic.message_primary or "no reason")

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except self._driver.Error as error:
            if self._deadline is not None and self._deadline.is_expired:
                raise TransientError(
                    f"{self.address} did not answer within {self._deadline_s:.0f} s: trying the "
                    "next host of the address"
                ) from error
            raise self._ours(error) from error
        except UnicodeEncodeError as error:
            raise UnstorableError(
                f"not a text that PostgreSQL can store: {one_line(error)}"
            ) from error

    def _ours(self, error: Any) -> EdgemeterError:
        state, text = error.sqlstate or "", one_line(error)
        if isinstance(error, self._driver.DataError) or state.startswith(("22", "54")):
            return UnstorableError(f"PostgreSQL cannot store it: {text}")
        for states, kind, words in _MEANINGS:
            if state.startswith(states):
                return kind(words.format(where=self.address, text=text))
        return UnavailableError(
            f"the ledger at {self.address} does not answer ({text}): check the address, the "
            "server and its log"
        )


def _driver() -> Any:
    try:
        import_module("psycopg.conninfo")
        driver = import_module("psycopg")
    except ImportError as error:
        raise UnavailableError(
            f"a ledger in PostgreSQL needs psycopg ({one_line(error)}): pip install "
            "'edgemeter[postgres]'"
        ) from error
    # psycopg logs the error that it also raises.
    with suppress(AttributeError):
        logging.getLogger("psycopg").setLevel(logging.ERROR)
    return driver
