"""Three broker nodes, three collectors and 200 agents, of which one node and one collector die.

`python -m tools.chaos.cluster` ends them while results flow. Each agent knows one node, as behind
an address that leads to any: those of the dead node go on at another, through a proxy that then
leads there. The last line is JSON; status 0 when InfluxDB holds every record exactly once.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from tests.fixtures.servers import LOOPBACK, free_port
from tools.chaos.counted import Counted
from tools.chaos.judge import expected
from tools.chaos.supervised import Supervised, await_port
from tools.chaos.world import DUPLICATES, Scene, end_by_signal, say, status_of

NODES = 3
AGENTS = 200
AGENTS_A_PROCESS = 25
# A cluster that lost a node was seen to stall publishing for 42 s.
SETTLE_S = 420.0
ROOT = Path(__file__).resolve().parents[2]


class Cluster(Scene):
    """Nodes, collectors and agents; use it as a context."""

    def __init__(self, rmqttd: Path, influxd: Path, records: int, rate_per_s: float) -> None:
        super().__init__(influxd, [f"device-{number:03d}" for number in range(AGENTS)])
        self.records = records
        self.rate_per_s = rate_per_s
        self._rmqttd = rmqttd

    def _build(self) -> None:
        self._start_influx()
        self.nodes, ports = self._start_nodes()
        self.entries = [self._proxy(port) for port in ports]
        self.ledgers = [str(self.folder / f"ledger-{number}.sqlite") for number in range(NODES)]
        self._metrics = [f"{LOOPBACK}:{free_port()}" for _ in range(NODES)]
        self.collectors = [self._start_collector(number, port) for number, port in enumerate(ports)]
        self.counted = [
            Counted(f"http://{metrics}/metrics", DUPLICATES) for metrics in self._metrics
        ]
        (self.folder / "outboxes").mkdir()
        entries = [entry.port for entry in self.entries]
        self.agents = self._start_agents(
            entries, AGENTS_A_PROCESS, -(-self.records // AGENTS), self.rate_per_s
        )

    def _start_collector(self, number: int, port: int) -> Supervised:
        options = ("--group", "collectors")
        return self._collector(
            number, port, self.ledgers[number], self.influx.port, self._metrics[number], options
        )

    def lose_a_node(self) -> None:
        """Kill the last node for good; whoever was there is led to the first."""
        self.nodes[-1].stop(9)
        self.entries[-1].target = self.entries[0].target
        self.entries[-1].cut()

    def lose_a_collector(self) -> None:
        """Kill the second collector for good, its ledger with all that it had not drained."""
        self.counted[1].look()
        self.collectors[1].stop(9)

    def settle(self) -> bool:
        """Wait until all agents have ended and InfluxDB holds what they kept.

        Records that a dead collector alone confirmed are left out.
        """
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            if self.is_delivered() and self.drained() >= len(expected(self.folder).kept):
                return True
            time.sleep(2)
        return False

    def restart_collector(self) -> None:
        """Start the collector that died again, on its own ledger, as its operator would."""
        self.collectors[1] = self._start_collector(1, self.entries[1].target)

    def _start_nodes(self) -> tuple[list[Supervised], list[int]]:
        ports = [free_port() for _ in range(NODES)]
        inner = [free_port() for _ in range(NODES)]
        peers = ", ".join(f'"{number + 1}@{LOOPBACK}:{port}"' for number, port in enumerate(inner))
        nodes = []
        for number, (port, inner_port) in enumerate(zip(ports, inner, strict=True)):
            nodes.append(
                self._supervised(
                    f"node-{number}",
                    [str(self._rmqttd), "-f", str(self._node(number, port, inner_port, peers))],
                )
            )
        for port in ports:
            await_port(port)
        # They answer before they know each other.
        time.sleep(8)
        return nodes, ports

    def _node(self, number: int, port: int, inner: int, peers: str) -> Path:
        plugins = self.folder / f"plugins-{number}"
        plugins.mkdir()
        (plugins / "rmqtt-cluster-broadcast.toml").write_text(
            f'node_grpc_addrs = [{peers}]\nnode_grpc_client_timeout = "1s"\n'
        )
        (plugins / "rmqtt-http-api.toml").write_text(f'http_laddr = "{LOOPBACK}:{free_port()}"\n')
        (plugins / "rmqtt-acl.toml").write_text('rules = [["allow", "all"]]\n')
        listener = "listener.tcp.external"
        lines = [
            f"node.id = {number + 1}",
            f'rpc.server_addr = "{LOOPBACK}:{inner}"',
            f'plugins.dir = "{plugins}"',
            (
                'plugins.default_startups = ["rmqtt-shared-subscription", "rmqtt-retainer", '
                '"rmqtt-cluster-broadcast"]'
            ),
            f'{listener}.addr = "{LOOPBACK}:{port}"',
            f"{listener}.allow_anonymous = true",
            f"{listener}.max_mqueue_len = 100000",
            f"{listener}.nodelay = true",
            'log.to = "file"',
            f'log.dir = "{self.folder}/log-{number}"',
            'log.file = "rmqtt.log"',
        ]
        path = self.folder / f"node-{number}.toml"
        path.write_text("\n".join(lines) + "\n")
        return path


def main() -> int:
    """Run it; return 0 when InfluxDB holds every record exactly once."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.chaos.cluster",
        description="Lose a broker node and a collector, then count.",
    )
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument(
        "--rmqttd",
        default=os.environ.get("EDGEMETER_RMQTTD")
        or str(ROOT.parent / "shared" / "bin" / "rmqttd"),
    )
    parser.add_argument(
        "--influxd",
        default=os.environ.get("EDGEMETER_INFLUXD")
        or str(ROOT.parent / "shared" / "bin" / "influxd"),
    )
    arguments = parser.parse_args()
    for program in (arguments.rmqttd, arguments.influxd):
        if not Path(program).is_file():
            print(
                f"{program} is not there: set EDGEMETER_RMQTTD, EDGEMETER_INFLUXD", file=sys.stderr
            )
            return 2
    began = time.monotonic()
    with Cluster(
        Path(arguments.rmqttd), Path(arguments.influxd), arguments.records, arguments.rate
    ) as cluster:
        say(
            f"{NODES} nodes, {NODES} collectors, {AGENTS} agents, {arguments.records} records at "
            f"{arguments.rate:.0f}/s"
        )
        _until(lambda: cluster.drained() > arguments.records // 4)
        cluster.lose_a_node()
        say(f"a node killed with {cluster.drained()} records delivered")
        _until(lambda: cluster.drained() > arguments.records // 2)
        cluster.lose_a_collector()
        say(f"a collector killed with {cluster.drained()} records delivered")
        time.sleep(20)
        # Records that only this collector had confirmed and not drained are in its ledger: hence
        # the ledger on a disk.
        cluster.restart_collector()
        in_time = cluster.settle()
        verdict = cluster.verdict()
    print(f"{time.monotonic() - began:.0f} s{'' if in_time else ', NOT SETTLED IN TIME'}")
    return status_of(verdict)


def _until(condition, timeout_s: float = 180.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.5)


if __name__ == "__main__":
    end_by_signal()
    sys.exit(main())
