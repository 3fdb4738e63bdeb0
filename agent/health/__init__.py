"""What a device says of its own state: the `health` message, how it is collected, and when it is said anew."""
