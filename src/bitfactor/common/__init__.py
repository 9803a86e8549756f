"""What every room uses, and nothing else: errors, checks, results, whole files, machine, compiled core."""

import ctypes
import sys

from bitfactor.common.errors import InputError

__version__ = "0.2.0"


def expect_one_interpreter() -> None:
    """Raise InputError in a Python for which the compiled core is not made."""
    interpreter = ctypes.pythonapi["PyInterpreterState_Get"]
    interpreter.restype = ctypes.c_void_p
    number = ctypes.pythonapi["PyInterpreterState_GetID"]
    number.argtypes, number.restype = (ctypes.c_void_p,), ctypes.c_int64
    if number(interpreter()):
        fix = "import bitfactor in the main interpreter, or in a process of its own"
        raise InputError("python", expected="the main interpreter", found="a sub-interpreter", fix=fix)
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        fix = "start it with PYTHON_GIL=1"
        raise InputError("python", expected="one with its global lock", found="one without", fix=fix)


expect_one_interpreter()  # before the core is loaded, which would fail in ways of its own
