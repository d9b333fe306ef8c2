"""Capacitance of the unit cube by boundary elements: a dense system that no rank ever holds whole.

A conducting cube of edge a at potential 1 carries a surface charge density s with

    integral over the surface of  s(y) / |x - y|  dS(y)  =  1      for every x on the surface,

in units in which 4 pi eps0 = 1. Its capacitance is the total charge. Each face is cut into k x k rectangles, finer towards
the edges, where the density is singular, and s is taken constant on each: n = 6 k^2 unknowns. Asking for potential 1 at the
centre of every rectangle gives a dense system A s = 1. Entry (i, j) is the potential at centre i of a unit density on
rectangle j, which has a closed form: with u, v the distances from the centre to the rectangle's sides and w the distance to
its plane,

    F(u, v) = u log(v + r) + v log(u + r) - w arctan(u v / (w r)),     r = sqrt(u^2 + v^2 + w^2),

taken between the corners. The literature's value is C / (4 pi eps0 a) = 0.66067815 (Hwang and Mascagni 2004; Helsing and
Perfekt 2013, 0.6606781540).

    pypto run -n 2 examples/cube_capacitance.py --k 8 16 24
"""

import argparse
import time

import numpy as np

import pypto

LITERATURE = 0.66067815


class Mesh:
    """The 6 k^2 rectangles: centres, sides and planes."""

    def __init__(self, k):
        edges = 0.5 - 0.5 * np.cos(np.pi * np.linspace(0, 1, k + 1))  # graded: width about 1/k^2 at the edges
        low, high = edges[:-1], edges[1:]
        self.n = 6 * k * k
        face, cell = np.divmod(np.arange(self.n), k * k)
        a, b = np.divmod(cell, k)
        self.normal, self.plane = face // 2, (face % 2).astype(float)
        self.low = np.stack([low[a], low[b]])
        self.high = np.stack([high[a], high[b]])
        self.area = np.prod(self.high - self.low, axis=0)
        self.centre = np.empty((3, self.n))
        middle = 0.5 * (self.low + self.high)
        for axis in range(3):
            here = self.normal == axis
            first, second = tangents(axis)
            self.centre[axis, here] = self.plane[here]
            self.centre[first, here], self.centre[second, here] = middle[:, here]

    def potential(self, i, j):
        """Return the block of A with rows i and columns j, a few rows at a time to keep intermediate arrays small."""
        i, j = i.ravel(), j.ravel()
        out = np.empty((len(i), len(j)), order="F")
        for axis in range(3):
            columns = np.nonzero(self.normal[j] == axis)[0]
            for rows in np.array_split(np.arange(len(i)), max(1, len(i) * len(columns) // 500_000)):
                out[np.ix_(rows, columns)] = self._from_faces(axis, i[rows], j[columns])
        return out

    def _from_faces(self, axis, i, j):
        """Return the potential at centres i of rectangles j, all of them normal to `axis`."""
        first, second = tangents(axis)
        x = self.centre[:, i, np.newaxis]
        w = np.abs(x[axis] - self.plane[j])
        total = np.zeros((len(i), len(j)))
        for u, sign_u in ((self.high[0, j] - x[first], 1), (self.low[0, j] - x[first], -1)):
            for v, sign_v in ((self.high[1, j] - x[second], 1), (self.low[1, j] - x[second], -1)):
                r = np.sqrt(u * u + v * v + w * w)
                # log(v + r) loses digits where v < 0; log(v + r) = log(u^2 + w^2) - log(r - v), and one term cancels.
                total += sign_u * sign_v * (u * np.arcsinh(safe(v, u, w)) + v * np.arcsinh(safe(u, v, w)))
                total -= sign_u * sign_v * w * np.arctan2(u * v, w * r)
        return total


def safe(top, side, w):
    """Return top / sqrt(side^2 + w^2); log(top + r) is arcsinh of it, plus a term that is equal at both ends."""
    return top / np.maximum(np.sqrt(side * side + w * w), 1e-300)


def tangents(axis):
    """Return the two axes within a face normal to `axis`."""
    return tuple(a for a in range(3) if a != axis)


def capacitance(k, dtype):
    """Build and solve the system for k x k rectangles a face; return the figures of one row of the table."""
    mesh = Mesh(k)
    start = time.perf_counter()
    a = pypto.from_function(mesh.potential, (mesh.n, mesh.n), dtype=dtype).compute()
    built = time.perf_counter()
    one = pypto.ones(mesh.n, dtype=dtype)
    s = pypto.linalg.solve(a, one).compute()
    solved = time.perf_counter()
    residual = pypto.linalg.norm(a @ s - one, np.inf)
    size = pypto.linalg.norm(a, np.inf) * pypto.linalg.norm(s, np.inf) + 1
    charge = pypto.sum(s * mesh.area)
    pypto.compute(residual, size, charge)
    return {
        "n": mesh.n,
        "build": built - start,
        "solve": solved - built,
        "gflops": 2 / 3 * mesh.n**3 / (solved - built) / 1e9,
        "backward": float(residual) / float(size),
        "capacitance": float(charge),
        "density": np.asarray(s[: k * k]).reshape(k, k),
    }


def plot(ks, rows, path):
    """Draw the convergence and the charge density on a face."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.loglog([r["n"] for r in rows], [abs(r["capacitance"] / LITERATURE - 1) for r in rows], "o-")
    left.set(xlabel="unknowns n", ylabel="relative error of the capacitance", title="convergence to 0.66067815")
    left.grid(True, which="both", alpha=0.3)
    edges = 0.5 - 0.5 * np.cos(np.pi * np.linspace(0, 1, ks[-1] + 1))
    image = right.pcolormesh(edges, edges, np.log10(rows[-1]["density"]), shading="flat")
    right.set(aspect="equal", title="log10 of the charge density on a face")
    figure.colorbar(image)
    figure.savefig(path, dpi=120)


def main():
    """Print the convergence table and draw the plot."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--k", type=int, nargs="+", default=[4, 8, 12, 16, 24, 32], help="rectangles along an edge")
    parser.add_argument("--dtype", default="float64", choices=["float32", "float64"])
    parser.add_argument("--plot", default="cube_capacitance.png", help="file for the plot; empty for none")
    options = parser.parse_args()

    ctx = pypto.init()
    if ctx.rank == 0:
        print(f"{ctx.size} device(s), grid {ctx.grid}; literature {LITERATURE}")
        print(
            f"{'k':>3} {'n':>6} {'build s':>8} {'solve s':>8} {'GFLOP/s':>8} {'backward':>9} {'capacitance':>12} {'error':>10}"
        )
    rows = []
    for k in options.k:
        r = capacitance(k, np.dtype(options.dtype))
        rows.append(r)
        if ctx.rank == 0:
            error = r["capacitance"] - LITERATURE
            print(
                f"{k:3d} {r['n']:6d} {r['build']:8.2f} {r['solve']:8.3f} {r['gflops']:8.1f} {r['backward']:9.1e} "
                f"{r['capacitance']:12.8f} {error:+10.2e}",
                flush=True,
            )
    if ctx.rank == 0 and options.plot:
        try:
            plot(options.k, rows, options.plot)
            print(f"plot in {options.plot}")
        except ImportError:
            print("no plot: matplotlib is not installed")


if __name__ == "__main__":
    main()
