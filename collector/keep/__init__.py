"""What the collector holds, and what it passes on to InfluxDB."""
