"""`python -m edgemeter`: the command `edgemeter`."""

from edgemeter.agent.cli.main import main

main()
