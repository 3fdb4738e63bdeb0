"""What every generator promises, asked of every name in the table."""

import sys
import time
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.generators import GENERATORS, LikelihoodGenerator, Limits, create
from edgemeter.agent.runtimes import Options
from tests.fixtures.language_server import llama_server
from tests.fixtures.rows import table_row

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "generators"
# The modules of which one is enough.
LIBRARIES: dict[str, tuple[str, ...]] = {"llama": ("xllamacpp",), "replay": (), "server": ()}
CONTEXT = 48


def fixture_of(name: str) -> Path:
    """Return the generator's model, `NAME.SUFFIX`."""
    paths = sorted(FIXTURES.glob(f"{name}.*"))
    assert len(paths) == 1, f"generator {name!r} needs one fixture tests/fixtures/generators/{name}.SUFFIX, has {paths}"
    return paths[0]


@pytest.fixture(params=[name for name in GENERATORS if name != "server"])
def installed(request, monkeypatch) -> str:
    """Return the name of a generator of this process; a replay spins, and does not sleep."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return request.param


@pytest.fixture
def model(installed):
    """Return the generator's model."""
    return fixture_of(installed)


@pytest.fixture
def loaded(installed, model):
    """Return a generator that has loaded its fixture, and what it found."""
    generator = create(installed)
    yield generator, generator.load(model, Options(), CONTEXT)
    generator.close()


def prompt_of(engine, length: int = 5) -> list[int] | str:
    """Return a prompt that the generator takes."""
    if not engine.text_tokens.size:
        return "the board on the bench " * length
    return [*engine.first_tokens, *engine.text_tokens[3 : 3 + length].tolist()]


def test_a_generator_has_a_file_a_fixture_and_its_part_of_the_reference():
    """Adding a generator is one file, one line in the table, and one fixture; the reference is made from it."""
    reference = (ROOT / "docs" / "reference" / "generators.md").read_text()
    for name in GENERATORS:
        assert fixture_of(name).stat().st_size < 256_000
        assert f"\n[`{name}`](#{name}) | " in reference
    assert GENERATORS.keys() == LIBRARIES.keys(), "the contract tests must know its library"


@pytest.mark.parametrize("name", [name for name in GENERATORS if LIBRARIES[name]])
def test_an_absent_library_is_unavailable_and_names_the_extra(name, monkeypatch):
    """Without its library a generator says in one line what to install, and that extra exists."""
    for library in LIBRARIES[name]:
        for module in [module for module in sys.modules if f"{module}.".startswith(f"{library}.")]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, library, None)
    generator = create(name)
    with pytest.raises(UnavailableError, match=r"pip install 'edgemeter\[[\w-]+\]'$") as refusal:
        generator.load(fixture_of(name), Options(), CONTEXT)
    assert "\n" not in str(refusal.value)
    extra = str(refusal.value).rpartition("[")[2].partition("]")[0]
    assert extra in msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["project"]["optional-dependencies"]
    generator.close()


def test_every_token_is_stamped_and_lengths_are_exact(loaded):
    """The stamps of a query add up to its tokens, as many as were asked for; with one token of output there is one stamp."""
    generator, engine = loaded
    stamps: list[int] = []
    answer = generator.bind(prompt_of(engine), Limits(7))(stamps.append)
    assert sum(stamps) == answer.output_tokens
    if engine.abilities.ignores_end:
        assert answer.output_tokens == 7
        assert answer.ended == "length"
    if engine.text_tokens.size:
        assert len(answer.tokens) == answer.output_tokens
        assert answer.prompt_tokens == len(prompt_of(engine))
    stamps.clear()
    assert generator.bind(prompt_of(engine), Limits(1))(stamps.append).output_tokens == 1
    assert stamps == [1]


def test_the_same_prompt_gives_the_same_tokens_with_nothing_cached(loaded):
    """Greedy generation repeats itself, and the caches are dropped before each query."""
    generator, engine = loaded
    answers = [generator.bind(prompt_of(engine, length), Limits(6))(lambda _: None) for length in (5, 8, 5)]
    assert (answers[0].tokens, answers[0].text) == (answers[2].tokens, answers[2].text)
    assert answers[2].cached_tokens <= 1


