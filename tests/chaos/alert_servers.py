"""The receivers of a chaos run of alerts: HTTP, SMTP and a real MQTT broker behind a proxy; they misbehave on demand and keep what came."""

import contextlib
import json
import re
import select
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

from tests.fixtures.mqtt_peer import Peer
from tests.fixtures.servers import LOOPBACK, address_of, free_port, mosquitto

# lost answer: it keeps the message and closes. hang: after it has kept the message, or before, by `is_kept`. drip: a byte now and then.
Mode = Literal["pass", "hang", "drip", "3xx", "4xx", "5xx", "lost answer"]
HANG_S, DRIP_S = 6.0, 0.5
TOPIC = "alerts/chaos"
TITLE = re.compile(r"(over: )?device lost: (dev-\d+)")


@dataclass(slots=True)
class Kept:
    """A message as a receiver kept it: the alerts in it (device, event), in which run, and whether its answer was withheld."""

    channel: str
    told: list[tuple[str, str]]
    run: int
    is_answer_lost: bool


@dataclass(slots=True)
class Journal:
    """What all receivers kept, in order; `run` is the number of the check in progress, `watch` is called at each step of a receiver."""

    run: int = 0
    kept: list[Kept] = field(default_factory=list)
    misdirected: int = 0
    watch: Callable[[str, str], None] = lambda _channel, _step: None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, channel: str, text: str, *, is_answer_lost: bool) -> None:
        events = [(device, "closed" if word else "opened") for word, device in TITLE.findall(text)]
        with self.lock:
            self.kept.append(Kept(channel, events, self.run, is_answer_lost))
        self.watch(channel, "kept")


class Receiver:
    """One receiver of the channel `name`; `mode` and `is_kept` say how it misbehaves."""

    def __init__(self, name: str, journal: Journal) -> None:
        self.name = name
        self.journal = journal
        self.mode: Mode = "pass"
        self.is_kept = False

    def keeps(self) -> bool:
        """Return whether a message of now is kept."""
        return self.mode in ("pass", "lost answer") or (self.mode in ("hang", "drip") and self.is_kept)

    def note(self, text: str) -> None:
        """Keep a message, if it is kept in this mode."""
        if self.keeps():
            self.journal.keep(self.name, text, is_answer_lost=self.mode != "pass")


class _HttpHandler(BaseHTTPRequestHandler):
    timeout = 30

    def do_GET(self) -> None:
        """A page to log in: whoever comes here took a redirect for a delivery."""
        self.server.receiver.journal.misdirected += 1
        self.respond(200)

    def do_POST(self) -> None:
        self.server.receiver.journal.watch(self.server.receiver.name, "connected")
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if len(content) < int(self.headers["Content-Length"]):
            return
        mode, is_kept = self.server.receiver.mode, self.server.receiver.keeps()
        if self.path == "/elsewhere":
            self.server.receiver.journal.misdirected += 1
        self.server.receiver.note(json.loads(content)["message"])
        if mode == "hang":
            time.sleep(HANG_S)
        elif mode == "drip":
            self.drip("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" if is_kept else "HTTP/1.1 503 Busy\r\n\r\n")
        elif mode == "3xx":
            moved = f"http://localhost:{self.server.receiver.port}/elsewhere" if self.server.receiver.is_kept else "/login"
            self.respond(307 if self.server.receiver.is_kept else 302, moved)
        elif mode in ("4xx", "5xx"):
            self.respond(404 if mode == "4xx" else 503)
        elif mode == "pass":
            self.respond(200)
            self.server.receiver.journal.watch(self.server.receiver.name, "answered")
        self.close_connection = True

    def respond(self, status: int, moved: str | None = None) -> None:
        self.send_response(status)
        if moved:
            self.send_header("Location", moved)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def drip(self, text: str) -> None:
        with contextlib.suppress(OSError):
            for byte in text.encode():
                self.wfile.write(bytes([byte]))
                time.sleep(DRIP_S)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class HttpReceiver(Receiver):
    """A webhook, as Apprise posts it."""

    def __init__(self, name: str, journal: Journal) -> None:
        super().__init__(name, journal)
        self.server = ThreadingHTTPServer((LOOPBACK, 0), _HttpHandler)
        self.server.daemon_threads, self.server.receiver = True, self
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def settings(self) -> str:
        """Return the channel in the file of rules."""
        return f'url = "json://{LOOPBACK}:{self.port}/{self.name}"\n'


