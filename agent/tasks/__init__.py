"""One file per task; the table is in `edgemeter.agent.task`."""
