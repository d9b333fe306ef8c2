"""The test session: unit tests run here; tests in tests/dist run in worlds of ranks that this session starts.

For each number of ranks P one child session ``mpiexec -n P python -m pytest`` runs the selected tests and leaves its results
in files; this session reports each of them once. A test that hangs is ended after a time limit with the stacks of all its
ranks, and the tests after it run in another world. This session itself never starts MPI.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHILD = "PYPTO_TEST_CHILD"
SIZES = (1, 2, 3, 4, 6)
#: Seconds that one test may take.
LIMIT = float(os.environ.get("PYPTO_TEST_TIMEOUT", "120"))


def pytest_configure(config):
    """Refuse to test the source folder where the installed package is meant."""
    import pypto

    if pathlib.Path(pypto.__file__).resolve().parent == ROOT / "pypto" and not os.environ.get("PYPTO_LIVE"):
        pytest.exit(
            "the tests would import ./pypto, not the installed package: run the pytest command, not python -m pytest", 4
        )
    config.pypto_results = {}


def pytest_generate_tests(metafunc):
    """Give a distributed test one instance for every number of ranks; in a child only its own."""
    if "world_size" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("nprocs")
    sizes = marker.args if marker else SIZES
    if CHILD in os.environ:
        sizes = [p for p in sizes if p == int(os.environ["PYPTO_TEST_P"])]
    metafunc.parametrize("world_size", sizes, ids=[f"P{p}" for p in sizes])


def _size(item):
    call = getattr(item, "callspec", None)
    return call.params.get("world_size") if call else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Report a distributed test from the results of its child session, which the first test of a size starts."""
    size = _size(item)
    if size is None or CHILD in os.environ:
        return None
    results = item.config.pypto_results
    if item.nodeid not in results:
        selected = [i.nodeid for i in item.session.items if _size(i) == size and i.nodeid not in results]
        _run_worlds(size, selected, results)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    outcome, text, duration = results[item.nodeid]
    for when in ("setup", "call", "teardown"):
        passed = when != "call"
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords=dict.fromkeys(item.keywords, 1),
            outcome="passed" if passed else outcome,
            longrepr=None if passed or outcome == "passed" else (("", 0, text) if outcome == "skipped" else text),
            when=when,
            duration=duration if when == "call" else 0,
        )
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run_worlds(size, nodeids, results):
    """Run tests in worlds of `size` ranks until each has a result."""
    left = list(nodeids)
    while left:
        done = _run_world(size, left)
        results.update(done)
        rest = [n for n in left if n not in done]
        if len(rest) == len(left):  # not even the first test began
            for n in rest:
                results[n] = ("failed", "its world of ranks did not start", 0.0)
            return
        left = rest


def _run_world(size, nodeids):
    from pypto.comm.launch import mpiexec_command

    with tempfile.TemporaryDirectory(prefix="pypto-test-") as folder:
        names = pathlib.Path(folder, "nodeids")
        names.write_text("\n".join(nodeids))
        command, env = mpiexec_command(size, 1)
        env.update({CHILD: folder, "PYPTO_TEST_P": str(size), "PYTHONFAULTHANDLER": "1", "PYTEST_ADDOPTS": ""})
        env["PYPTO_DEBUG"] = "1"  # every program and every result is verified
        args = [sys.executable, "-P", "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", f"@{names}"]
        output = pathlib.Path(folder, "output")
        with output.open("w") as f:
            done = subprocess.Popen([*command, *args], cwd=ROOT, env=env, stdout=f, stderr=subprocess.STDOUT)
            try:
                done.wait(LIMIT * (len(nodeids) + 1))
            except subprocess.TimeoutExpired:
                done.kill()
                done.wait()
        return _merge(size, folder, output.read_text(errors="replace")[-6000:])


def _merge(size, folder, output):
    """Merge the ranks' results; the test that was running when the world ended has failed."""
    ranks = []
    for r in range(size):
        path = pathlib.Path(folder, f"rank{r}.jsonl")
        lines = path.read_text().splitlines() if path.exists() else []
        ranks.append([json.loads(line) for line in lines])
    merged, begun = {}, {}
    for r, records in enumerate(ranks):
        for record in records:
            if record["event"] == "start":
                begun.setdefault(record["nodeid"], r)
                continue
            merged.setdefault(record["nodeid"], {})[r] = record
    results = {}
    for nodeid in begun:
        by_rank = merged.get(nodeid, {})
        failed = {r: v for r, v in by_rank.items() if v["outcome"] == "failed"}
        longest = max((v["duration"] for v in by_rank.values()), default=0.0)
        if failed:
            text = "\n".join(f"--- rank {r} of {size} ---\n{v['text']}" for r, v in list(failed.items())[:2])
            if len(by_rank) < size:
                text += f"\n--- the world ended here ---\n{output}"
            results[nodeid] = ("failed", f"failed on rank(s) {sorted(failed)} of {size}\n{text}", longest)
        elif len(by_rank) < size:
            missing = sorted(set(range(size)) - set(by_rank))
            stacks = "\n".join(_stack(folder, r) for r in range(size))
            text = f"rank(s) {missing} of {size} did not finish (time limit {LIMIT:.0f} s)\n{stacks}\n--- output ---\n{output}"
            results[nodeid] = ("failed", text, longest)
        else:
            first = by_rank[0]
            results[nodeid] = (first["outcome"], first["text"], longest)
    return results


def _stack(folder, rank):
    path = pathlib.Path(folder, f"stack{rank}")
    text = path.read_text(errors="replace") if path.exists() else ""
    ours = [line for line in text.splitlines() if not any(w in line for w in ("/_pytest/", "/pluggy/", "runpy"))]
    return "\n".join([f"--- stack of rank {rank} ---", *ours]) if ours else ""


if CHILD in os.environ:
    import faulthandler
    import time

    class _Recorder:
        """One rank of a child session: writes what happens, and keeps the ranks at the same test."""

        def __init__(self):
            from mpi4py import MPI

            self.comm = MPI.COMM_WORLD.Dup()
            folder = pathlib.Path(os.environ[CHILD])
            self.file = (folder / f"rank{self.comm.rank}.jsonl").open("w")
            self.stack = (folder / f"stack{self.comm.rank}").open("w")

        def write(self, **record):
            self.file.write(json.dumps(record) + "\n")
            self.file.flush()

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol(self, item, nextitem):
            self.write(event="start", nodeid=item.nodeid)
            self.worst, self.text, self.begun = "passed", "", time.time()
            faulthandler.dump_traceback_later(LIMIT, exit=True, file=self.stack)
            result = yield
            self.write(event="end", nodeid=item.nodeid, outcome=self.worst, text=self.text, duration=time.time() - self.begun)
            request = self.comm.Ibarrier()  # the ranks begin the next test together
            while not request.Test():
                time.sleep(1e-4)
            faulthandler.cancel_dump_traceback_later()
            return result

        def pytest_runtest_logreport(self, report):
            if report.failed:
                self.worst, self.text = "failed", self.text + f"[{report.when}] {report.longreprtext}\n"
            elif report.skipped and self.worst == "passed":
                self.worst, self.text = "skipped", str(report.longrepr[-1] if report.longrepr else "")

    def pytest_sessionstart(session):
        """Start recording."""
        session.config.pluginmanager.register(_Recorder(), "pypto-recorder")
