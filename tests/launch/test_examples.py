"""The examples and the code of the documentation run."""

import pathlib
import re
import subprocess
import sys

import pytest

from pypto.comm import launch

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYPTO = pathlib.Path(sys.prefix, "bin", "pypto")


def _run(*command, cwd):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_cube_capacitance(tmp_path):
    """The capacitance approaches the literature's digits; the residual is at rounding level; there is a plot."""
    pytest.importorskip("matplotlib")
    script = ROOT / "examples" / "cube_capacitance.py"
    text = _run(PYPTO, "run", "-n", "2", script, "--k", "4", "8", "12", cwd=tmp_path)
    rows = [line.split() for line in text.splitlines() if re.match(r" +\d+ ", line)]
    errors = [abs(float(r[-1])) for r in rows]
    assert len(rows) == 3
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 5e-4
    assert all(float(r[5]) < 1e-14 for r in rows)
    assert (tmp_path / "cube_capacitance.png").stat().st_size > 10_000


def test_digits_kernel_ridge(tmp_path):
    """The classifier knows nearly all digits that it has not seen; the number of ranks changes nothing."""
    pytest.importorskip("sklearn")
    script = ROOT / "examples" / "digits_kernel_ridge.py"
    accuracies = set()
    for ranks in ("1", "3"):
        text = _run(PYPTO, "run", "-n", ranks, script, cwd=tmp_path)
        accuracies.add(re.search(r"test accuracy +([\d.]+)", text)[1])
    assert len(accuracies) == 1
    assert float(accuracies.pop()) > 0.98


def test_matmul_four_devices(tmp_path):
    """Plain python drives four devices."""
    text = _run(sys.executable, ROOT / "examples" / "matmul_four_devices.py", cwd=tmp_path)
    assert "4 devices, grid (1, 4)" in text or launch.cores() >= 4
    assert float(re.search(r"error of a corner ([\d.e-]+)", text)[1]) < 1e-5


@pytest.mark.parametrize("page", ["README.md", "doc/quickstart.md"])
def test_code_of_the_pages(page, tmp_path):
    """The Python code of a page runs from top to bottom, on one device and on two ranks."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert blocks
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks).replace("(2, 2)", "(1, pypto.init().size)").replace("n = 4000", "n = 400"))
    _run(sys.executable, script, cwd=tmp_path)
    _run(PYPTO, "run", "-n", "2", script, cwd=tmp_path)
