"""Up to which change of the executions the health desk has judged golden runs: each is judged once."""

SCHEMA = """CREATE TABLE health_position (serial INTEGER NOT NULL);
INSERT INTO health_position VALUES (0);
"""
