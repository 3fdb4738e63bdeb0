"""Facts about the names of options over all commands: one name for one thing, and the names of the release before."""

from collections import defaultdict

import click

from tests.fixtures.command_lines import every_command

# What a name means on every command that has it. A new meaning takes a new name; a new name for one of these things is a synonym.
MEANINGS = {
    "--all": "list what is left out by default too",
    "--all-days": "count the days before the last change of level too",
    "--annotations": "ground truth of --data",
    "--backend": "backend of the runtime",
    "--batch": "samples in a batch",
    "--board": "type of board",
    "--broker": "address of the broker",
    "--calibration": "folder of images to measure int8 ranges on",
    "--calibration-images": "largest number of calibration images",
    "--column": "what a column of a table holds",
    "--concurrency": "users of a server",
    "--config": "configuration file of the agent",
    "--context-tokens": "tokens of a chunk of --text",
    "--cpus": "cores that a run is pinned to",
    "--data": "what the model runs on: photographs, recordings, texts",
    "--deadline": "longest time from a frame to its answer",
    "--delivery-timeout": "seconds to wait for receipts",
    "--device": "name of a device",
    "--dry-run": "change and send nothing",
    "--even-if": "objection to be overruled",
    "--fact": "field of a published figure that its source does not state",
    "--figure": "figure by its name",
    "--fleet": "name of a fleet",
    "--folder": "folder of the fleet's server",
    "--format": "form of what is printed",
    "--home": "data folder",
    "--influx": "address of an InfluxDB",
    "--influx-token-file": "token of the InfluxDB",
    "--json": "print JSON",
    "--keep-days": "days after which data is deleted",
    "--kind": "kind of entry or file",
    "--keep-there": "leave the release on the board",
    "--ledger": "where runs are kept",
    "--limit": "number of entries listed",
    "--limit-mb": "limit of the cache",
    "--list": "list instead of writing",
    "--matters": "smallest difference that matters",
    "--members": "the findings of an event",
    "--mode": "length of a run",
    "--model": "the model",
    "--name": "name of the model in records and catalogue",
    "--no-save": "keep no run in the ledger",
    "--on": "selection of devices",
    "--option": "options of the runtime",
    "--output": "file or folder to write to",
    "--output-tokens": "tokens generated",
    "--port": "TCP port",
    "--power": "power sensors",
    "--precision": "precision of the model",
    "--prompt-tokens": "tokens of the prompt",
    "--prompts": "real prompts",
    "--public-key": "key to verify with",
    "--queue-frames": "frames that wait at most",
    "--quiet": "the result and errors only",
    "--rate": "how many a second",
    "--reader": "reader of a file, by its name",
    "--reason": "why, in the user's words",
    "--reference": "device or role that others are compared with",
    "--release": "release of the agent for a board",
    "--repeats": "how often the same is measured",
    "--rules": "rules of alerts",
    "--runtime": "runtime by its name",
    "--scenario": "how queries arrive",
    "--seed": "seed of what is random",
    "--shelf": "folder of imported and published figures",
    "--signing-key-file": "private key to sign with",
    "--since": "from this day on",
    "--slo": "limits of a request",
    "--start-below-c": "temperature below which a run starts",
    "--subset": "size of a random subset of --data",
    "--task": "task of the model",
    "--text": "UTF-8 text for a perplexity",
    "--threads": "threads of the runtime",
    "--timeout": "seconds to wait for an answer or an end",
    "--to": "format to convert to",
    "--trusted": "convert where the kernel confines no files",
    "--user": "account on the board",
    "--wait": "wait for the end, or detach",
}
# A text may be checked by the command (a list, a place with an address in it); a flag is never a value.
OPTIONS = [
    (" ".join(path), option)
    for path, command in every_command()
    for option in command.params
    if isinstance(option, click.Option) and not option.hidden
]


def test_a_name_that_several_commands_have_means_one_thing():
    """The list above says what; a name that is new on a second command needs its line."""
    commands = defaultdict(set)
    for command, option in OPTIONS:
        for name in option.opts:
            commands[name].add(command)
    shared = {name for name, its in commands.items() if len(its) > 1 and name.startswith("--")}
    assert sorted(shared ^ set(MEANINGS)) == []


def test_a_name_is_a_flag_on_all_commands_or_on_none():
    """`--board NAME` on one command and `--board` on another would be two things."""
    for name in MEANINGS:
        kinds = {option.is_flag for _, option in OPTIONS if name in option.opts}
        assert len(kinds) == 1, name
