"""Facts about the fleet on loopback that the tests of enrolment use."""

import socket
import sys

from tests.fixtures.servers import LOOPBACK, Server, free_port

LATE = """
import socket, sys, time
first = socket.create_server((sys.argv[1], int(sys.argv[2])))
time.sleep(0.5)
second = socket.create_server((sys.argv[1], int(sys.argv[3])))
time.sleep(60)
"""


def test_a_server_has_started_when_all_its_ports_accept():
    """A broker opens its listeners one after the other: a busy machine takes its time between them."""
    ports = free_port(), free_port()
    server = Server([sys.executable, "-c", LATE, LOOPBACK, *map(str, ports)], *ports)
    server.start()
    try:
        socket.create_connection((LOOPBACK, ports[1]), 1).close()
    finally:
        server.kill()
