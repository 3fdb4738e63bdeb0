"""Set-up of an InfluxDB for a collector: the bucket, its retention, and a token for each right.

What exists stays, and a retention that differs is updated.
"""

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.collector.influx.bucket import Bucket, PointsRejectedError
from edgemeter.collector.influx.influx_config import InfluxConfig, Right

_KINDS: dict[Right, str] = {"write": "for the collector: write permission only", "read": "for Grafana: read permission only"}


def set_up_influx(config: InfluxConfig, keep_days: int | None, token_files: Mapping[Right, Path]) -> list[str]:
    """Set up the bucket of `config`, whose token must have the permissions; return what exists now, a sentence each.

    Points are kept `keep_days`, None: for ever. A new token for each right is written to its file, unless there is one.

    Raises:
        ConfigError: a permission is missing, a name is rejected, or a token's file cannot be written.
        TransientError: no InfluxDB responds, or not now.
    """
    with closing(Bucket(config)) as bucket:
        try:
            bucket_id, org = bucket.create(keep_days)
            url = f"{config.url}?{urlencode({'org': org, 'bucket': config.bucket})}"
            retention = f"kept {keep_days} days" if keep_days else "kept for ever"
            remarks = [f"bucket {config.bucket!r} of {org!r}, {retention}: --influx '{url}'"]
            return remarks + [_token(bucket, bucket_id, right, path) for right, path in token_files.items()]
        except PointsRejectedError as error:
            raise ConfigError(f"InfluxDB at {config} rejects it: {error}") from error


def _token(bucket: Bucket, bucket_id: str, right: Right, path: Path) -> str:
    if path.is_file():
        return f"token in {str(path)!r} kept ({_KINDS[right]})"
    with os_error_as(ConfigError, f"cannot write a token to {str(path)!r}", "name another file"):
        path.parent.mkdir(parents=True, exist_ok=True)
        # The file first: a token that cannot be stored should not be created.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            try:
                file.write(bucket.make_token(bucket_id, right, f"edgemeter: {_KINDS[right]} (bucket {bucket.config.bucket})") + "\n")
            except BaseException:
                path.unlink()
                raise
    return f"token written to {str(path)!r} ({_KINDS[right]})"
