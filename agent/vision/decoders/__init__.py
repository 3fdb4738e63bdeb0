"""One file per family of detector outputs; the table is in `edgemeter.agent.vision.decoder`."""
