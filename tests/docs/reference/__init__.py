"""The pages of docs/reference, made from the code.

`python -m tests.docs.reference` writes them, and tests/docs/test_reference.py compares them.
"""
