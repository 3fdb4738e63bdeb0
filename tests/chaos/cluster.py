"""`python -m tests.chaos.cluster`: three broker nodes, three collectors, 200 agents; one node and one collector die while results flow.

Each agent knows one node, as behind an address that leads to any: those of the dead node go on at another, through a proxy that then
leads there. The last line is JSON; status 0 when InfluxDB holds every record exactly once.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

from tests.chaos.counted import Counted
from tests.chaos.judge import Verdict, expected, in_influx, in_ledger, judge
from tests.chaos.proxy import Proxy
from tests.chaos.supervised import Supervised, await_port
from tests.chaos.world import DUPLICATES, EDGEMETER
from tests.fixtures.servers import LOOPBACK, Influx, free_port

NODES = 3
AGENTS = 200
AGENTS_A_PROCESS = 25
# A cluster that lost a node was seen to stall publishing for 42 s.
SETTLE_S = 420.0
ROOT = Path(__file__).resolve().parents[2]


class Cluster:
    """Use it as a context; everything runs inside."""

    def __init__(self, rmqttd: Path, influxd: Path, records: int, rate_per_s: float) -> None:
        self.records = records
        self.rate_per_s = rate_per_s
        self.devices = [f"device-{number:03d}" for number in range(AGENTS)]
        self._programs = (rmqttd, influxd)
        self._stack = ExitStack()

    def __enter__(self) -> "Cluster":  # noqa: PYI034 - Self needs Python 3.11
        try:
            self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="edgemeter-cluster-")))
            self._start_influx()
            self.nodes, ports = self._start_nodes()
            self.entries = [self._proxy(port) for port in ports]
            self.collectors, self.counted = self._start_collectors(ports)
            self.agents = self._start_agents()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def lose_a_node(self) -> None:
        """Kill the last node for good; whoever was there is led to the first."""
        self.nodes[-1].stop(9)
        self.entries[-1].target = self.entries[0].target
        self.entries[-1].cut()

    def lose_a_collector(self) -> None:
        """Kill the second collector for good, its ledger with all that it had not drained."""
        self.counted[1].look()
        self.collectors[1].stop(9)

    def delivered(self) -> int:
        """Return how many records InfluxDB holds."""
        found = self.influx.query("SELECT count(id) FROM run")
        return int(found[0]["count"]) if found else 0

    def settle(self) -> bool:
        """Wait until all agents have ended and InfluxDB holds what they kept, but for what a dead collector alone confirmed."""
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            if all(agent.has_ended() for agent in self.agents) and self.delivered() >= len(expected(self.folder).kept):
                return True
            time.sleep(2)
        return False

    def verdict(self) -> Verdict:
        """End the collectors and return what came of it."""
        for counted in self.counted:
            counted.stop()
        for collector in self.collectors:
            collector.stop()
        ledgers, quarantined = [], 0
        for number in range(NODES):
            held, refused = in_ledger(self.folder / f"ledger-{number}.sqlite")
            ledgers.append(held)
            quarantined += refused
        duplicates = sum(counted.total for counted in self.counted)
        return judge(expected(self.folder), ledgers, in_influx(self.influx, self.devices), quarantined, duplicates)

    def restart_collector(self) -> None:
        """Start the collector that died again, on its own ledger, as its operator would."""
        self.collectors[1] = self._collector(1, self.entries[1].target)

    def _start_influx(self) -> None:
        (self.folder / "influx").mkdir()
        self.influx = Influx(self._programs[1], self.folder / "influx")
        self._supervised("influxd", self.influx.command)
        await_port(self.influx.port)
        self.influx.set_up()
        self.token = self.folder / "token"
        self.token.write_text(self.influx.token)

    def _start_nodes(self) -> tuple[list[Supervised], list[int]]:
        ports = [free_port() for _ in range(NODES)]
        inner = [free_port() for _ in range(NODES)]
        peers = ", ".join(f'"{number + 1}@{LOOPBACK}:{port}"' for number, port in enumerate(inner))
        nodes = []
        for number, (port, own) in enumerate(zip(ports, inner, strict=True)):
            nodes.append(self._supervised(f"node-{number}", [str(self._programs[0]), "-f", str(self._node(number, port, own, peers))]))
        for port in ports:
            await_port(port)
        # They answer before they know each other.
        time.sleep(8)
        return nodes, ports

    def _node(self, number: int, port: int, inner: int, peers: str) -> Path:
        plugins = self.folder / f"plugins-{number}"
        plugins.mkdir()
        (plugins / "rmqtt-cluster-broadcast.toml").write_text(f'node_grpc_addrs = [{peers}]\nnode_grpc_client_timeout = "1s"\n')
        (plugins / "rmqtt-http-api.toml").write_text(f'http_laddr = "{LOOPBACK}:{free_port()}"\n')
        (plugins / "rmqtt-acl.toml").write_text('rules = [["allow", "all"]]\n')
        listener = "listener.tcp.external"
        lines = [
            f"node.id = {number + 1}",
            f'rpc.server_addr = "{LOOPBACK}:{inner}"',
            f'plugins.dir = "{plugins}"',
            'plugins.default_startups = ["rmqtt-shared-subscription", "rmqtt-retainer", "rmqtt-cluster-broadcast"]',
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

    def _start_collectors(self, ports: list[int]) -> tuple[list[Supervised], list[Counted]]:
        self._metrics = [free_port() for _ in ports]
        collectors = [self._collector(number, port) for number, port in enumerate(ports)]
        return collectors, [Counted(f"http://{LOOPBACK}:{port}/metrics", DUPLICATES) for port in self._metrics]

    def _collector(self, number: int, port: int) -> Supervised:
        command = [
            *EDGEMETER,
            "collector",
            "up",
            "--broker",
            f"{LOOPBACK}:{port}",
            "--ledger",
            str(self.folder / f"ledger-{number}.sqlite"),
        ]
        shared = ["--group", "collectors", "--metrics", f"{LOOPBACK}:{self._metrics[number]}"]
        influx = ["--influx", f"{self.influx.url}?{urlencode({'org': self.influx.org, 'bucket': self.influx.bucket})}"]
        return self._supervised(f"collector-{number}", [*command, *shared, *influx, "--influx-token-file", str(self.token)])

    def _start_agents(self) -> list[Supervised]:
        (self.folder / "outboxes").mkdir()
        groups = [self.devices[first : first + AGENTS_A_PROCESS] for first in range(0, AGENTS, AGENTS_A_PROCESS)]
        of_each, rate = -(-self.records // AGENTS), self.rate_per_s / len(groups)
        found = []
        for number, group in enumerate(groups):
            broker = f"{LOOPBACK}:{self.entries[number % NODES].port}"
            command = [sys.executable, "-m", "tests.chaos.agents", str(self.folder), broker, str(of_each), str(rate), *group]
            found.append(self._supervised(f"agents-{number}", command))
        return found

    def _proxy(self, target: int) -> Proxy:
        proxy = Proxy(target)
        proxy.start()
        self._stack.callback(proxy.stop)
        return proxy

    def _supervised(self, name: str, command: list[str]) -> Supervised:
        process = Supervised(name, command, self.folder / f"{name}.log")
        self._stack.callback(process.stop)
        process.start()
        return process


def main() -> int:
    """Run it; return 0 when InfluxDB holds every record exactly once."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.cluster", description="Lose a broker node and a collector, then count.")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--rmqttd", default=os.environ.get("EDGEMETER_RMQTTD") or str(ROOT.parent / "shared" / "bin" / "rmqttd"))
    parser.add_argument("--influxd", default=os.environ.get("EDGEMETER_INFLUXD") or str(ROOT.parent / "shared" / "bin" / "influxd"))
    asked = parser.parse_args()
    for program in (asked.rmqttd, asked.influxd):
        if not Path(program).is_file():
            print(f"{program} is not there: set EDGEMETER_RMQTTD, EDGEMETER_INFLUXD", file=sys.stderr)
            return 2
    began = time.monotonic()
    with Cluster(Path(asked.rmqttd), Path(asked.influxd), asked.records, asked.rate) as cluster:
        _say(f"{NODES} nodes, {NODES} collectors, {AGENTS} agents, {asked.records} records at {asked.rate:.0f}/s")
        _until(lambda: cluster.delivered() > asked.records // 4)
        cluster.lose_a_node()
        _say(f"a node killed with {cluster.delivered()} records delivered")
        _until(lambda: cluster.delivered() > asked.records // 2)
        cluster.lose_a_collector()
        _say(f"a collector killed with {cluster.delivered()} records delivered")
        time.sleep(20)
        # What it alone had confirmed and not drained lies in its ledger: that is why a ledger is on a disk.
        cluster.restart_collector()
        in_time = cluster.settle()
        verdict = cluster.verdict()
    print(f"{time.monotonic() - began:.0f} s{'' if in_time else ', NOT SETTLED IN TIME'}")
    for example in verdict.examples:
        print(f"  {example}")
    print(verdict.line())
    return 0 if verdict.holds else 1


def _until(condition, timeout_s: float = 180.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.5)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    # Whoever ends it leaves no server and no mount behind.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    sys.exit(main())
