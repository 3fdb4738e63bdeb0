"""Facts about the public board: what stands on it was recomputed, and every page works from a disk."""

import html
import re
from html.parser import HTMLParser
from itertools import count
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import msgspec
import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.bundle.archive import bundle_files
from edgemeter.agent.bundle.signature import keygen, signer
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.energy import per_inference
from edgemeter.collector.board.board_site import badge, write_board
from edgemeter.collector.board.entries import lab_keys, read_entries
from edgemeter.collector.cli.board import site
from tests.fixtures import cheats
from tests.fixtures.axe import axe_script, serious
from tests.fixtures.browser import Browser, find_chromium
from tests.fixtures.bundle_factory import make_sound_record, record_of, rezip, write_bundle

HOSTILE = "</script><script>document.title='taken'</script><img src=x>"
PICK = "const box = document.querySelector('[name=precision]'); box.value = 'int8'; box.dispatchEvent(new Event('change', {bubbles: true}))"
ROWS = (
    "[...document.querySelectorAll('#results table.grid tbody tr')].filter(one => one.offsetParent !== null).map(one => one.dataset.device)"
)


@pytest.fixture(scope="module")
def sound():
    """Return a record whose figures follow from its samples."""
    return make_sound_record()


@pytest.fixture(scope="module")
def labs(tmp_path_factory):
    """Return the signers of two labs and their public keys."""
    folder = tmp_path_factory.mktemp("keys")
    keys = {name: keygen(folder / f"{name}.key")[0] for name in ("oslo", "lima")}
    for name, key in keys.items():
        keys[name] = key.rename(folder / f"{name}.key.pub")
    return {name: (signer(folder / f"{name}.key"), keys[name]) for name in keys}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory, sound, labs):
    """Return a folder of bundles: three that hold, and one of each kind that does not."""
    folder = tmp_path_factory.mktemp("bundles")
    oslo, lima = labs["oslo"][0], labs["lima"][0]

    def of(name, by, **changes):
        # Each was measured: another seed for each.
        return write_bundle(folder, msgspec.structs.replace(make_sound_record(next(seeds)), id=name, **changes), by)

    seeds = count(20)

    of("one", oslo, device="pi-1")
    of("two", oslo, device="pi-2", precision="int8")
    of("other-lab", lima, device="pi-1")
    of("unsigned", None, device="pi-3")
    of("forged", oslo, device="pi-4", throughput_per_s=sound.throughput_per_s * 2)
    of("flattered", oslo, device="pi-5", verdict=Verdict(state="valid", reasons=(), notes=("made up: 1",)))
    changed = of("resigned", oslo, device="pi-6")
    rezip(changed, lambda files: files.update({"suite.toml": b'name = "two"\n'}))
    of("cut", oslo, device="pi-7").write_bytes(b"PK\x03\x04 nothing")
    return folder


def entries_of(bundles, labs, lab_names=("oslo", "lima")):
    """Return the entries of a board by the name of their file."""
    return {entry.path.stem: entry for entry in read_entries(bundle_files([bundles]), lab_keys([labs[name][1] for name in lab_names]))}


def board_of(bundles, labs, folder):
    """Write the board; return its entries by the name of their file."""
    entries = entries_of(bundles, labs)
    write_board(list(entries.values()), folder, "Built by a test.")
    return entries


@pytest.fixture(scope="module")
def board(bundles, labs, tmp_path_factory):
    """Return a board and its entries."""
    folder = tmp_path_factory.mktemp("board")
    return folder, board_of(bundles, labs, folder)


def text_of(folder, pattern):
    """Return all that pages of that name hold, as text."""
    return " ".join(html.unescape(path.read_text()) for path in folder.glob(pattern))


@pytest.mark.slow
def test_a_figure_that_does_not_recompute_is_refused_and_on_no_page_but_among_the_refused(board):
    """Twice the throughput, and a verdict with a note of its own: the index names the figure, no comparison has it."""
    folder, entries = board
    assert {name for name, entry in entries.items() if entry.state == "verified"} == {"one", "two", "other-lab"}
    assert entries["forged"].state == entries["flattered"].state == "refused"
    assert "throughput_per_s" in entries["forged"].reason
    assert "verdict" in entries["flattered"].reason
    index = text_of(folder, "index.html").partition("<main")[2]
    assert index.index("Not verified") < index.index("does not recompute from its raw samples: throughput_per_s")
    assert not re.search(r"pi-[3-7]", text_of(folder, "compare.html") + text_of(folder, "model-*") + text_of(folder, "device-*"))
    assert len(list((folder / "bundles").iterdir())) == len(list((folder / "badges").iterdir())) == 3


