"""Campaigns from the file to the coverage, with the real handlers and devices that answer by hand."""

import json
import time
from collections import Counter

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.orders import Order
from edgemeter.provisioning.campaigns import campaign_handler, planning
from edgemeter.provisioning.campaigns.campaign_handler import CampaignHandler
from edgemeter.provisioning.registry import campaigns, devices
from edgemeter.provisioning.registry.devices import Device
from tests.fixtures.fleet_command import run_fleet
from tests.fixtures.job_bench import Bench
from tests.fixtures.rows import table_row

SAMPLE = planning.SAMPLE
FLEET = """
fleet = "lab"
[device.a]
power_mode = "15W"
"""
CAMPAIGN = """
name = "autumn"
on = "all"
models = ["edgemeter-shapes_int8.tflite"]
{more}
"""
MODES = '[[modes]]\nname = "quick"\non = "!device=d"\n'


def device(name, board="pi5"):
    """Return an accepted device."""
    return Device(name, "lab", name, board, (), "accepted", 1, 1)


class World(Bench):
    """A bench with a campaign handler, four devices of two boards, and a fleet.toml."""

    def __init__(self, path):
        super().__init__(path / "fleet")
        # The commands go by the machine's clock.
        self.now_ns = time.time_ns() + 60 * 10**9
        self.folder.fleet_file.write_text(FLEET)
        self.file = path / "campaign.toml"
        with self.registry.transaction() as connection:
            for entry in (device("a", "orin"), device("b"), device("c"), device("d")):
                devices.put(connection, entry)

    def start(self):
        """Start the service anew."""
        super().start()
        self.published = []
        self.campaigns = CampaignHandler(self.folder, self.registry, self.publish)

    def publish(self, topic, payload, *, lasting="passing"):
        """Keep what is published of campaigns."""
        self.published.append((topic, payload, lasting))

    def begin(self, rules="", modes=MODES):
        """Start a campaign by the command, as people do."""
        self.file.write_text(CAMPAIGN.format(more=rules + modes))
        return self.call("campaign", "start", str(self.file))

    def call(self, *arguments, code=0):
        """Call `edgemeter fleet`."""
        return run_fleet(self.folder.path, *arguments, code=code).stdout

    def orders(self, seconds=2.0):
        """Let both handlers look, and return what goes out by device."""
        self.now_ns += int(seconds * 1e9)
        self.campaigns.poll(self.now_ns)
        return {device: order for device, order in self.poll(0) if isinstance(order, Order)}

    def end(self, orders, state="done", **fields):
        """Let the devices end what they were ordered."""
        for name, order in orders.items():
            self.report(name, order, state, order.version, **fields)
        self.poll(0)


@pytest.fixture
def world(tmp_path):
    """Return a world whose devices are all online."""
    world = World(tmp_path)
    world.online("a", "b", "c", "d")
    yield world
    world.registry.close()


def test_the_sample_loads_with_and_without_its_commented_defaults(tmp_path):
    """Every key that it shows exists, and each says the default."""
    read = planning.read_campaign_file(SAMPLE)
    assert [mode.name for mode in read.modes] == ["one-thread", "four-threads", "15-watts"]
    bare = tmp_path / "campaign.toml"
    bare.write_text("\n".join(line.removeprefix("# ") for line in SAMPLE.read_text().splitlines()))
    all_said = planning.read_campaign_file(bare)
    assert (all_said.exclusive, all_said.rules.groups) == (("box-1",), (2, "10%", "50%"))
    assert (all_said.timeout_s, all_said.retries, all_said.rules.abort) == (read.timeout_s, read.retries, read.rules.abort)
    assert all_said.rules.success_ratio == read.rules.success_ratio


