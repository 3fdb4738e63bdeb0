"""The server of the page: reads only, one thread for each request, and a thread that keeps the index up to date."""

import gzip
import hashlib
import hmac
import logging
import threading
import time
from dataclasses import dataclass, field, replace
from http.cookies import CookieError, SimpleCookie
from importlib.metadata import version
from urllib.parse import urlsplit

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.base.figures import count
from edgemeter.agent.base.http_server import HttpHandler, HttpServer, is_loopback
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.collector.charts import vega
from edgemeter.collector.index.run_index import RunIndex
from edgemeter.collector.published.published_folder import PublishedFolder, default_folder
from edgemeter.collector.show.page_links import address
from edgemeter.collector.trend.history import without_garbage_collection
from edgemeter.collector.web.activity import read_activities
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.live import LiveFeed
from edgemeter.collector.web.markup import render, text_of
from edgemeter.collector.web.site import SERVED_POLICY, STYLE_SHEET, content, offered, script, served_page, show
from edgemeter.collector.web.view import ServedLinks, View, ViewRequest, read_address, read_period

logger = logging.getLogger(__name__)
REFRESH_S = 2.0
# An answer takes some 20 MB while it is made, which the process keeps; more at once would not be made any sooner.
MADE_AT_ONCE = 2
COOKIE = "edgemeter_token"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
COMPRESS_FROM_BYTES = 1024
# What has its content in its name never changes.
FOREVER = "public, max-age=31536000, immutable"
LIVE, LONGEST_ROW = "live", 18


@dataclass(frozen=True, slots=True)
class PageResponse:
    """The response to a request."""

    status: int
    kind: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class PageServer:
    """Serves the page of `index` at `host`:`port` (0: a free one, then in `port`). Beyond the loopback a token has to be set.

    Raises:
        ConfigError: the address is not the loopback's and there is no token.
    """

    index: RunIndex
    events: TrendEvents
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    heartbeat_s: float = 10.0
    published: PublishedFolder = field(default_factory=default_folder)
    live: LiveFeed = field(init=False)
    _server: HttpServer = field(init=False)
    _ended: threading.Event = field(init=False, default_factory=threading.Event)
    _making: threading.Semaphore = field(init=False, default_factory=lambda: threading.Semaphore(MADE_AT_ONCE))
    _refreshing: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.token:
            ways = "set a token (--token-file FILE, or EDGEMETER_WEB_TOKEN), or listen at 127.0.0.1"
            raise ConfigError(f"{self.host!r} can be reached from other machines: {ways}")
        self.live = LiveFeed(self.index, self.heartbeat_s)
        self._refreshing = threading.Thread(target=self._keep_up, name="edgemeter-page", daemon=True)

    @property
    def url(self) -> str:
        """Return where the page is."""
        return f"http://{self._server.authority}/"

    def start(self) -> None:
        """Answer requests and keep the index up to date, each in a thread, until `stop`.

        Raises:
            UnavailableError: the address cannot be listened at.
        """
        self._server = _HttpServer(self)
        self.port = self._server.port
        self._server.start()
        self._refreshing.start()

    def stop(self) -> None:
        """End both threads."""
        self._ended.set()
        self.live.end()
        self._server.stop()
        self._refreshing.join()

    def answer(self, request: ViewRequest, form: str) -> PageResponse:
        """Return the page of an address, or its figures as CSV or JSON."""
        # Before anything is read: what comes meanwhile is sent to the open page.
        position, doing = self.index.position(), self._doing()
        with self._making, self.index.reading() as connection, without_garbage_collection():
            context = ViewContext(
                connection, self.index.source, ServedLinks(), self.events, published=self.published,
            )  # fmt: skip
            view = show(context, request)
            if view is None:
                return _message(404, "There is no such page", f"There is no view {request.view!r}.")
            if form and (period := read_period(request.get("between"))):
                view = view.between(*period)
            if form == "csv" and view.tables:
                return PageResponse(200, "text/csv; charset=utf-8", view.tables[0].to_csv().encode(), _named(f"{request.view}.csv"))
            if form == "csv":
                return _message(404, "Nothing to write", "This view has no figure that a CSV file could hold.")
            if form == "json":
                return PageResponse(200, "application/json", view.to_json(request))
            return self._page(context, request, view, (position, doing))

    def tag(self, request: ViewRequest, form: str) -> str:
        """Return what the answer's content hangs on: what is in the index, and the address."""
        state = f"{self.index.position()} {self.index.stale()} {self.index.source.version()} {self.events.version()}"
        if request.view in {"overview", "device", "jobs"}:
            # What is measured now becomes stale by itself.
            state += f" {self._doing()}"
        if request.view == "published":
            state += f" {self.published.version()}"
        # Ages change with the day.
        identity = f"{state} {time.time_ns() // NS_PER_DAY} {version('edgemeter')} {request.address} {form}"
        return f'"{hashlib.sha256(identity.encode()).hexdigest()[:24]}"'

    def _page(self, context: ViewContext, request: ViewRequest, view: View, moment: tuple[int, str]) -> PageResponse:
        position, _ = moment
        last = self.index.source.last_row()
        behind = f" {last - position:,} more records are being read." if last > position else ""
        exports = {form: f"/{address(request.view, {**request.fields, 'format': form})}" for form in ("csv", "json")}
        inside = content(view, request, offered(context), context.links, exports)
        skipped, newest = self.index.skipped()
        unread = f" {count(skipped, 'record')} cannot be read, the last is {newest}." if skipped else ""
        page = served_page(view.title, inside, f"{position:,} records.{behind}{unread}", moment)
        return PageResponse(200, "text/html; charset=utf-8", page.encode())

    def _doing(self) -> str:
        return read_activities(self.index.source, time.time_ns()).key

    def update(self) -> None:
        """Bring index, open pages and events up to date; what cannot be read is logged, and tried again the next time."""
        try:
            position = self.index.refresh()
            devices = self.index.source.devices() if self.live.has_clients else None
            states = None if devices is None else {(device.fleet, device.device): device.state for device in devices}
            self.live.publish(position, states, self._doing() if self.live.has_clients else None)
            self.events.refresh()
        except EdgemeterError as error:
            logger.warning("cannot update the page: %s", error)

    def _keep_up(self) -> None:
        while not self._ended.is_set():
            self.update()
            self._ended.wait(REFRESH_S)


