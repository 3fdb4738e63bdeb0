"""The output of a comparison is a sentence, a table, charts, and a comment.

The comment is that of a pull request.
"""
