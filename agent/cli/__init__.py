"""The commands of the agent, one file a group."""
