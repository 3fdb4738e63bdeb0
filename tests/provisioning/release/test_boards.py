"""Facts about boards, their systems, and the tags of wheels that run on them."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.release import boards
from tests.fixtures.rows import table_row


def test_every_board_has_a_level_that_is_explained():
    """The runtimes have no wheels for 32 bits."""
    for name, board in boards.all_boards().items():
        for system in board.system:
            assert system.level in boards.LEVELS, name
            assert (system.level == "none") == (board.arch in {"armv7l", "armv6l"}), name


def test_every_system_with_a_new_enough_python_makes_a_target():
    """Python and glibc of the system are those of the target, for each system of every 64-bit board."""
    for name, board in boards.all_boards().items():
        if board.arch not in {"aarch64", "x86_64"} or boards.numbers(board.system[0].python) < (3, 10):
            continue
        for system in board.system:
            with table_row(name, system):
                target = boards.release_target(name, system.python)
                assert (target.python_text, target.arch) == (system.python, board.arch)
                assert target.glibc_text in {other.glibc for other in board.system if other.python == system.python}


def test_the_ladder_holds_every_tag_up_to_the_glibc():
    """A wheel of any older tag runs; LiteRT's is 2_27, which neither 2014 nor one tag 2_28 would find."""
    tags = boards.release_target("pi5", "3.11").platforms()
    assert [tag for tag in tags if tag.startswith("manylinux_2_")] == [f"manylinux_2_{minor}_aarch64" for minor in range(36, 16, -1)]
    assert "manylinux2014_aarch64" in tags
    assert "manylinux_2_37_aarch64" not in tags
    assert "manylinux1_x86_64" in boards.release_target("pc").platforms()


def test_a_python_that_is_brought_along_runs_on_the_old_glibc():
    """JetPack 4 has Python 3.6 and glibc 2.27: with a Python 3.11 of its own the wheels are for glibc 2.27."""
    assert boards.release_target("jetson-nano", "3.11").glibc == (2, 27)
    assert boards.release_target("coral", "3.11").platforms()[0] == "manylinux_2_28_aarch64"
    assert boards.release_target("jetson-nano", "3.11", "2.31").glibc == (2, 31)


def test_what_cannot_work_is_refused_with_the_remedy():
    """Boards, versions of Python and of glibc that do not go together, before anything is downloaded."""
    for name, python, glibc, why in (
        ("pi2", None, None, "install a 64-bit system if"),
        ("pi-zero", "3.11", "2.36", "no 32-bit wheels"),
        ("jetson-nano", None, None, "needs Python 3.10 or newer; install a newer Python"),
        ("coral", "3.7", None, "needs Python 3.10 or newer"),
        ("pi5", "3.9", None, "use Raspberry Pi OS 13"),
        ("pi5", "2.7", None, "needs Python 3.10 or newer"),
        ("pi5", "three", None, "'three' is not a version"),
        ("pi5", "3.13", "musl", "'musl' is not a version"),
        ("pi5", "3.13", "2.12", "glibc 2.17 or newer"),
        ("toaster", None, None, "no board is called 'toaster': there are .*`edgemeter fleet boards` describes them"),
    ):
        with table_row(name, python, glibc), pytest.raises(ConfigError, match=why):
            boards.release_target(name, python, glibc)


def test_a_board_is_known_by_what_it_calls_itself():
    """So that `board=pi5` picks a board that joined with a token alone, and an update its own release."""
    for model, name in (
        ("Raspberry Pi 5 Model B Rev 1.0", "pi5"),
        ("Raspberry Pi 4 Model B Rev 1.1", "pi4"),
        ("Raspberry Pi 3 Model B", "pi3"),
        ("NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super", "jetson-orin"),
        ("Google i.MX8MQ Phanbell", "coral"),
        ("Standard PC (Q35 + ICH9, 2009)", None),
        ("", None),
    ):
        assert boards.board_of_model(model) == name, f"{model!r}"
