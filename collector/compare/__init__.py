"""Like with like: runs become cases, and cases are compared with a reference."""