class _MailHandler(socketserver.StreamRequestHandler):
    timeout = 30

    def handle(self) -> None:
        self.server.receiver.journal.watch(self.server.receiver.name, "connected")
        with contextlib.suppress(OSError):
            self.talk()

    def talk(self) -> None:
        if self.server.receiver.mode == "hang" and not self.server.receiver.is_kept:
            time.sleep(HANG_S)
            return
        self.say("220 chaos", is_slow=self.server.receiver.mode == "drip" and not self.server.receiver.is_kept)
        while line := self.rfile.readline().decode().strip():
            verb = line.partition(" ")[0].upper()
            if verb == "QUIT":
                self.say("221 bye")
                return
            if verb == "RCPT" and self.server.receiver.mode in ("4xx", "5xx"):
                # The words of SMTP: 4xx passes, 5xx is for good; a fault is named by what it is over HTTP.
                self.say("550 no such user" if self.server.receiver.mode == "4xx" else "451 try again")
            elif verb != "DATA":
                self.say("250 ok")
            elif not self.data():
                return

    def data(self) -> bool:
        self.say("354 go on")
        lines = []
        while (part := self.rfile.readline()) != b".\r\n":
            if not part:
                return False
            lines.append(part)
        message = message_from_bytes(b"".join(lines), policy=policy.default)
        assert None not in (message["Date"], message["Message-ID"])
        mode = self.server.receiver.mode
        self.server.receiver.note(message.get_content())
        if mode == "hang":
            time.sleep(HANG_S)
        elif mode == "drip":
            self.say("250 " + 30 * "kept ", is_slow=True)
        elif mode == "pass":
            self.say("250 kept")
            self.server.receiver.journal.watch(self.server.receiver.name, "answered")
            return True
        return False

    def say(self, text: str, *, is_slow: bool = False) -> None:
        for part in text + "\r\n" if is_slow else [text + "\r\n"]:
            self.wfile.write(part.encode())
            time.sleep(DRIP_S if is_slow else 0)


class _MailServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class MailReceiver(Receiver):
    """An SMTP server of the standard library's sockets."""

    def __init__(self, name: str, journal: Journal) -> None:
        super().__init__(name, journal)
        self.server = _MailServer((LOOPBACK, 0), _MailHandler)
        self.server.receiver = self
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def settings(self) -> str:
        """Return the channel in the file of rules."""
        port = self.server.server_address[1]
        return f'url = "mailto://{LOOPBACK}:{port}?from=e@x.org&to=a@x.org&mode=insecure&format=text"\n'


class MqttReceiver(Receiver):
    """mosquitto behind a proxy, and a second one that lets nobody publish; a subscriber keeps what comes."""

    def __init__(self, name: str, journal: Journal, folder: Path) -> None:
        super().__init__(name, journal)
        (folder / "acl").write_text("topic read #\n")
        self.brokers = [mosquitto(folder), mosquitto(folder, f"acl_file {folder}/acl")]
        for broker in self.brokers:
            broker.start()
        self.port = free_port()
        receiver = self

        class Subscriber(Peer):
            def received(self, message: object) -> None:
                receiver.journal.keep(receiver.name, message.payload.decode(), is_answer_lost=receiver.mode != "pass")

        self.subscriber = Subscriber(address_of(self.brokers[0]), TOPIC, client_id="judge")
        self.listener = socket.create_server((LOOPBACK, self.port), backlog=50)
        threading.Thread(target=self._serve, daemon=True).start()

    def settings(self) -> str:
        """Return the channel in the file of rules."""
        return f'url = "mqtt://{LOOPBACK}:{self.port}/{TOPIC}"\n'

    def stop(self) -> None:
        self.subscriber.close()
        for broker in self.brokers:
            broker.kill()

    def _serve(self) -> None:
        while True:
            near, _ = self.listener.accept()
            self.journal.watch(self.name, "connected")
            threading.Thread(target=self._pass_on, args=(near,), daemon=True).start()

    def _pass_on(self, near: socket.socket) -> None:
        mode = self.mode
        with near, contextlib.suppress(OSError):
            if mode in ("5xx", "3xx"):
                return
            if mode == "hang" and not self.is_kept:
                time.sleep(HANG_S)
                return
            with socket.create_connection((LOOPBACK, self.brokers[mode == "4xx"].port)) as far:
                while True:
                    for ready in select.select([near, far], [], [])[0]:
                        part = ready.recv(1 << 16)
                        if not part:
                            return
                        # A PUBACK begins with 4.
                        if ready is far and part[0] >> 4 == 4 and mode in ("lost answer", "hang"):
                            return
                        slow = ready is far and mode == "drip"
                        for data in [bytes([byte]) for byte in part] if slow else [part]:
                            (near if ready is far else far).sendall(data)
                            time.sleep(DRIP_S if slow else 0)
