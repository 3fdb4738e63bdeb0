"""`edgemeter collector init-influx`: set up the InfluxDB that a collector drains to."""

import json
from pathlib import Path

import click

from edgemeter.agent.config import home

# InfluxDB counts in 64 bits of nanoseconds, 292 years, and turns more into something else without a word.
MOST_DAYS = 100_000


@click.command("init-influx", short_help="Set up an InfluxDB to drain to.")
@click.option(
    "--influx", required=True, envvar="EDGEMETER_INFLUX", help="http://HOST:8086[?org=ORG&bucket=BUCKET], version 1: ?db=DATABASE."
)
@click.option("--influx-org", help="Organisation. Default: the only one that the token sees.")
@click.option("--influx-bucket", help="Bucket. Default: edgemeter.")
@click.option("--influx-token-file", type=click.Path(path_type=Path), help="Of one who may all this. Or set EDGEMETER_INFLUX_TOKEN.")
@click.option("--keep-days", type=click.IntRange(1, MOST_DAYS), help="Forget points after so many days. Default: never.")
@click.option("--write-token-to", type=click.Path(path_type=Path), help="Default: influx-write.token in $EDGEMETER_HOME.")
@click.option("--read-token-to", type=click.Path(path_type=Path), help="Default: influx-read.token in $EDGEMETER_HOME.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def init_influx(
    *,
    influx: str,
    influx_org: str | None,
    influx_bucket: str | None,
    influx_token_file: Path | None,
    keep_days: int | None,
    write_token_to: Path | None,
    read_token_to: Path | None,
    as_json: bool,
) -> None:
    """Make bucket, retention, InfluxQL mapping and two least-privilege tokens (version 1: database, retention policy, two users).

    Example: edgemeter collector init-influx --influx http://influx.example:8086 --influx-token-file admin.token --keep-days 365
    """
    from edgemeter.collector.keep import influx_config
    from edgemeter.collector.keep.influx_set_up import Wanted, set_up

    config = influx_config.parse(influx, org=influx_org, bucket=influx_bucket, token_file=influx_token_file)
    files = {"write": write_token_to or home() / "influx-write.token", "read": read_token_to or home() / "influx-read.token"}
    said = set_up(config, Wanted(keep_days, {"write": files["write"], "read": files["read"]}))
    if as_json:
        click.echo(
            json.dumps({"set_up": str(config), "token_files": {name: str(path) for name, path in files.items()}, "said": said}, indent=2)
        )
        return
    for sentence in said:
        click.echo(sentence)
