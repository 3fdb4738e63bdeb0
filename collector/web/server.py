"""The server of the page: reads only, one thread for each request, and a thread that keeps the index up to date."""

import gzip
import hashlib
import hmac
import logging
import socket
import threading
import time
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from ipaddress import ip_address
from urllib.parse import urlsplit

from edgemeter.agent.errors import ConfigError, EdgemeterError, TransientError, UnavailableError
from edgemeter.collector.show.markup import element
from edgemeter.collector.web import shell
from edgemeter.collector.web.book import Book, Happenings
from edgemeter.collector.web.queries import NS_PER_DAY
from edgemeter.collector.web.run_index import RunIndex
from edgemeter.collector.web.site import content, offered, served_exports, show
from edgemeter.collector.web.view import Asked, ServedLinks, View, address, read_address

logger = logging.getLogger(__name__)

REFRESH_S = 2.0
REQUEST_TIMEOUT_S = 30.0
COOKIE = "edgemeter_token"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
COMPRESS_FROM_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is answered with."""

    status: int
    kind: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class PageServer:
    """Serves the page of `index` at `host`:`port` (0: a free one). Beyond the loopback a token has to be set.

    Raises:
        ConfigError: the address is not the loopback's and there is no token.
        UnavailableError: the address cannot be listened at.
    """

    index: RunIndex
    happenings: Happenings
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    _server: ThreadingHTTPServer = field(init=False)
    _ended: threading.Event = field(init=False, default_factory=threading.Event)
    _threads: list[threading.Thread] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if not _is_loopback(self.host) and not self.token:
            ways = "set a token (--token-file FILE, or EDGEMETER_WEB_TOKEN), or listen at 127.0.0.1"
            message = f"{self.host!r} can be reached from elsewhere: {ways}"
            raise ConfigError(message)
        handler = type("Handler", (_Handler,), {"page": self})
        kind = type(
            "Server",
            (ThreadingHTTPServer,),
            {"address_family": socket.AF_INET6 if ":" in self.host else socket.AF_INET, "daemon_threads": True},
        )
        try:
            self._server = kind((self.host, self.port), handler)
        except OSError as error:
            message = f"cannot listen at {self.host!r}, port {self.port}: {error.strerror}: name another with --port or --listen"
            raise UnavailableError(message) from error
        self.port = self._server.server_address[1]

    @property
    def url(self) -> str:
        """Return where the page is."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"

    def start(self) -> None:
        """Answer requests and keep the index up to date, each in a thread, until `stop`."""
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._server.serve_forever, self._keep_up)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End both threads."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join()

    def answer(self, asked: Asked, form: str) -> Answer:
        """Return the page, the CSV or the JSON of an address."""
        with self.index.reading() as connection:
            book = Book(connection, self.index.source, ServedLinks(), self.happenings)
            view = show(book, asked)
            if view is None:
                return _message(404, "There is no such page", f"Nothing is at {asked.view!r}.")
            if form == "csv" and view.tables:
                name = (("Content-Disposition", f'attachment; filename="edgemeter-{asked.view}.csv"'),)
                return Answer(200, "text/csv; charset=utf-8", view.tables[0].to_csv().encode(), name)
            if form == "csv":
                return _message(404, "Nothing to write", "This view has no figure that a CSV file could hold.")
            if form == "json":
                return Answer(200, "application/json", view.to_json(asked))
            return self._page(book, asked, view)

    def tag(self, asked: Asked, form: str) -> str:
        """Return what the answer's content hangs on: what is in the index, and the address."""
        state = f"{self.index.position()} {self.index.stale()} {self.index.source.version()} {self.happenings.version()}"
        # What is said of ages changes with the day.
        whole = f"{state} {time.time_ns() // NS_PER_DAY} {version('edgemeter')} {asked.address} {form}"
        return f'"{hashlib.sha256(whole.encode()).hexdigest()[:24]}"'

    def _page(self, book: Book, asked: Asked, view: View) -> Answer:
        position, last = self.index.position(), self.index.source.last_row()
        behind = f" {last - position:,} more records are being read in." if last > position else ""
        inside = content(view, asked, offered(book), book.links, served_exports(asked))
        return Answer(200, "text/html; charset=utf-8", shell.served(view.title, inside, f"{position:,} records.{behind}").encode())

    def _keep_up(self) -> None:
        while not self._ended.is_set():
            try:
                self.index.refresh()
                self.happenings.refresh()
            except EdgemeterError as error:
                logger.warning("the page cannot be brought up to date: %s", error)
            self._ended.wait(REFRESH_S)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; everything else is refused."""

    page: PageServer
    protocol_version = "HTTP/1.1"
    server_version = "edgemeter"
    sys_version = ""
    timeout = REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        """Answer with the whole."""
        self._send(self._answer())

    def do_HEAD(self) -> None:
        """Answer without the body."""
        self._send(self._answer())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log at debug: a page that is looked at is no news."""
        logger.debug(format, *args)

    def _answer(self) -> Answer:  # noqa: PLR0911 - one for each reason to refuse
        parts = urlsplit(self.path)
        asked = read_address(f"{parts.path.strip('/')}?{parts.query}")
        if not self._is_for_us():
            return _message(421, "Not for this server", "The page is served to this machine only, under the name localhost.")
        if self.page.token is not None:
            given = asked.get("token")
            if given and _equal(given, self.page.token):
                return self._let_in(asked)
            if not self._has_token(self.page.token):
                return _message(401, "A token is needed", "Add ?token=TOKEN to the address once, or send it as a bearer token.")
        if asked.view in {"page.css", "page.js"}:
            return _part(asked.view)
        form = asked.get("format")
        if form not in {"", "csv", "json"}:
            return _message(404, "There is no such format", f"format={form!r}: there are csv and json.")
        asked = Asked(asked.view, {name: value for name, value in asked.fields.items() if name not in {"format", "token"}})
        try:
            tag = self.page.tag(asked, form)
            if self.headers.get("If-None-Match") == tag:
                return Answer(304, "", b"", (("ETag", tag),))
            found = self.page.answer(asked, form)
        except TransientError as error:
            return _message(503, "Try again", str(error))
        except EdgemeterError as error:
            return _message(404, "This cannot be shown", str(error))
        return Answer(found.status, found.kind, found.body, (*found.headers, ("ETag", tag)))

    def _is_for_us(self) -> bool:
        """Return whether the request names this machine; another name would be a page elsewhere that reads ours through the browser."""
        if not _is_loopback(self.page.host) or self.page.token is not None:
            return True
        host = self.headers.get("Host", "")
        return (host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host).lower() in LOOPBACK_NAMES

    def _has_token(self, token: str) -> bool:
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer" and _equal(given.strip(), token):
            return True
        try:
            morsel = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return morsel is not None and _equal(morsel.value, hashlib.sha256(token.encode()).hexdigest())

    def _let_in(self, asked: Asked) -> Answer:
        # The token leaves the address, where it would be kept and passed on; what stays is a digest of it, out of reach of scripts.
        place = f"/{address(asked.view, {name: value for name, value in asked.fields.items() if name != 'token'})}"
        cookie = f"{COOKIE}={hashlib.sha256((self.page.token or '').encode()).hexdigest()}; HttpOnly; SameSite=Strict; Path=/"
        return Answer(303, "text/plain", b"", (("Location", place), ("Set-Cookie", cookie)))

    def _send(self, answer: Answer) -> None:
        body = answer.body
        is_small = len(body) < COMPRESS_FROM_BYTES or "gzip" not in self.headers.get("Accept-Encoding", "")
        if not is_small:
            body = gzip.compress(body, 3)
        self.send_response(answer.status)
        headers = [("Content-Type", answer.kind)] if answer.kind else []
        headers += [] if is_small else [("Content-Encoding", "gzip")]
        headers += [
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-cache, private"),
            ("Vary", "Accept-Encoding, Cookie, Authorization"),
        ]
        headers += [
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Content-Security-Policy", shell.SERVED_POLICY),
        ]
        for name, value in (*headers, *answer.headers):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _part(name: str) -> Answer:
    if name == "page.css":
        return Answer(200, "text/css; charset=utf-8", shell.styles().encode())
    return Answer(200, "text/javascript; charset=utf-8", shell.script().encode())


def _message(status: int, title: str, text: str) -> Answer:
    inside = element(
        "main",
        {"id": "content"},
        element(
            "section",
            None,
            element("h1", None, title),
            element("p", None, text),
            element("p", None, element("a", {"href": "/"}, "Overview")),
        ),
    )
    return Answer(status, "text/html; charset=utf-8", shell.served(title, inside, "").encode())


def _equal(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
