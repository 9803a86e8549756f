"""The compiled core, and the instruction set that it is to use."""

import os

from bitfactor.common import _native
from bitfactor.common.errors import InputError, near_matches

ISA_VARIABLE = "BITFACTOR_ISA"


REFERENCE = "reference"


def instruction_sets() -> list[str]:
    """Return the names of the instruction sets that this machine runs, best first."""
    return _native.instruction_sets()


def chosen_isa(isa: str | None = None) -> str:
    """Return the instruction set that is asked for: by name, by the environment, or else the best."""
    where = "isa" if isa is not None else ISA_VARIABLE
    isa = isa if isa is not None else os.environ.get(ISA_VARIABLE)
    available = [*instruction_sets(), REFERENCE]
    if not isa:
        return available[0]
    if isa not in available:
        expected = f"an instruction set of this machine ({', '.join(available)})"
        raise InputError(where, expected=expected, found=repr(isa), fix=near_matches(isa, available))
    return isa
