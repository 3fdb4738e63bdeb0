"""The pages of docs/reference, made from the code.

`python -m tools.reference` writes them, tests/docs/test_reference.py compares.
"""
