"""On the device: measure, keep, publish."""

import os

# ONNX Runtime and its genai would keep a database in the home and send events from the process that
# is measured.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