class _HttpServer(HttpServer):
    def __init__(self, page: PageServer) -> None:
        self.page = page
        super().__init__(page.host, page.port, PageHandler, "--port or --listen")


class PageHandler(HttpHandler):
    """Answers GET and HEAD; everything else is refused."""

    server: _HttpServer

    @property
    def page(self) -> PageServer:
        """The page that answers."""
        return self.server.page

    def answer(self) -> None:
        """Answer a request."""
        try:
            parts = urlsplit(self.path)
            request = read_address(f"{parts.path.strip('/')}?{parts.query}")
        except (ConfigError, ValueError) as error:
            self._send(PageResponse(400, "text/plain; charset=utf-8", f"{error}\n".encode()))
            return
        if refused := self._refusal(request):
            self._send(refused)
        elif request.view == LIVE:
            self._stream(self.headers.get("Last-Event-ID") or request.get("after"), request.fields.get("now"))
        else:
            self._send(self._answer(request))

    def _refusal(self, request: ViewRequest) -> PageResponse | None:
        host = self.headers.get("Host", "")
        name = (host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host).lower()
        # Another name would be a page elsewhere that reads ours through the browser.
        if is_loopback(self.page.host) and self.page.token is None and name not in LOOPBACK_NAMES:
            return _message(421, "Not for this server", "The page is served to this machine only, under the name localhost.")
        if self.page.token is not None:
            token = request.get("token")
            if token and _equal(token, self.page.token):
                return self._let_in(request)
            if not self._has_token(self.page.token):
                return _message(401, "A token is needed", "Add ?token=TOKEN to the address once, or send it as a bearer token.")
        return None

    def _stream(self, after: str, doing: str | None) -> None:
        # An answer without a length ends with its connection.
        self.close_connection = True
        position = int(after) if after.isascii() and after.isdigit() and len(after) <= LONGEST_ROW else self.page.index.position()
        try:
            with self.page.live.client():
                self.send_response(200)
                for name, value in (("Content-Type", "text/event-stream"), ("Cache-Control", "no-store"), ("Connection", "close")):
                    self.send_header(name, value)
                self.end_headers()
                for event in self.page.live.events(position, doing) if self.command == "GET" else ():
                    self.wfile.write(event)
        except TransientError as error:
            self._send(_message(503, "Try again", str(error)))
        except OSError as error:
            logger.debug("%s has gone: %s", self.client_address, error)

    def _answer(self, request: ViewRequest) -> PageResponse:
        form = request.get("format")
        if form not in {"", "csv", "json"}:
            return _message(404, "There is no such format", f"format={form!r}: there are csv, json.")
        request = replace(request, fields={name: value for name, value in request.fields.items() if name not in {"format", "token"}})
        try:
            if part := _part(request.view):
                return part
            tag = self.page.tag(request, form)
            if self.headers.get("If-None-Match") == tag:
                return PageResponse(304, "", b"", (("ETag", tag),))
            response = self.page.answer(request, form)
        except (TransientError, UnavailableError) as error:
            return _message(503, "Try again", str(error))
        except EdgemeterError as error:
            return _message(404, "This cannot be shown", str(error))
        return PageResponse(response.status, response.kind, response.body, (*response.headers, ("ETag", tag)))

    def _has_token(self, token: str) -> bool:
        kind, _, credential = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer" and _equal(credential.strip(), token):
            return True
        try:
            morsel = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return morsel is not None and _equal(morsel.value, hashlib.sha256(token.encode()).hexdigest())

    def _let_in(self, request: ViewRequest) -> PageResponse:
        # The token leaves the address, where it would be kept and passed on; what stays is a digest of it, out of reach of scripts.
        location = f"/{address(request.view, {name: value for name, value in request.fields.items() if name != 'token'})}"
        cookie = f"{COOKIE}={hashlib.sha256((self.page.token or '').encode()).hexdigest()}; HttpOnly; SameSite=Strict; Path=/"
        return PageResponse(303, "text/plain", b"", (("Location", location), ("Set-Cookie", cookie)))

    def _send(self, answer: PageResponse) -> None:
        body = answer.body
        is_small = len(body) < COMPRESS_FROM_BYTES or "gzip" not in self.headers.get("Accept-Encoding", "")
        if not is_small:
            body = gzip.compress(body, 3)
        headers = [
            *([("Content-Type", answer.kind)] if answer.kind else []),
            *([] if is_small else [("Content-Encoding", "gzip")]),
            *([] if any(name == "Cache-Control" for name, _ in answer.headers) else [("Cache-Control", "no-cache, private")]),
            ("Vary", "Accept-Encoding, Cookie, Authorization"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Content-Security-Policy", SERVED_POLICY),
            *answer.headers,
        ]
        self.respond(answer.status, body, headers)


def _part(name: str) -> PageResponse | None:
    if name == STYLE_SHEET:
        return PageResponse(200, "text/css; charset=utf-8", text_of(name).encode())
    if name == "page.js":
        return PageResponse(200, "text/javascript; charset=utf-8", script().encode())
    if name.startswith("charts-") and name == vega.bundle_name():
        return PageResponse(200, "text/javascript; charset=utf-8", vega.bundle().encode(), (("Cache-Control", FOREVER),))
    return None


def _named(file: str) -> tuple[tuple[str, str], ...]:
    return (("Content-Disposition", f'attachment; filename="edgemeter-{file}"'),)


def _message(status: int, title: str, text: str) -> PageResponse:
    inside = render("message.html", title=title, text=text)
    return PageResponse(status, "text/html; charset=utf-8", served_page(title, inside, "").encode())


def _equal(first: str, second: str) -> bool:
    return hmac.compare_digest(first.encode(), second.encode())
