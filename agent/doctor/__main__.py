"""`python -m edgemeter.agent.doctor`: print the findings as JSON; no broker is asked."""

import sys

from edgemeter.agent.base import config
from edgemeter.agent.doctor.examination import as_json, examine

sys.stdout.write(as_json(examine(broker=None, home=config.home(), settings=config.read(None))))
