"""Facts about `edgemeter.agent.engine.preflight`."""

from edgemeter.agent.engine import preflight
from edgemeter.agent.machine.machine import recorded
from tests.fixtures import machine_trees
from tests.fixtures.machine_trees import write


def test_what_speaks_against_measuring_is_told_before_the_first_run(tmp_path):
    """Governor, a clock that nobody vouches for, and what others do within the half second of the look."""
    machine = recorded(machine_trees.raspberry_pi_5(tmp_path))

    def work(seconds):
        assert seconds == preflight.LOOK_S
        write(tmp_path, {"proc/stat": "cpu 1060 0 500 8140 400 0 60 40 0 0\n"})

    told = preflight.notes(machine, work)
    assert [note.partition(":")[0] for note in told] == ["governor", "clock-unknown", "busy-before"]
    assert "other processes use 30%" in told[2]


def test_this_machine_can_be_looked_at():
    """Whatever it finds here, each note names its rule."""
    assert all(": " in note for note in preflight.notes())
