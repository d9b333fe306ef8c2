"""Residual ratios of the ScaLAPACK, LAPACK and HPL testers, with their published thresholds.

EPS is half of NumPy's eps (LAPACK's 'Epsilon'). Each function returns the ratios as (value, threshold); a NaN always fails.
"""

import numpy as np


def _eps(a):
    return np.finfo(a.dtype).eps / 2


def _norm(a, ord):
    return np.linalg.norm(a, ord) if a.size else 0.0


def _ratio(x, y):
    if x == 0:
        return 0.0
    return np.inf if y == 0 or not np.isfinite(x) else x / y


def check(ratios):
    """Return the ratios that exceed their thresholds."""
    return {name: r for name, r in ratios.items() if not (np.isfinite(r[0]) and r[0] <= r[1])}


def lu(a, p, l, u):
    """PDLUDRIVER ||A - P L U|| / (||A|| max(m, n) eps) in the infinity norm, and LAPACK DGET01."""
    r = p @ l @ u - a
    m, n = a.shape
    return {
        "pdludriver": (_ratio(_norm(r, np.inf), _norm(a, np.inf) * max(m, n) * _eps(a)), 1.0),
        "dget01": (_ratio(_norm(r, 1), _norm(a, 1) * n * _eps(a)), 30.0),
    }


def cholesky(a, l):
    """PDLLTDRIVER ||A - L L^H|| / (||A|| n eps)."""
    r = a - l @ l.conj().T
    return {"pdlltdriver": (_ratio(_norm(r, np.inf), _norm(a, np.inf) * len(a) * _eps(a)), 3.0)}


def solve(a, x, b):
    """HPL ||Ax - b|| / (eps (||A|| ||x|| + ||b||) n), and LAPACK DGET02."""
    n = len(a)
    x, b = (v[:, np.newaxis] if v.ndim == 1 else v for v in (x, b))
    r = a @ x - b
    top = lambda v: np.abs(v).max(0, initial=0)
    hpl = max(
        (_ratio(d, _eps(a) * (_norm(a, np.inf) * s + t) * n) for d, s, t in zip(top(r), top(x), top(b), strict=True)),
        default=0.0,
    )
    get02 = max(
        (_ratio(np.abs(r[:, j]).sum(), _norm(a, 1) * np.abs(x[:, j]).sum() * _eps(a)) for j in range(x.shape[1])), default=0.0
    )
    return {"hpl": (hpl, 16.0), "dget02": (get02, 30.0)}


def triangular(a, x, b):
    """SLATE trsm: ||A X - B||_1 / (||A|| ||X|| n ulp)."""
    r = a @ x - b
    return {"slate": (_ratio(_norm(r, 1), _norm(a, 1) * _norm(x, 1) * len(a) * 2 * _eps(a)), 3.0)}


def product(a, b, c):
    """|C - A B| <= k eps |A| |B|, element by element; the reference is computed in extended precision."""
    wide = np.clongdouble if np.iscomplexobj(a) or np.iscomplexobj(b) else np.longdouble
    exact = a.astype(wide) @ b.astype(wide)
    bound = (a.shape[1] + 2) * 4 * np.finfo(c.dtype).eps * (np.abs(a).astype(np.longdouble) @ np.abs(b).astype(np.longdouble))
    excess = np.abs(c - exact) - bound
    return {"product": (float(excess.max(initial=0.0)), 0.0)}


def qr(a, q, r):
    """LAPACK DQRT01: ||R - Q^H A|| / (max(m, n) ||A|| eps), and ||I - Q^H Q|| / (m eps)."""
    m, n = a.shape
    k = max(m, n, 1)
    identity = q.conj().T @ q - np.eye(q.shape[1])
    return {
        "dqrt01 factor": (_ratio(_norm(q @ r - a, 1), _norm(a, 1) * k * _eps(a)), 30.0),
        "dqrt01 orthogonality": (_ratio(_norm(identity, 1), max(m, 1) * _eps(a)), 30.0),
    }


def symmetric(a, l, d, hermitian):
    """LAPACK DSYT01: ||L D L^H - A|| / (n ||A|| eps)."""
    r = l @ d @ (l.conj().T if hermitian else l.T) - a
    return {"dsyt01": (_ratio(_norm(r, 1), _norm(a, 1) * max(len(a), 1) * _eps(a)), 30.0)}


def least_squares(a, x, b, other):
    """LAPACK DQRT17: the residual is orthogonal to the range, ||r^H A|| / (||A|| ||b|| max(m, n) eps); and x is no longer than
    another solver's.
    """
    x, b, other = (v[:, np.newaxis] if v.ndim == 1 else v for v in (x, b, other))
    r = b - a @ x
    scale = _norm(a, 1) * (_norm(b, 1) + _norm(a, 1) * _norm(x, 1)) * max(a.shape) * _eps(a)
    longer = _norm(x, "fro") / max(_norm(other, "fro"), 1e-300) - 1
    return {
        "dqrt17": (_ratio(_norm(r.conj().T @ a, 1), scale), 30.0),
        "norm of x": (longer, 1e5 * _eps(a)),
    }
