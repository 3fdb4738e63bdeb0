"""Put the agent on boards that already run, over SSH: find out, copy, install, join, configure, start; a repeated run changes nothing."""
