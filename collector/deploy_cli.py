"""`edgemeter collector deploy-files`: the configuration files that ship, written to where they can be adapted."""

from pathlib import Path

import click

from edgemeter.agent.errors import ConfigError, UnavailableError

SHIPPED = Path(__file__).parent / "deploy"


@click.command("deploy-files", short_help="Write the configuration of broker, compose and systemd to a folder.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def deploy_files(folder: Path) -> None:
    """Write mosquitto.conf with its ACL, a compose file (broker, InfluxDB, Grafana, collector) and a systemd unit to FOLDER.

    Example: edgemeter collector deploy-files ./deploy
    """
    for path in write(folder):
        click.echo(path)


def write(folder: Path) -> list[Path]:
    """Write every file below `folder` and return their paths; one that is there and differs is never overwritten.

    Raises:
        ConfigError: a file of that name with other content is there; nothing is written.
        UnavailableError: the folder may not be written.
    """
    try:
        shipped = {folder / one.relative_to(SHIPPED): one.read_bytes() for one in sorted(SHIPPED.rglob("*")) if one.is_file()}
        for path, text in shipped.items():
            if path.exists() and path.read_bytes() != text:
                message = f"{str(path)!r} is there and differs from the one that ships: nothing is written; give another folder"
                raise ConfigError(message)
        for path, text in shipped.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
    except OSError as error:
        message = f"cannot write the files to {str(folder)!r} ({error.strerror}): give a folder that may be written"
        raise UnavailableError(message) from error
    return list(shipped)