def test_what_does_not_fit_the_context_or_the_vocabulary_is_refused(loaded):
    """A query that cannot be as long as it was asked for is refused before it is timed, in one line."""
    generator, engine = loaded
    for prompt, limits in (
        (prompt_of(engine), Limits(engine.context_tokens)),
        (prompt_of(engine), Limits(0)),
        ([], Limits(1)),
        ([-1], Limits(1)),
        ([int(engine.text_tokens.max()) + 1_000_000], Limits(1)),
    ):
        with pytest.raises(ConfigError) as refusal:
            generator.bind(prompt, limits)
        assert "\n" not in str(refusal.value)


def test_a_text_becomes_tokens_that_it_generates_from(loaded):
    """Where a generator tokenises, its tokens are its own prompt."""
    generator, engine = loaded
    if not engine.text_tokens.size:
        with pytest.raises(UnavailableError):
            generator.encode("the board")
        return
    tokens = generator.encode("the board")
    assert generator.bind(tokens, Limits(2))(lambda _: None).prompt_tokens == len(tokens)


def test_likelihoods_are_what_its_abilities_promise(loaded):
    """A generator that says so returns the log likelihood of every token but the first."""
    generator, engine = loaded
    assert isinstance(generator, LikelihoodGenerator) or not engine.abilities.likelihoods
    if isinstance(generator, LikelihoodGenerator) and engine.abilities.likelihoods:
        tokens = prompt_of(engine, 12)
        likely = generator.likelihoods(tokens)
        assert likely.dtype == np.float64
        assert likely.shape == (len(tokens) - 1,)
        assert bool(np.all(likely < 0))
        np.testing.assert_allclose(generator.likelihoods(tokens), likely)


def broken(kind: str, folder: Path, name: str) -> Path:
    """Return a path that is no model of anything."""
    path = folder / f"model{fixture_of(name).suffix}"
    contents = {
        "empty": b"",
        "text": b"this is a note\nabout a model\n",
        "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n",
        "noise": bytes(range(256)) * 64,
    }
    if kind == "directory":
        path.mkdir()
    elif kind in contents:
        path.write_bytes(contents[kind])
    return path


def test_what_is_no_model_ends_in_one_line(installed, tmp_path):
    """A missing, empty or foreign file is a ConfigError that names it, and close still works."""
    for kind in ("absent", "directory", "empty", "pointer", "text", "noise"):
        with table_row(kind):
            (tmp_path / kind).mkdir()
            path = broken(kind, tmp_path / kind, installed)
            generator = create(installed)
            with pytest.raises(ConfigError) as refusal:
                generator.load(path, Options(), CONTEXT)
            assert str(path) in str(refusal.value)
            assert "\n" not in str(refusal.value)
            generator.close()
            generator.close()


def test_unknown_settings_are_refused(installed, model):
    """A backend, a setting, a number of threads or a context that cannot be meant is one line."""
    for options in (Options(backend="nowhere"), Options(extra={"colour": "red"}), Options(threads=0)):
        with table_row(options):
            generator = create(installed)
            with pytest.raises(ConfigError) as refusal:
                generator.load(model, options, CONTEXT)
            assert "\n" not in str(refusal.value)
            generator.close()
    generator = create(installed)
    with pytest.raises(ConfigError, match="context"):
        generator.load(model, Options(), 1 << 22)
    generator.close()


@pytest.mark.services
def test_a_server_keeps_it_too(tmp_path):
    """Over HTTP; it takes texts, whose length only the server knows."""
    server = llama_server()
    try:
        running = tmp_path / "running.server"
        running.write_text(f'url = "{server.url}"\n')
        with closing(create("server")) as generator:
            loaded = generator, generator.load(running, Options(), CONTEXT)
            test_every_token_is_stamped_and_lengths_are_exact(loaded)
            test_the_same_prompt_gives_the_same_tokens_with_nothing_cached(loaded)
            test_a_text_becomes_tokens_that_it_generates_from(loaded)
            test_likelihoods_are_what_its_abilities_promise(loaded)
        test_unknown_settings_are_refused("server", running)
        test_what_is_no_model_ends_in_one_line("server", tmp_path)
    finally:
        server.close()
