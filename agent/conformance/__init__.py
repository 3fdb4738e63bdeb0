"""Conformance: what every plug-in promises, as checks that run over yours as over ours.

A module per family holds a case (`RuntimeCase`: the plug-in's name, a fixture, what is right for it) and `CHECKS`, `RUNTIME_CHECKS` in
`edgemeter.plugin`. A check takes a case and an empty folder, and raises a `ContractViolationError`, which is an AssertionError, if a
promise is broken. With pytest:

    from edgemeter.plugin import RUNTIME_CHECKS, RuntimeCase

    @pytest.mark.parametrize("check", RUNTIME_CHECKS, ids=lambda check: check.__name__)
    def test_contract(check, tmp_path):
        check(RuntimeCase("mine", model=MODEL, inputs=(X,), outputs=(Y,), large=(LARGE, (X,))), tmp_path)

`large` is a model that works for 5 ms or more, by which it is seen that the timed call does the work: that it waits for an accelerator or a
thread, that neither binding nor reading the outputs computes, and that no result of an earlier call is used.
"""
