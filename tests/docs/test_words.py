"""Facts about the words of the project: one standard term for each thing, in names as in sentences."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What stands for each of them is in brackets. Names in stored files, shipped texts and messages of earlier versions stay.
RETIRED = {
    "attendant": "handler",
    "attendance": "dispatcher",
    "desk": "handler",
    "expulsion": "pending disconnect",
    "gone back from": "rolled back",
    "happenings": "events",
    "lastwords": "last stop",
    "parcel": "batch",
    "wish": "update request",
}
# Of words that are also ordinary English only the retired sense: `looks_like` may stay, `looked_at` may not.
RETIRED_IN_TEST_NAMES = {word.replace(" ", "_") + "(?:s|es)?": instead for word, instead in RETIRED.items()} | {
    "says?|said|saying|tells?|told|telling": "report, state, name, show",
    "speaks?_(?:for|in|of)": "represent, publish",
    "looked|looking|looks?_(?:at|for|in|inside)|(?:an?|each|dry|next)_look": "poll, check, read, search",
    "(?:is|not)_answered|answered_(?:once|with)|(?:that|not)_answers?|answers_(?:as|for|from|in|on|once|with)": "reply, serve, predict",
    "answers_to|another_answer": "reply, output",
    "not_taken(?!_for)": "rejected",
    "gone_back|goes_back(?!_to)|go_back(?!_to)": "rolled back",
    "shelf|shelves": "ledger",
    "golden": "canary run",
    "sick|a_hand": "needs attention",
    "concerns?": "issue",
    "expelled": "disconnected",
    "standings?": "trust state",
    "rules?_(?:is|are)(?:_ever)?_broken|breaks?_(?:no|a|the)_rule": "violated",
    "nothing_is_like|without_a_like": "unmatched case",
    "undecided": "not judged, not settled",
    "resident": "daemon",
    "nowhere": "absent, unknown",
    "perhaps": "possibly",
    "p99_9": "p99.9",
}
TEST_NAME = re.compile(r"^(?:@pytest\.fixture.*\n(?:@.*\n)*def (\w+)|def (test_\w+))", re.MULTILINE)
STORED = {
    "agent/update/order.py", "provisioning/registry/jobs.py", "provisioning/registry/certificates.py",
    "provisioning/identity/enforcement.py", "provisioning/update/supervisor.py", "models/builder/notes.py",
}  # fmt: skip
# A number or a formatted figure and a space before the sign, or a unit that begins with one; the remainder of a division is none.
SPACED_PERCENT = re.compile(r"""[0-9}] %(?![A-Za-z(0-9%}])|["'] %["']""")
REMAINDER = re.compile(r"100 % 10{1,2}\b|1\.000001 % 7\.0")


def sources() -> list[Path]:
    """Return the files whose words users and developers read."""
    folders = ("agent", "collector", "models", "provisioning", "docs")
    suffixes = {".py", ".md", ".toml", ".html", ".js", ".json", ".service", ".sh"}
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    return [path for path in (*paths, ROOT / "README.md", ROOT / "CONTRIBUTING.md") if path.relative_to(ROOT).as_posix() not in STORED]


def test_a_retired_word_does_not_come_back():
    """Two words for one thing lose the reader."""
    pattern = re.compile(rf"(?<![a-z])({'|'.join(RETIRED)})(?:s|es)?(?![a-z])", re.IGNORECASE)
    retired = [
        f"{path.relative_to(ROOT)}:{number}: write {RETIRED[match[1].lower()]!r} instead of {match[0]!r}"
        for path in sources()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for match in pattern.finditer(line)
    ]
    assert retired == []


def retired_in(name: str) -> list[str]:
    """Return what should be written in place of each retired word in the name of a test or a fixture."""
    return [instead for pattern, instead in RETIRED_IN_TEST_NAMES.items() if re.search(rf"(?:^|_)(?:{pattern})(?:_|$)", name)]


def test_no_test_or_fixture_is_named_after_a_retired_word():
    """A test's name is a sentence about the product, in its words."""
    retired = [
        f"{path.relative_to(ROOT)}: {name}: write {', '.join(instead)}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in (fixture or test for fixture, test in TEST_NAME.findall(path.read_text()))
        if (instead := retired_in(name))
    ]
    assert retired == []
    assert retired_in("test_a_device_says_nothing")
    assert not retired_in("test_what_looks_like_a_secret_is_taken_out")


def test_percent_has_no_space_before_it():
    """`95%`, as Python formats it: one spelling on the page, in the terminal and in the documents."""
    spaced = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in [*sources(), *(ROOT / name for name in STORED), ROOT / "CHANGELOG.md"]
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if SPACED_PERCENT.search(REMAINDER.sub("", line))
    ]
    assert spaced == []
    assert SPACED_PERCENT.search("95 % of")


def test_there_are_sources_to_read():
    """A listing that finds no file would pass for nothing."""
    assert len(sources()) > 400
