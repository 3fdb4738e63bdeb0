"""The state of the device, as it reports it: the `health` message, how it is collected, and when it is sent again."""
