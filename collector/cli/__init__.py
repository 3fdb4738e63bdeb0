"""The collector's commands, one file a group."""
