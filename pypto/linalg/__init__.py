"""Dense linear algebra on distributed arrays: scipy.linalg's names, signatures, results and exceptions."""

from numpy.linalg import LinAlgError
from scipy.linalg import LinAlgWarning

from pypto.array.manipulation import matmul
from pypto.linalg import _ops, _ops_factor, _ops_solve, _ops_verify  # noqa: F401  (they fill the operator table)
from pypto.linalg._decomp import cho_factor, cholesky, ldl, lu, lu_factor, qr, qr_multiply, rq
from pypto.linalg._least_squares import lstsq, pinv
from pypto.linalg._norms import (
    SlogdetResult,
    cond,
    det,
    matrix_power,
    matrix_rank,
    multi_dot,
    norm,
    slogdet,
    tensorsolve,
)
from pypto.linalg._solve import (
    Refinement,
    cho_solve,
    inv,
    lu_solve,
    refine,
    solve,
    solve_banded,
    solve_triangular,
    solveh_banded,
)

__all__ = [
    "LinAlgError",
    "LinAlgWarning",
    "Refinement",
    "SlogdetResult",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "cond",
    "det",
    "inv",
    "ldl",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "qr_multiply",
    "refine",
    "rq",
    "slogdet",
    "solve",
    "solve_banded",
    "solve_triangular",
    "solveh_banded",
    "tensorsolve",
]