def test_a_wrong_file_is_one_line(tmp_path):
    """Missing, unknown, doubled, half a file."""
    for text, message in (
        ("", "name"),
        ('name = "a"\non = "all"\nmodels = []', "models"),
        ('name = "A b"\non = "all"\nmodels = ["m"]', "name"),
        ('name = "a"\non = "all"\nmodels = ["m"]\nmodes = []', "`modes` is empty"),
        ('name = "a"\non = "all"\nmodels = ["m"]\n[[modes]]\nname = "x"\n[[modes]]\nname = "x"', "two modes"),
        ('name = "a"\non = "all"\nmodels = ["m"]\n[rules]\ngroups = ["101%"]', "groups"),
        ('name = "a"\non = "all"\nmodels = ["m"]\n[rules]\ngroups = [0]', "groups"),
        ('name = "a"\non = "all"\nmodels = ["m"]\n[rules]\nsuccess_ratio = 80', "success_ratio"),
        ("name = ", "campaign.toml"),
    ):
        with table_row(text):
            path = tmp_path / "campaign.toml"
            path.write_text(text)
            with pytest.raises(ConfigError, match=message):
                planning.read_campaign_file(path)


def test_a_canary_group_measures_first_and_the_others_when_it_is_done(world):
    """Boards of every type are in it; coverage grows to all possible cells."""
    text = world.begin("[rules]\ngroups = [2, 3]\n")
    assert "group 1 of 3" in text
    assert "d, edgemeter-shapes_int8.tflite, quick: impossible: mode 'quick' is for !device=d" in text
    first = world.orders()
    assert set(first) == {"a", "b"}
    assert world.orders() == {}
    world.end(first)
    second = world.orders()
    assert set(second) == {"c"}
    assert campaigns.read_coverage(world.registry, "autumn").counts == {"done": 2, "pending": 1, "lost": 0, "impossible": 1}
    world.end(second)
    world.orders()
    world.orders()
    document = json.loads(world.call("campaign", "status", "autumn", "--format", "json"))
    assert (document["state"], document["coverage_ratio"], document["cells"]) == (
        "done",
        1.0,
        {"done": 3, "pending": 0, "lost": 0, "impossible": 1},
    )
    assert "3 of 3, 100%" in world.call("campaign", "list")


def test_a_resumed_campaign_is_not_aborted_again_for_what_failed_before(world):
    """Two of a group of four failed, which is too many; resumed, the others of the group are measured, and the campaign ends."""
    world.begin("[rules]\nmax_in_flight = 2\ngroups = [2]\nsuccess_ratio = 1.0\nabort = { min_executed = 1 }\n")
    orders = world.orders()
    failed = dict([orders.popitem()])
    world.end(failed, "failed", reason="no such runtime")
    world.orders()
    assert campaigns.find(world.registry, "autumn").state == "aborted"
    world.call("campaign", "resume", "autumn")
    world.end(orders)
    for _ in range(4):
        world.end(world.orders())
    assert campaigns.find(world.registry, "autumn").state == "done"
    assert campaigns.read_coverage(world.registry, "autumn").counts == {"done": 2, "pending": 0, "lost": 1, "impossible": 1}


def test_a_killed_service_goes_on_with_the_campaign_where_it_was(world):
    """Every moment between two looks; each cell is ordered once."""
    world.begin("[rules]\ngroups = [1, 2]\n")
    ordered = []
    for _ in range(12):
        orders = world.orders()
        world.kill()
        world.online("a", "b", "c", "d")
        repeated = world.orders()
        assert repeated == orders or not repeated or not orders
        orders |= repeated
        ordered += [(name, order.job, order.attempt) for name, order in orders.items()]
        world.end(orders)
        world.kill()
        world.online("a", "b", "c", "d")
    assert len(ordered) == len(set(ordered)) == 3
    assert campaigns.find(world.registry, "autumn").state == "done"


def test_paused_means_that_nothing_begins(world):
    """What is in flight goes on; cancelled, it is ordered to end."""
    world.begin("[rules]\nmax_in_flight = 1\n")
    (only,) = world.orders().items()
    assert world.orders() == {}
    assert "2 executions held" in world.call("campaign", "pause", "autumn")
    world.end(dict([only]))
    assert world.orders() == {}
    world.call("campaign", "resume", "autumn")
    (other,) = world.orders().items()
    assert other[0] != only[0]
    assert "1 executions not started, 1 being cancelled" in world.call("campaign", "cancel", "autumn")
    assert [type(order.work).__name__ for order in world.orders().values()] == ["Cancel"]
    assert world.call("campaign", "cancel", "autumn") == "autumn: already cancelled\n"
    with pytest.raises(ConfigError, match="is over"):
        world.call("campaign", "resume", "autumn")


