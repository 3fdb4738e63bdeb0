"""The commands of the agent, one file per group."""
