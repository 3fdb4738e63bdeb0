"""Like with like: runs become cases, cases stand beside a reference."""
