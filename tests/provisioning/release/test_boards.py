import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.release import boards
from tests.fixtures.rows import table_row


def test_the_ladder_holds_every_tag_up_to_the_glibc():
    """A wheel of any older glibc tag runs on the board.

    The tag of LiteRT's is 2_27, which neither 2014 nor the single tag 2_28 would find.
    """
    tags = boards.release_target("pi5", "3.11").platforms()
    assert [tag for tag in tags if tag.startswith("manylinux_2_")] == [
        f"manylinux_2_{minor}_aarch64" for minor in range(36, 16, -1)
    ]
    assert "manylinux2014_aarch64" in tags
    assert "manylinux_2_37_aarch64" not in tags
    assert "manylinux1_x86_64" in boards.release_target("pc").platforms()


def test_what_cannot_work_is_refused_with_the_remedy():
    """An impossible combination is refused with the remedy before anything is downloaded.

    Boards, versions of Python and of glibc have to go together.
    """
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
        ("toaster", None, None, "no board is called 'toaster': give one of pi5, pi4, "),
    ):
        with table_row(name, python, glibc), pytest.raises(ConfigError, match=why):
            boards.release_target(name, python, glibc)


def test_a_board_is_known_by_what_it_calls_itself():
    """A board is recognised by the name that it gives itself.

    So `board=pi5` selects a board that joined with a token alone, and an update finds its release.
    """
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