@pytest.mark.slow
def test_what_nobody_known_signed_stands_apart(board, bundles, labs):
    """Unsigned, or by a key that this board does not know; without keys any right signature counts."""
    _, entries = board
    assert (entries["unsigned"].state, entries["unsigned"].reason) == ("unproven", "not signed")
    few = entries_of(bundles, labs, lab_names=("oslo",))
    assert (few["other-lab"].state, few["one"].state) == ("unproven", "verified")
    assert "not among those of this board" in few["other-lab"].reason
    unnamed = entries_of(bundles, labs, lab_names=())
    assert unnamed["other-lab"].state == "verified"
    assert unnamed["other-lab"].lab.startswith("key ")


def test_a_broken_signature_and_a_damaged_file_are_refused_with_the_reason(board):
    """The board is made all the same; the entry of each bad bundle says what is wrong with it."""
    _, entries = board
    assert entries["resigned"].reason.startswith("WRONG SIGNATURE")
    assert entries["cut"].reason.startswith("damaged: ")


def test_energies_of_another_method_are_neither_right_nor_wrong(sound, labs, tmp_path):
    """They stand apart with that reason."""
    energy = msgspec.structs.replace(sound.energy, gross_mj=sound.energy.gross_mj * 1.5)
    other = msgspec.structs.replace(sound, energy=energy, energy_method=per_inference.METHOD + 1)
    write_bundle(tmp_path, other, labs["oslo"][0])
    (entry,) = read_entries(bundle_files([tmp_path]), {})
    assert entry.state == "unproven"
    assert "another version of the method" in entry.reason


def test_two_labs_with_a_device_of_one_name_are_two_devices(board):
    """Their runs are never one case: the lab stands in the place of the fleet."""
    folder, entries = board
    assert {entries[name].run.fleet for name in ("one", "other-lab")} == {"oslo", "lima"}
    assert len(list(folder.glob("device-*-pi-1-*.html")) or list(folder.glob("device-pi-1-*.html"))) == 2


def test_one_run_is_one_result(sound, labs, tmp_path):
    """A copy under another name is refused."""
    first = write_bundle(tmp_path, sound, labs["oslo"][0])
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "copy.edgemeter").write_bytes(first.read_bytes())
    states = {entry.path.name: entry.state for entry in read_entries(bundle_files([tmp_path]), {})}
    assert sorted(states.values()) == ["refused", "verified"]


def forged_from(record, change, **changes):
    """Return a record whose latencies and pre-processing are changed, and everything else computed from them as for a measured one."""
    raw = {series.name: samples.unpack(series) for series in record.samples}
    forged = record_of(change(raw["latency"]), change(raw["preprocess"]), seed=99)
    return msgspec.structs.replace(forged, **changes)


@pytest.mark.parametrize("cheat", [*cheats.DISGUISES], ids=lambda cheat: cheat.__name__)
def test_the_same_samples_count_once_however_they_are_disguised(sound, labs, tmp_path, cheat):
    """A new id, another device, another precision and everything recomputed from the disguised samples: set aside, with the reason."""
    write_bundle(tmp_path, msgspec.structs.replace(sound, id="a-first"), labs["oslo"][0])
    copy = forged_from(sound, cheat, id="b-copy", device="jetson", precision="int8")
    write_bundle(tmp_path, copy, labs["oslo"][0])
    entries = entries_of(tmp_path, labs)
    assert {name: entry.state for name, entry in entries.items()} == {"a-first": "verified", "b-copy": "copied"}
    assert entries["b-copy"].found.state == "same"
    assert re.search(r"samples.* as a-first\.edgemeter: one measurement counts once", entries["b-copy"].reason)
    assert entries["a-first"].copies == ("b-copy.edgemeter",)


def test_a_stolen_bundle_that_nobody_known_signed_does_not_displace_the_original(sound, labs, tmp_path):
    """Although its file comes first; what is refused displaces nothing, too."""
    write_bundle(tmp_path, msgspec.structs.replace(sound, id="a-stolen", device="pi-2"), None)
    write_bundle(tmp_path, msgspec.structs.replace(sound, id="b-forged", throughput_per_s=1.0), labs["lima"][0])
    write_bundle(tmp_path, msgspec.structs.replace(sound, id="c-original"), labs["oslo"][0])
    states = {name: entry.state for name, entry in entries_of(tmp_path, labs).items()}
    assert states == {"a-stolen": "copied", "b-forged": "refused", "c-original": "verified"}


