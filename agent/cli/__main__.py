"""`python -m edgemeter.agent.cli`: the command `edgemeter`."""

from edgemeter.agent.cli.main import main

main()
