"""The verdict on a run: named rules, each with a requirement and a rationale; `edgemeter config rules` prints them."""