@pytest.mark.slow
def test_an_accuracy_that_nobody_can_recompute_stands_apart_as_stated(sound, labs, tmp_path):
    """An AP of 0.990 that a lab made up: on the index among what is stated, on the run's page as stated, in no comparison."""
    accuracy = msgspec.structs.replace(sound.accuracy, value=0.990)
    write_bundle(tmp_path, msgspec.structs.replace(sound, id="flattered", accuracy=accuracy), labs["oslo"][0])
    entries = list(entries_of(tmp_path, labs).values())
    assert entries[0].run.accuracy is None
    assert entries[0].stated.accuracy.value == 0.990
    folder = tmp_path / "site"
    write_board(entries, folder, "")
    index = text_of(folder, "index.html").partition("<main")[2]
    results_at, stated_at = index.index("Verified results"), index.index("Stated, not recomputed")
    assert results_at < stated_at < index.index("0.990")
    assert "0.990" not in text_of(folder, "compare.html") + text_of(folder, "model-*") + text_of(folder, "device-*")
    run_page = text_of(folder, "run-*")
    assert run_page.count("0.990") == 1
    assert run_page.index("Accuracy, stated") < run_page.index("0.990")


@pytest.mark.slow
def test_the_board_shows_which_entries_were_set_aside_and_why(sound, labs, tmp_path):
    """A copy is in the table below with its reason and on no other page; its original names it."""
    write_bundle(tmp_path, msgspec.structs.replace(sound, id="a-first"), labs["oslo"][0])
    write_bundle(tmp_path, msgspec.structs.replace(sound, id="b-copy", device="jetson"), labs["oslo"][0])
    folder = tmp_path / "site"
    write_board(list(entries_of(tmp_path, labs).values()), folder, "")
    index = text_of(folder, "index.html")
    assert "1 verified result of 1 lab" in index
    index = index.partition("<main")[2]
    assert index.index("Not verified, set aside") < index.index("the same latency samples as a-first.edgemeter")
    assert "b-copy.edgemeter" in text_of(folder, "run-*")
    assert "jetson" not in text_of(folder, "compare.html") + text_of(folder, "model-*") + text_of(folder, "device-*")
    result = CliRunner().invoke(site, [str(tmp_path), "--output", str(tmp_path / "other"), "--require", "recomputed"])
    assert (result.exit_code, "copied: " in result.stderr) == (1, True)


