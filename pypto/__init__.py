"""Large dense linear algebra and n-d arrays on many devices, behind one NumPy-like lazy array.

>>> import pypto
>>> A = pypto.eye(4) * 2
>>> b = pypto.ones(4)
>>> x = pypto.linalg.solve(A, b)
>>> x.tolist()
[0.5, 0.5, 0.5, 0.5]
"""

from importlib.util import find_spec as _find_spec

if _find_spec("pypto._kernels") is None:
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

from pypto import ops_create as _ops_create
from pypto import ops_reduce as _ops_reduce
from pypto import ops_shape as _ops_shape
from pypto.array import Array, compute
from pypto.config import config
from pypto.context import Context, finalize, init
from pypto.creation import (
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
from pypto.distribution import Block, BlockCyclic, Column, OnDevice, Replicated, Row
from pypto.elementwise import ALIASES as _ALIASES
from pypto.elementwise import FUNCTIONS as _FUNCTIONS
from pypto.elementwise import astype, clip, imag, isclose, mean, real, round, std, var, where
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
from pypto.explain import explain
from pypto.manipulation import (
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

from pypto import linalg  # isort: skip

globals().update(_FUNCTIONS)
globals().update({alias: _FUNCTIONS[name] for alias, name in _ALIASES.items()})

__version__ = "0.1.0.dev0"

array = asarray
result_type = _np.result_type
isdtype = _np.isdtype
finfo = _np.finfo
iinfo = _np.iinfo

__all__ = sorted(name for name in globals() if not name.startswith("_"))
