import pytest

from edgemeter.agent.base.errors import TransientError
from edgemeter.collector.alerts.posting import may_repeat, post_json
from tests.fixtures.listeners import http_listener
from tests.fixtures.rows import table_row


def paths(server):
    """Return the path of each request."""
    return [path for path, _, _ in server.kept]


def test_a_redirect_to_another_page_is_no_delivery():
    """A page to log in would say 200 to whoever follows, and nobody would have the alert."""
    with http_listener(lambda request, _: request.respond(200 if request.path == "/login" else 303, Location="/login")) as server:
        with pytest.raises(TransientError, match="a redirect is no delivery"):
            post_json("c", f"{server.url}/hook", {"text": "x"})
        assert paths(server) == ["/hook"]


def test_a_message_is_repeated_at_the_same_host_only():
    """With its body and its token; another host gets neither, also another port of the host."""

    def script(request, _):
        request.respond(200 if request.path == "/new" else 308, Location=target)

    with http_listener(script) as server, http_listener(lambda request, _: request.respond(200)) as other:
        target = "/new"
        post_json("c", f"{server.url}/hook", {"text": "x"}, "secret")
        assert paths(server) == ["/hook", "/new"]
        _, headers, body = server.kept[-1]
        assert (headers["Authorization"], headers["Content-Type"], body) == ("Bearer secret", "application/json", {"text": "x"})
        for target in (f"{other.url}/new", f"http://localhost:{server.server_port}/new", f"{server.url}/hook"):
            with table_row(target), pytest.raises(TransientError, match="responds 308"):
                post_json("c", f"{server.url}/hook", {"text": "x"})
        assert other.kept == []


def test_encryption_is_never_given_up():
    """From http to https of a host the message may go, from https to http never."""
    for before, after, is_repeated in (
        ("https://h/a", "http://h/a", False),
        ("https://h/a", "https://h/b", True),
        ("http://h/a", "https://h/a", True),
        ("http://h/a", "https://h.example/a", False),
    ):
        assert may_repeat(308, before, after) == is_repeated, (before, after)


def test_what_is_accepted_is_delivered_however_its_page_ends():
    """The status is the answer: a body that never ends, or is cut, changes nothing."""

    def script(request, _):
        request.send_response(200)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        request.wfile.write(b"x")

    with http_listener(script) as server:
        post_json("c", server.url, {})
        assert len(server.kept) == 1
