"""Large dense linear algebra and n-d arrays on many devices, behind one NumPy-like lazy array.

>>> import pypto
>>> A = pypto.eye(4) * 2
>>> b = pypto.ones(4)
>>> x = pypto.linalg.solve(A, b)
>>> x.tolist()
[0.5, 0.5, 0.5, 0.5]
"""

from importlib.util import find_spec as _find_spec

if _find_spec("pypto.device._kernels") is None:
    raise ImportError(
        f"pypto is being imported from its source folder, {__path__[0]}, which holds no compiled module. Install it with "
        "`pip install .` there, and run your script or shell from another folder, or with `python -P`"
    )

from math import e, inf, nan, pi

import numpy as _np
from numpy import (
    bool_ as bool,
)
from numpy import (
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    newaxis,
    uint8,
    uint16,
    uint32,
    uint64,
)

import pypto.array.methods as _methods
from pypto.array.array import Array, compute
from pypto.array.creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_function,
    from_local,
    full,
    full_like,
    identity,
    linspace,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from pypto.array.elementwise import ALIASES as _ALIASES
from pypto.array.elementwise import FUNCTIONS as _FUNCTIONS
from pypto.array.elementwise import astype, clip, imag, isclose, mean, real, round, std, var, where
from pypto.array.manipulation import (
    broadcast_arrays,
    broadcast_to,
    concat,
    concatenate,
    copy,
    expand_dims,
    flatten,
    flip,
    matmul,
    matrix_transpose,
    moveaxis,
    permute_dims,
    ravel,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    swapaxes,
    transpose,
    tril,
    triu,
    unstack,
)
from pypto.config import config
from pypto.errors import (
    BackendUnavailable,
    ContextError,
    DivergenceError,
    GatherError,
    GatherWarning,
    MemoryLimitError,
    PyptoError,
    VerificationError,
    WorldError,
)
from pypto.layout.distribution import Block, BlockCyclic, Column, OnDevice, Replicated, Row
from pypto.ops import create as _ops_create
from pypto.ops import reduce as _ops_reduce
from pypto.ops import shape as _ops_shape
from pypto.plan.explain import explain
from pypto.run.context import Context, finalize, init

from pypto import linalg  # isort: skip

globals().update(_FUNCTIONS)
globals().update({alias: _FUNCTIONS[name] for alias, name in _ALIASES.items()})

__version__ = "0.1.0.dev0"

array = asarray
result_type = _np.result_type
isdtype = _np.isdtype
finfo = _np.finfo
iinfo = _np.iinfo

__all__ = sorted(n for n, v in globals().items() if not n.startswith("_") and (n == "linalg" or type(v) is not type(_np)))
