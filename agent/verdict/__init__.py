"""The verdict on a run: rules, each with a sentence and a remedy.

`edgemeter config rules` lists them.
"""
