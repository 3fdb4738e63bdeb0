"""HTTP connections of `http.client` that take less of the time of a small request: one write, and headers that are simply split."""

import http.client
from collections.abc import Iterator

_WITHOUT_BODY = (http.client.NO_CONTENT, http.client.NOT_MODIFIED)
# A larger body costs more to copy.
_COPIED_BYTES = 1 << 16
_MOST_HEADERS, _LONGEST_HEADER_BYTES = 100, 1 << 16


class QuickResponse(http.client.HTTPResponse):
    """An answer with its headers by name in lower case: the parser of e-mail that `http.client` uses takes longer than a small body."""

    fields: dict[str, str]

    def begin(self) -> None:
        """Read status and headers; see `http.client`."""
        status = http.client.CONTINUE
        while status // 100 == 1:
            version, status, self.reason = self._read_status()  # type: ignore[attr-defined]
            self.fields = dict(self._header_lines())
        if not version.startswith("HTTP/1."):
            raise http.client.UnknownProtocol(version)
        self.code = self.status = status
        connection, length = self.fields.get("connection", "").lower(), self.fields.get("content-length", "")
        self.chunked = self.fields.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        self.length = 0 if status in _WITHOUT_BODY else int(length) if length.isdecimal() and not self.chunked else None
        has_end = self.chunked or self.length is not None
        self.will_close = not has_end or "close" in connection or (version == "HTTP/1.0" and "keep-alive" not in connection)

    def _header_lines(self) -> Iterator[tuple[str, str]]:
        for _ in range(_MOST_HEADERS):
            line = self.fp.readline(_LONGEST_HEADER_BYTES)
            if len(line) == _LONGEST_HEADER_BYTES:
                raise http.client.LineTooLong("header line")
            if not line.strip():
                return
            name, _, value = line.decode("iso-8859-1").partition(":")
            yield name.lower(), value.strip()
        raise http.client.HTTPException(f"more than {_MOST_HEADERS} headers")


class QuickConnection(http.client.HTTPConnection):
    """Sends head and body of a small request at once: of two writes the first wakes the server for nothing."""

    response_class = QuickResponse
    _buffer: list[bytes]

    def _send_output(self, message_body: bytes | None = None, encode_chunked: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        head, self._buffer = b"\r\n".join((*self._buffer, b"", b"")), []
        body = message_body or b""
        for part in (head + body,) if len(body) <= _COPIED_BYTES else (head, body):
            self.send(part)


class TlsConnection(QuickConnection, http.client.HTTPSConnection):
    """With TLS."""
