"""Put the agent on devices, give each an identity, keep it current, tell it what to measure, get it back when it fails."""
