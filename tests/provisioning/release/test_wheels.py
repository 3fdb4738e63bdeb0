"""Facts about the set of wheels: complete for the target, whatever this machine is."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.release import boards, wheels
from tests.fixtures.rows import table_row
from tests.fixtures.small_release import write_wheel

pytestmark = pytest.mark.services

PI5, ORIN, PC = (
    boards.release_target("pi5"),
    boards.release_target("jetson-orin"),
    boards.release_target("pc", "3.10"),
)


@pytest.fixture
def index(tmp_path, pip_finds):
    """Return a folder that pip takes for the whole world."""
    folder = tmp_path / "index"
    folder.mkdir()
    pip_finds(folder)
    write_wheel(folder, "pip", "26.0")
    write_wheel(folder, "backport", "1.0")
    write_wheel(folder, "forarm", "1.0")
    write_wheel(
        folder,
        "runtime",
        "1.0",
        ("backport; python_version < '3.12'", "forarm; platform_machine == 'aarch64'"),
        Provides_Extra="fast",
    )
    write_wheel(folder, "runtime", "0.9", Provides_Extra="fast")
    return folder


def own_wheel(tmp_path, *needs):
    """Return a wheel of edgemeter that needs these, the runtime as its extra `litert`."""
    return write_wheel(
        tmp_path,
        "edgemeter",
        "1.0",
        ("runtime>=1; extra == 'litert'", *needs),
        Provides_Extra="litert",
    )


def collected(tmp_path, target, wheel, extras=("litert",), further=()):
    folder = tmp_path / "-".join(target.words.split())
    folder.mkdir(parents=True)
    wheels.collect_wheels(wheel, extras, target, folder, further)
    return {path.name.split("-")[0] for path in folder.iterdir()}


def test_markers_are_read_as_on_the_board(index, tmp_path):  # noqa: ARG001 - the world
    """Markers are evaluated for the board, whichever Python and machine this is.

    Python 3.13 needs no backport, 3.10 does; a package for one processor goes to that processor.
    """
    wheel = own_wheel(tmp_path)
    assert collected(tmp_path, PI5, wheel) == {"edgemeter", "pip", "runtime", "forarm"}
    assert collected(tmp_path, ORIN, wheel) == {"edgemeter", "pip", "runtime", "forarm", "backport"}
    assert collected(tmp_path, PC, wheel) == {"edgemeter", "pip", "runtime", "backport"}
    assert collected(tmp_path, boards.release_target("pi4"), wheel, ()) == {"edgemeter", "pip"}


# `index` is the world.
def test_a_wheel_that_no_index_has_is_included_with_what_it_needs(index, tmp_path):  # noqa: ARG001
    """A maker's runtime, which no index has, is included with its requirements.

    One for another processor or Python, or whose requirements cannot be found, is refused.
    """
    wheel, shop = own_wheel(tmp_path), tmp_path / "shop"
    shop.mkdir()
    maker = write_wheel(shop, "maker", "1.0", ("backport",))
    assert collected(tmp_path, PI5, wheel, (), [maker]) == {"edgemeter", "pip", "maker", "backport"}
    needy = write_wheel(shop, "needy", "1.0", ("nowhere",))
    for other, why in (
        (maker.rename(shop / "maker-1.0-cp310-cp310-linux_aarch64.whl"), "not a supported wheel"),
        (needy, "nowhere"),
        (shop / "absent-1.0-py3-none-any.whl", "is not a wheel"),
    ):
        with table_row(other.name), pytest.raises(ConfigError, match=why):
            collected(tmp_path / other.name, PI5, wheel, (), [other])


def test_what_is_missing_is_named(index, tmp_path):  # noqa: ARG001 - the world
    """A missing requirement is named with the target, and so is a missing extra.

    Pip only warns of an extra, so that the board would come without a runtime.
    """
    with pytest.raises(ConfigError, match=r"no wheels for pi5: .*nowhere"):
        collected(tmp_path, PI5, own_wheel(tmp_path, "nowhere>=3"))
    with pytest.raises(ConfigError, match="edgemeter has no extra lightrt"):
        collected(tmp_path, ORIN, own_wheel(tmp_path), ("lightrt",))
