"""Every public name has a docstring, and the examples in them run."""

import doctest
import inspect

import pytest

import pypto

PUBLIC = {f"pypto.{n}": getattr(pypto, n) for n in pypto.__all__}
PUBLIC |= {f"pypto.linalg.{n}": getattr(pypto.linalg, n) for n in pypto.linalg.__all__}
OURS = {n: o for n, o in PUBLIC.items() if callable(o) and getattr(o, "__module__", "").startswith("pypto")}


@pytest.mark.parametrize("name", sorted(OURS))
def test_examples(name):
    """The docstring is there; its examples give what they say."""
    thing = OURS[name]
    assert inspect.getdoc(thing), f"{name} has no docstring"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    report = []
    for test in doctest.DocTestFinder(recurse=False).find(thing, name, globs={}):
        runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)
