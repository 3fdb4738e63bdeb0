"""Sessions of boards at a cluster of three RMQTT nodes that asks `fleet serve` who may do what.

Each board connects, subscribes to its five topics and publishes its birth: seven questions. Then some are revoked, and publish again.
`python -m tests.benchmarks.cluster_access` prints one line of JSON. TLS is left out: the generator would need more of the two cores than
the nodes.
"""

import argparse
import asyncio
import json
import os
import resource
import struct
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from edgemeter.provisioning.identity.access_server import AccessServer
from edgemeter.provisioning.identity.broker_files import DEVICE_READS
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from tests import requirements
from tests.fixtures.access_cluster import node
from tests.fixtures.fleet_command import run_fleet
from tests.fixtures.servers import LOOPBACK, free_port

NODES, AT_ONCE = 3, 200
CONNACK, PUBACK, SUBACK = 0x20, 0x40, 0x90


def text(value: str) -> bytes:
    """Return a string of MQTT."""
    return struct.pack(">H", len(value)) + value.encode()


def packet(kind: int, body: bytes) -> bytes:
    """Return a packet of MQTT."""
    length, digits = len(body), b""
    while True:
        length, digit = divmod(length, 128)
        digits += bytes([digit | (128 if length else 0)])
        if not length:
            return bytes([kind]) + digits + body


class BoardSession:
    """One session of MQTT 5."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.latencies_s: list[float] = []

    async def answer(self, kind: int) -> bytes:
        """Return the body of the next packet, which is of this kind."""
        begun_s = time.monotonic()
        head = await self.reader.readexactly(2)
        body = await self.reader.readexactly(head[1])
        assert head[0] == kind, (self.name, head, body)
        self.latencies_s.append(time.monotonic() - begun_s)
        return body

    async def begin(self, port: int) -> bool:
        """Connect, subscribe and publish; return whether all was allowed."""
        self.reader, self._writer = await asyncio.open_connection(LOOPBACK, port)
        flags = 0x80 | 0x02
        self._writer.write(packet(0x10, text("MQTT") + struct.pack(">BBHB", 5, flags, 600, 0) + text(self.name) + text(self.name)))
        if (await self.answer(CONNACK))[1] != 0:
            return False
        filters = b"".join(text(f"edgemeter/v1/lab/{self.name}/{kind}") + b"\x01" for kind in DEVICE_READS)
        self._writer.write(packet(0x82, struct.pack(">HB", 1, 0) + filters))
        granted = (await self.answer(SUBACK))[3:]
        return all(code < 3 for code in granted) and await self.publishes("birth")

    async def publishes(self, kind: str) -> bool:
        """Publish; return whether it was allowed."""
        self._writer.write(packet(0x32, text(f"edgemeter/v1/lab/{self.name}/{kind}") + struct.pack(">HB", 2, 0) + b"{}"))
        body = await self.answer(PUBACK)
        return len(body) < 3 or body[2] < 0x80

    def end(self) -> None:
        """End the connection."""
        self._writer.close()


async def measured(ports: list[int], count: int, revoke: int, folder: FleetFolder) -> dict[str, float]:
    """Return the figures."""
    sessions = [BoardSession(f"board-{number:05d}") for number in range(count)]
    turns = asyncio.Semaphore(AT_ONCE)

    async def begin(number: int, session: BoardSession) -> bool:
        async with turns:
            return await session.begin(ports[number % len(ports)])

    begun_s = time.monotonic()
    allowed = await asyncio.gather(*[begin(number, session) for number, session in enumerate(sessions)])
    connected_s = time.monotonic() - begun_s
    first_latencies_s = sorted(latency for session in sessions for latency in session.latencies_s)
    with Registry(folder.registry) as registry, registry.transaction() as connection:
        for session in sessions[:revoke]:
            devices.put(connection, Device(session.name, "lab", None, None, (), "revoked", None, None, None, 0))
    await asyncio.sleep(2.0)
    after = await asyncio.gather(*[session.publishes("health") for session in sessions[:revoke]])
    not_revoked = await asyncio.gather(*[session.publishes("health") for session in sessions[revoke : 2 * revoke]])
    for session in sessions:
        session.end()
    return {
        "sessions": count, "allowed": sum(allowed), "connected_s": connected_s, "sessions_per_s": count / connected_s,
        "answer_p50_ms": 1e3 * first_latencies_s[len(first_latencies_s) // 2],
        "answer_p99_ms": 1e3 * first_latencies_s[len(first_latencies_s) * 99 // 100],
        "revoked": revoke, "revoked_that_still_publish_after_2_s": sum(after), "others_that_publish": sum(not_revoked),
    }  # fmt: skip


def main() -> int:
    """Measure it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--revoke", type=int, default=100)
    chosen_options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if requirements.rmqttd() is None:
        print(json.dumps({"skipped": "rmqttd is not there"}))
        return 0
    with tempfile.TemporaryDirectory() as path, ExitStack() as stack:
        folder = FleetFolder(Path(path) / "fleet")
        run_fleet(folder.path, "init", "--broker", LOOPBACK, "--name", "localhost", "--fleet", "lab")
        with Registry(folder.registry) as registry, registry.transaction() as connection:
            for number in range(chosen_options.sessions):
                devices.put(connection, Device(f"board-{number:05d}", "lab", None, None, (), "accepted", None, None, None, 0))
        access = AccessServer(folder, f"http://{LOOPBACK}:{free_port()}")
        access.start()
        stack.callback(access.stop)
        ports, peers = [free_port() for _ in range(NODES)], [free_port() for _ in range(NODES)]
        for number, port in enumerate(ports, 1):
            server = node(Path(path) / "cluster", number, port, peers, f"http://{access.authority}", None)
            server.start()
            stack.callback(server.kill)
        time.sleep(8)
        before_s = time.process_time()
        figures = asyncio.run(measured(ports, chosen_options.sessions, chosen_options.revoke, folder))
        figures["cpu_of_generator_and_answers_s"] = time.process_time() - before_s
        print(json.dumps({"cpus": os.cpu_count(), **figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
