"""The server of the page is Starlette under uvicorn, read-only.

A thread keeps the case book up to date.
"""

import hashlib
import hmac
import logging
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from edgemeter.agent.base.documents import json_document
from edgemeter.agent.base.errors import (
    ConfigError,
    EdgemeterError,
    TransientError,
    UnavailableError,
)
from edgemeter.agent.base.http_server import is_loopback
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.number_text import count
from edgemeter.agent.contract.figures import FigureView, in_view
from edgemeter.collector.charts import vega
from edgemeter.collector.compare.case_book import CaseBook
from edgemeter.collector.published.readers import PublishedFolder, default_folder
from edgemeter.collector.web.activity import read_activities
from edgemeter.collector.web.connections import PageHttp, RequestLimits
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.markup import render, text_of
from edgemeter.collector.web.queries import ViewContext
from edgemeter.collector.web.site import (
    SERVED_POLICY,
    STYLE_SHEET,
    content,
    offered,
    script,
    served_page,
    show,
)
from edgemeter.collector.web.view import Links, ViewRequest, address, read_address, read_period

logger = logging.getLogger(__name__)
REFRESH_S = 2.0
# A response takes some 20 MB, which the process keeps; more at once would not be faster.
MADE_AT_ONCE = 2
# The figures that a page shows for every case, and those that it offers for limits if a case has
# them.
SHOWN = tuple(entry.name for entry in in_view(FigureView.TABLE | FigureView.JUDGED))
COOKIE = "edgemeter_token"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
COMPRESS_FROM_BYTES = 1024
# The address contains a hash of the content, so the content never changes.
FOREVER = "public, max-age=31536000, immutable"
HEADERS = {
    "Cache-Control": "no-cache, private",
    "Content-Security-Policy": SERVED_POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(slots=True)
class PageServer:
    """Serves the page of the cases in `book` at `host`:`port` (0: a free one, then in `port`).

    Beyond the loopback a token is required.

    Raises:
        ConfigError: the address is not the loopback's and there is no token.
    """

    book: CaseBook
    events: TrendEvents
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    published: PublishedFolder = field(default_factory=default_folder)
    limits: RequestLimits = field(default_factory=RequestLimits)
    app: Starlette = field(init=False)
    _http: PageHttp | None = field(init=False, default=None)
    _threads: list[threading.Thread] = field(init=False, default_factory=list)
    _ended: threading.Event = field(init=False, default_factory=threading.Event)
    _making: threading.Semaphore = field(
        init=False, default_factory=lambda: threading.Semaphore(MADE_AT_ONCE)
    )

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.token:
            ways = "set a token (--token-file FILE, or EDGEMETER_WEB_TOKEN), or listen at 127.0.0.1"
            raise ConfigError(f"{self.host!r} can be reached from other machines: {ways}")
        routes = [
            Route(
                f"/{STYLE_SHEET}", lambda _: Response(text_of(STYLE_SHEET), media_type="text/css")
            ),
            Route("/page.js", lambda _: Response(script(), media_type="text/javascript")),
            Route("/charts-{digest}.js", _charts),
            *(Route(path, self._view) for path in ("/", "/{view}")),
        ]
        self.app = Starlette(
            routes=routes,
            middleware=[
                Middleware(BaseHTTPMiddleware, dispatch=self._guard),
                Middleware(GZipMiddleware, minimum_size=COMPRESS_FROM_BYTES, compresslevel=3),
            ],
            exception_handlers={EdgemeterError: _refused, HTTPException: _absent},
        )

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"

    def start(self) -> None:
        """Answer requests and keep the book up to date, each in a thread, until `stop`.

        Raises:
            UnavailableError: the address cannot be listened at.
        """
        try:
            listener = socket.create_server(
                (self.host, self.port),
                family=socket.AF_INET6 if ":" in self.host else socket.AF_INET,
            )
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            problem = f"cannot listen at {self.host!r}, port {self.port} ({reason})"
            raise UnavailableError(
                f"{problem}: name another address with --port or --listen"
            ) from error
        self.port = listener.getsockname()[1]
        self._http = PageHttp(self.app, self.limits)
        self._threads = [
            threading.Thread(
                target=self._http.run, args=([listener],), name="edgemeter-http", daemon=True
            ),
            threading.Thread(target=self._keep_up, name="edgemeter-page", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End both threads; may be called twice."""
        self._ended.set()
        if self._http:
            self._http.should_exit = True
        for thread in self._threads:
            thread.join()

    def answer(self, request: ViewRequest, form: str = "") -> Response:
        """Return the page of an address, or its figures as CSV or JSON.

        Raises:
            ConfigError: there is no such view, no such format, or nothing for the format.
        """
        # Read first: later changes are another version.
        tag = self.tag(request, form)
        with self._making:
            context = ViewContext(self.book, Links(), self.events, published=self.published)
            view = show(context, request)
            if form and (period := read_period(request.get("between"))):
                # The same rows as in its tables if a period was selected.
                view = replace(view, tables=tuple(table.between(*period) for table in view.tables))
            if form == "json":
                document = {
                    "view": request.address,
                    "title": view.title,
                    "tables": {table.name: table.dicts() for table in view.tables},
                }
                return Response(json_document(document), media_type="application/json")
            if form == "csv" and view.tables:
                name = f'attachment; filename="edgemeter-{request.view}.csv"'
                return Response(
                    view.tables[0].to_csv(),
                    media_type="text/csv",
                    headers={"Content-Disposition": name},
                )
            if form:
                raise ConfigError(
                    f"format={form!r}: there are csv and json, and csv only where a "
                    "view has figures"
                )
            exports = {
                name: f"/{address(request.view, {**request.fields, 'format': name})}"
                for name in ("csv", "json")
            }
            inside = content(view, request, offered(context), context.links, exports)
        return HTMLResponse(served_page(view.title, inside, self._remark(), tag))

    def tag(self, request: ViewRequest, form: str) -> str:
        """Return a tag of the response's content: the version of the book, and the address."""
        store = self.book.store
        state = f"{self.book.version} {store.version()} {self.events.version()}"
        if request.view in {"overview", "device", "jobs"}:
            # Activities expire without a change of the store.
            state += f" {read_activities(store, time.time_ns()).key}"
        if request.view == "published":
            state += f" {self.published.version()}"
        # Ages change with the day.
        identity = (
            f"{state} {time.time_ns() // NS_PER_DAY} "
            f"{version('edgemeter')} {request.address} {form}"
        )
        return f'"{hashlib.sha256(identity.encode()).hexdigest()[:24]}"'

    def update(self) -> None:
        """Bring book and events up to date.

        An error is logged, and the update is tried again the next time.
        """
        try:
            self.book.refresh()
            self.events.refresh()
        except EdgemeterError as error:
            logger.warning("cannot update the page: %s", error)

    def _keep_up(self) -> None:
        while not self._ended.is_set():
            self.update()
            self._ended.wait(REFRESH_S)

    def _remark(self) -> str:
        (stored,) = self.book.store.query("SELECT count(*) FROM runs")[0]
        booked, left_out = (
            sum(case.runs for case in self.book.cases),
            self.book.store.left_out_count(),
        )
        reading = f" {stored - booked:,} more are being read." if stored > booked else ""
        refused = (
            f" {count(left_out, 'message')} left out, named below the comparison."
            if left_out
            else ""
        )
        return f"{count(booked, 'record')}.{reading}{refused}"

    def _view(self, http: Request) -> Response:
        request = read_address(f"{http.path_params.get('view', '')}?{http.url.query}")
        form = request.get("format")
        request = replace(
            request,
            fields={
                name: value
                for name, value in request.fields.items()
                if name not in {"format", "token"}
            },
        )
        tag = self.tag(request, form)
        response = (
            Response(status_code=304)
            if http.headers.get("If-None-Match") == tag
            else self.answer(request, form)
        )
        response.headers["ETag"] = tag
        return response

    async def _guard(
        self, http: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = self._refusal(http) or await call_next(http)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.add_vary_header("Cookie, Authorization")
        return response

    def _refusal(self, http: Request) -> Response | None:
        """Return the response to a reader without permission; None for everybody else.

        A reader with the token in the address is redirected to the address without it.
        """
        if self.token is None:
            # Another host name would be a page elsewhere that reads ours through the browser.
            if is_loopback(self.host) and _hostname(http) not in LOOPBACK_NAMES:
                return _message(
                    421,
                    "Not for this server",
                    "The page is served to this machine only, under the name localhost.",
                )
            return None
        digest = hashlib.sha256(self.token.encode()).hexdigest()
        if _equal(http.query_params.get("token", ""), self.token):
            # The token is removed from the address, where it would be stored and passed on; a
            # cookie keeps a digest of it, inaccessible to scripts.
            response = RedirectResponse(
                str(http.url.remove_query_params("token").replace(scheme="", netloc="")), 303
            )
            response.set_cookie(COOKIE, digest, httponly=True, samesite="strict")
            return response
        kind, _, credential = http.headers.get("Authorization", "").partition(" ")
        is_bearer = kind.lower() == "bearer" and _equal(credential.strip(), self.token)
        if is_bearer or _equal(http.cookies.get(COOKIE, ""), digest):
            return None
        return _message(
            401,
            "A token is needed",
            "Add ?token=TOKEN to the address once, or send it as a bearer token.",
        )


def _charts(http: Request) -> Response:
    if http.url.path != f"/{vega.bundle_name()}":
        raise HTTPException(404)
    return Response(vega.bundle(), media_type="text/javascript", headers={"Cache-Control": FOREVER})


def _refused(_: Request, error: Exception) -> Response:
    return (
        _message(503, "Try again", str(error))
        if isinstance(error, TransientError | UnavailableError)
        else _message(404, "This cannot be shown", str(error))
    )


def _absent(http: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    return _message(
        status, "There is no such page", f"{http.method} {http.url.path} is not supported."
    )


def _message(status: int, title: str, text: str) -> Response:
    return HTMLResponse(
        served_page(title, render("error.html", title=title, text=text), ""), status
    )


def _hostname(http: Request) -> str | None:
    try:
        return urlsplit(f"//{http.headers.get('Host', '')}").hostname
    except ValueError:
        return None


def _equal(first: str, second: str) -> bool:
    return hmac.compare_digest(first.encode(), second.encode())
