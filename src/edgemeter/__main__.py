"""`python -m edgemeter`: the command `edgemeter`."""

from edgemeter.agent.cli.__main__ import main

main()
