"""One rank of ``pypto run``: runs the script as ``python script.py`` would, and ends all ranks where one fails."""

import os
import runpy
import sys

from pypto.comm.mpi import world_comm


def main() -> None:
    """Run ``sys.argv[1]`` as the main program."""
    comm = world_comm()
    script = sys.argv[1]
    sys.argv = sys.argv[1:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        if stop.code not in (None, 0) and comm.size > 1:
            if isinstance(stop.code, str):
                print(stop.code, file=sys.stderr)
            comm.abort(f"the script ended with status {stop.code!r}")
        raise
    except BaseException as error:
        if comm.size == 1:
            raise
        comm.abort(f"the script ended with {type(error).__name__}", error)


if __name__ == "__main__":
    main()
