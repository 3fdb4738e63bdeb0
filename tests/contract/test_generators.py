"""The contract of generators, checked for every name in the table."""

import sys
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.generators import GENERATORS, Limits, create
from edgemeter.agent.runtimes import Options
from tests.fixtures.language_server import llama_server
from tests.fixtures.rows import table_row

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "generators"
CONTEXT = 48


def fixture_of(name: str) -> Path:
    """Return the generator's model, `NAME.SUFFIX`."""
    paths = sorted(FIXTURES.glob(f"{name}.*"))
    assert len(paths) == 1, (
        f"generator {name!r} needs one fixture tests/fixtures/generators/{name}.SUFFIX, has {paths}"
    )
    return paths[0]


@pytest.fixture(params=[name for name in GENERATORS if name not in ("llama", "server")])
def installed(request, monkeypatch) -> str:
    """Return the name of a generator of this process; a replay spins, and does not sleep."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return request.param


@pytest.fixture
def model(installed):
    return fixture_of(installed)


@pytest.fixture
def loaded(installed, model):
    """Return a generator that has loaded its fixture, and what it found."""
    generator = create(installed)
    yield generator, generator.load(model, Options(), CONTEXT)
    generator.close()


def prompt_of(engine, length: int = 5) -> list[int] | str:
    if not engine.text_tokens.size:
        return "the board on the bench " * length
    return [*engine.first_tokens, *engine.text_tokens[3 : 3 + length].tolist()]


def test_an_absent_library_names_its_extra(monkeypatch):
    """Without its library a generator says which extra to install, and that extra exists."""
    for module in [module for module in sys.modules if module.partition(".")[0] == "xllamacpp"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(UnavailableError, match=r"pip install 'edgemeter\[llama\]'$"):
        create("llama").load(fixture_of("llama"), Options(), CONTEXT)
    assert (
        "llama"
        in msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["project"][
            "optional-dependencies"
        ]
    )


def check_generation(generator, engine):
    """Assert that a query's stamps add up to its tokens, and that a prompt gives the same again.

    Nothing is cached in between. Where there are tokens, an answer has as many as the prompt asked
    for.
    """
    stamps: list[int] = []
    answer = generator.bind(prompt_of(engine), Limits(7))(stamps.append)
    assert sum(stamps) == answer.output_tokens
    if engine.abilities.ignores_end:
        assert answer.output_tokens == 7
        assert answer.ended == "length"
    if engine.text_tokens.size:
        assert answer.prompt_tokens == len(prompt_of(engine))
    stamps.clear()
    assert generator.bind(prompt_of(engine), Limits(1))(stamps.append).output_tokens == 1
    assert stamps == [1]
    answers = [
        generator.bind(prompt_of(engine, length), Limits(6))(lambda _: None) for length in (5, 8, 5)
    ]
    assert answers[0].text == answers[2].text
    assert answers[2].cached_tokens <= 1


def test_what_it_generates_is_stamped_and_repeated_and_what_does_not_fit_is_refused(loaded):
    """Generated tokens are stamped, and the same prompt gives the same ones again.

    A query that is too long, or has a token outside the vocabulary, is refused before it is timed.
    """
    check_generation(*loaded)
    check_refused_prompts(*loaded)


def check_refused_prompts(generator, engine):
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


def broken(kind: str, folder: Path, name: str) -> Path:
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


def test_what_is_no_model_and_an_unknown_setting_end_in_one_line(installed, model, tmp_path):
    """A missing, empty or foreign file ends in one line, and `close` still works.

    An unknown backend and impossible numbers of threads or of context do so too.
    """
    check_refusals(installed, model, tmp_path)


def check_refusals(installed, model, tmp_path):
    """Assert that every file that is no model and every setting that cannot be meant is refused."""
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
    for options in (
        Options(backend="nowhere"),
        Options(extra={"colour": "red"}),
        Options(threads=0),
    ):
        with table_row(options):
            generator = create(installed)
            with pytest.raises(ConfigError) as refusal:
                generator.load(model, options, CONTEXT)
            assert "\n" not in str(refusal.value)
            generator.close()


@pytest.mark.services
def test_a_server_keeps_it_too(tmp_path):
    """A server keeps the contract over HTTP.

    It takes texts, whose length only the server knows.
    """
    server = llama_server()
    try:
        running = tmp_path / "running.server"
        running.write_text(f'url = "{server.url}"\n')
        with closing(create("server")) as generator:
            check_generation(generator, generator.load(running, Options(), CONTEXT))
        check_refusals("server", running, tmp_path)
    finally:
        server.close()


@pytest.mark.services
@pytest.mark.needs(module="xllamacpp")
def test_a_server_of_a_file_keeps_it_too(tmp_path):
    """A server that is started for a file keeps the contract, and its process ends with it."""
    with closing(create("llama")) as generator:
        engine = generator.load(fixture_of("llama"), Options(), CONTEXT)
        check_generation(generator, engine)
        check_refused_prompts(generator, engine)
        process = Path("/proc") / str(engine.process)
        assert process.exists()
    assert not process.exists()
    check_refusals("llama", fixture_of("llama"), tmp_path)