def test_modes_are_for_the_devices_they_name(world):
    """A power mode, a selection, a runtime that does not read the file: impossible, each with its reason."""
    modes = (
        '[[modes]]\nname = "watts"\npower_mode = "15W"\n[[modes]]\nname = "pi"\non = "board=pi5 & !d"\n'
        '[[modes]]\nname = "ort"\ncase = { runtime = "onnx" }\n'
    )
    world.begin(modes=modes)
    why = {
        (cell.cell.mode, cell.cell.device): cell.why
        for cell in campaigns.read_coverage(world.registry, "autumn").cells
        if cell.state == "impossible"
    }
    assert why["watts", "b"] == "mode 'watts' needs power mode '15W', the device has none in fleet.toml"
    assert why["pi", "a"] == "mode 'pi' is for board=pi5 & !d"
    assert why["ort", "a"] == "onnx does not read edgemeter-shapes_int8.tflite"
    assert {("watts", "a"), ("pi", "b"), ("pi", "c")}.isdisjoint(why)
    assert len(why) == 9


def test_groups_mix_the_boards():
    """Their ends are numbers or shares of the devices, in any order; a group of two has two kinds of board."""
    kinds = {f"p{number}": "pi5" for number in range(8)} | {"o1": "orin", "o2": "orin"}
    groups = campaign_handler.in_groups(kinds, ("20%", 5, 8))
    assert {name for name, group in groups.items() if group == 0} == {"p0", "o1"}
    for ends, sizes in (
        (("20%", 5, 8), [2, 3, 3, 2]),
        ((8, 5, "20%"), [2, 3, 3, 2]),
        ((), [10]),
        (("100%",), [10]),
        ((10, 50, 100), [10]),
        (("0%", "0.1%", "7%", "10%"), [1, 9]),
        ((1, 1, "10%"), [1, 9]),
    ):
        with table_row(ends):
            counts = Counter(campaign_handler.in_groups(kinds, ends).values())
            assert [counts[group] for group in range(len(counts))] == sizes
    hundred = {f"d{number}": "pi5" for number in range(100)}
    assert Counter(campaign_handler.in_groups(hundred, ("7%",)).values()) == {0: 7, 1: 93}


def test_how_far_a_campaign_is_is_published_retained_when_it_changes(world):
    """Its executions by state and what is impossible, at most every five seconds; nothing twice; a day after the end nothing is left."""
    world.begin("[rules]\ngroups = [1]\n")
    sent = world.orders(6.0)
    assert len(sent) == 1
    world.orders(6.0)
    topics = {(topic, lasting) for topic, _, lasting in world.published}
    assert topics == {("edgemeter/campaign/autumn/state", "retained")}
    first = messages.decode_campaign(world.published[-1][1])
    assert (first.state, first.group, first.groups) == ("running", 1, 2)
    expected = {"running": 1, "waiting": 2, "impossible": 1, "done": 0, "total": 3}
    assert {name: getattr(first, name) for name in expected} == expected
    world.published.clear()
    world.orders(6.0)
    assert world.published == []
    world.end(sent)
    world.end(world.orders(6.0), state="failed", reason="no")
    world.orders(6.0)
    world.orders(6.0)
    last = messages.decode_campaign(world.published[-1][1])
    counts = campaigns.read_coverage(world.registry, "autumn").counts
    assert (last.done, last.done + last.failed + last.running + last.waiting) == (counts["done"], 3)
    world.call("campaign", "cancel", "autumn")
    world.orders(6.0)
    ended = messages.decode_campaign(world.published[-1][1])
    assert (ended.state, ended.running + ended.waiting) == ("cancelled", 0)
    world.orders(25 * 3600.0)
    assert world.published[-1] == ("edgemeter/campaign/autumn/state", b"", "retained")
    world.published.clear()
    world.orders(6.0)
    assert world.published == []
