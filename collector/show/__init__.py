"""The output of a comparison: its sentence, its table, the comment of a pull request, and its charts."""