class Links(HTMLParser):
    """The places that a page refers to."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, _tag, attrs):
        """Note what the element refers to."""
        self.found += [value for name, value in attrs if name in ("href", "src") and value]


def test_every_link_of_every_page_leads_to_a_file_of_the_board(board):
    """And to a place in it; nothing is loaded from elsewhere."""
    folder, _ = board
    pages = {path.name: path.read_text() for path in folder.glob("*.html")}
    assert len(pages) == 2 + 1 + 3 + 3
    for name, text in pages.items():
        for target in Links(text).found:
            if target == "data:,":
                continue
            file, _, fragment = target.partition("#")
            file = unquote(file.partition("?")[0]) or name
            assert (folder / file).is_file(), f"{name}: {target}"
            assert not fragment or f'id="{fragment}"' in pages[file], f"{name}: {target}"


def test_a_badge_is_valid_svg_and_names_what_keeps_a_result_from_being_valid(sound):
    """Suspect and replayed stand on it."""
    text = badge(msgspec.structs.replace(sound, model=msgspec.structs.replace(sound.model, name=HOSTILE)))
    assert [child.tag.rpartition("}")[2] for child in ET.fromstring(text)] == ["title", "rect", "rect", "g"]  # noqa: S314 - our own
    assert "p50 5.88 ms" in text
    doubted = msgspec.structs.replace(
        sound, verdict=Verdict(state="suspect", reasons=("drift: 12%",)), provenance={"latency": "replayed", "energy": "replayed"}
    )
    assert ", suspect, replayed, recomputed" in badge(doubted)


@pytest.mark.slow
def test_what_a_bundle_must_be_can_be_required(bundles, labs, tmp_path):
    """The command fails and writes nothing, so that a pull request fails; without it the board is written."""
    out = tmp_path / "site"
    for need, fails in (("verified", 5), ("recomputed", 4)):
        result = CliRunner().invoke(site, [str(bundles), "--output", str(out), "--require", need])
        assert result.exit_code == 1
        assert f"{fails} of 8 bundles fail --require {need}" in result.stderr
        assert not out.exists()
    result = CliRunner().invoke(
        site, [str(bundles), "--output", str(out), "--public-key", str(labs["oslo"][1]), "--public-key", str(labs["lima"][1])]
    )
    assert result.exit_code == 0
    assert "3 of 8 bundles verified" in result.stderr
    assert (out / "index.html").exists()


def test_a_result_that_is_gone_leaves_no_page_and_no_folder_of_others_is_touched(sound, labs, tmp_path):
    """A second board in the same place holds its own results only; what somebody put beside it stays."""
    out = tmp_path / "site"
    first = write_bundle(tmp_path, msgspec.structs.replace(sound, id="first"), labs["oslo"][0])
    write_board(read_entries([first], {}), out, "")
    (out / "CNAME").write_text("board.example")
    second = write_bundle(tmp_path, msgspec.structs.replace(sound, id="second"), labs["oslo"][0])
    write_board(read_entries([second], {}), out, "")
    assert [path.name.partition("-")[2][:6] for path in out.glob("run-*.html")] == ["second"]
    assert len(list((out / "bundles").iterdir())) == len(list((out / "badges").iterdir())) == 1
    assert (out / "CNAME").exists()
    with pytest.raises(ConfigError, match="is not empty and holds no board"):
        write_board(read_entries([second], {}), tmp_path, "")
    assert second.exists()


def test_a_place_without_bundles_is_an_error(tmp_path):
    """One line that says how they are written."""
    with pytest.raises(ConfigError, match="no bundle in"):
        bundle_files([tmp_path])
    with pytest.raises(ConfigError, match="does not exist"):
        bundle_files([tmp_path / "nowhere"])


@pytest.fixture(scope="module")
def tab(tmp_path_factory, board):
    """Open a page of the board from the disk, without a network."""
    with Browser(find_chromium(), tmp_path_factory.mktemp("chromium")) as browser:

        def open_tab(name="index.html", **how):
            file, _, query = name.partition("?")
            page = browser.open((board[0] / file).as_uri() + (f"?{query}" if query else ""), offline=True, **how)
            page.drawn()
            return page

        yield open_tab


@pytest.mark.chromium
@pytest.mark.slow
def test_filters_narrow_the_table_and_are_in_the_address(tab):
    """From the disk, without a network, with a silent console."""
    page = tab()
    assert sorted(page.run(ROWS)) == ["pi-1", "pi-1", "pi-2"]
    page.run(PICK)
    page.until(f"location.search === '?precision=int8' && document.readyState === 'complete' && {ROWS}.length === 1")
    assert page.run("document.querySelector('[name=precision]').value") == "int8"
    lab = tab("index.html?fleet=lima")
    assert lab.run(ROWS) == ["pi-1"]
    assert lab.run("[...document.querySelectorAll('form.filters label span')].map(one => one.textContent)")[0] == "Lab"
    assert page.complaints() == lab.complaints() == []


@pytest.mark.chromium
@pytest.mark.slow
def test_a_run_of_a_chart_and_of_its_table_leads_to_its_page(tab, board):
    """Where verification and signature stand first."""
    folder, _ = board
    page = tab(next(folder.glob("model-*")).name)
    page.run("document.querySelector('figure .figure-tools button[aria-expanded]').click()")
    href = page.run("document.querySelector('.behind a').getAttribute('href')")
    assert (folder / href).is_file()
    page.run("document.querySelector('.behind a').click()")
    page.until("location.pathname.includes('/run-') && document.readyState === 'complete'")
    text = page.run("document.querySelector('main section').textContent")
    assert "Figures recomputed" in text
    assert "signed by" in text
    assert page.complaints() == []


@pytest.mark.long
@pytest.mark.chromium
@pytest.mark.needs("npm")
@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["index.html", "compare.html", "model-*", "device-*", "run-*"])
def test_every_page_fits_a_phone_and_axe_finds_nothing_serious(tab, board, name, dark):
    """Every kind of page, in the light and the dark colours."""
    page = tab(next(board[0].glob(name)).name, width=390, scale=2, dark=dark)
    assert page.fits()
    assert page.complaints() == []
    page.run(axe_script())
    assert serious(page.run("axe.run(document, {resultTypes: ['violations'], preload: false})")) == []


@pytest.mark.chromium
@pytest.mark.slow
def test_what_a_bundle_holds_stays_text(sound, labs, tmp_path, tab):
    """A device and a model whose names are markup."""
    environment = msgspec.structs.replace(sound.environment, board=HOSTILE)
    run = msgspec.structs.replace(sound, id="hostile", device=HOSTILE, environment=environment)
    write_bundle(tmp_path, msgspec.structs.replace(run, model=msgspec.structs.replace(run.model, name=HOSTILE)), labs["oslo"][0])
    write_board(read_entries(bundle_files([tmp_path]), {}), tmp_path / "site", "")
    for path in (tmp_path / "site").glob("*.html"):
        page = tab(str(path))
        assert "taken" not in page.run("document.title") or HOSTILE in page.run("document.title")
        assert page.run("document.querySelectorAll('img').length") == 0
        assert page.complaints() == []
