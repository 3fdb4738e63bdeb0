"""Results, health and the collector's own figures as OpenTelemetry metrics over HTTP (OTLP), another sink of the drain."""
