"""`bitfactor check FILE.py:NAME`, and the flags of commands about a network that no recipe is needed for."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import torch
import tyro
from torch import nn

from bitfactor.api.check import check
from bitfactor.binarization import Binarization
from bitfactor.cli.arguments import parse
from bitfactor.cli.output import print_result
from bitfactor.common.errors import InputError
from bitfactor.nn.model import Example
from bitfactor.recipes.own import OwnModel, own_example


@dataclass(frozen=True)
class OwnArguments:
    """The network and its input."""

    model: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="FILE.py:NAME")]]
    """A class or function without required arguments, or a module."""
    binarization: tyro.conf.OmitArgPrefixes[Binarization]
    input: tuple[int, ...] = (3, 224, 224)
    """Shape of one input, such as 3 224 224."""
    example: Annotated[str, tyro.conf.arg(metavar="FILE.py:NAME")] = ""
    """What to call it with instead, for several inputs or integers: a batch, a tuple or a dict by name, or a
    function that returns it."""
    keep_real: tuple[str, ...] = ()
    """Layers that stay in full precision, by name."""
    json: bool = False
    """Print JSON."""

    def __post_init__(self) -> None:
        if not self.input or min(self.input) < 1:
            found = " ".join(map(str, self.input)) or "none"
            raise InputError("--input", expected="sizes of 1 or more", found=found, fix="as in 3 224 224")

    def network(self) -> nn.Module:
        """Build the network."""
        return OwnModel.at(self.model)()

    def batch(self) -> Example:
        """Return the example, or two inputs of noise, (2, *input), the same each time."""
        if self.example:
            return own_example(self.example)
        return torch.randn(2, *self.input, generator=torch.Generator().manual_seed(0))


def main(arguments: Sequence[str]) -> None:
    """Say what of a network turns binary, what stays as it is and why, and whether it runs from a file."""
    options = parse(OwnArguments, "check", arguments)
    result = check(
        options.network(), options.batch(), keep_real=options.keep_real, **asdict(options.binarization)
    )
    print_result(result, as_json=options.json)
