"""The engine: suites become sessions, sessions become runs in processes of their own, runs become records."""
