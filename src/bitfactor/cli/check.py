"""`bitfactor check FILE.py:NAME`."""

from collections.abc import Sequence
from dataclasses import asdict

from bitfactor.cli.arguments import parse
from bitfactor.cli.output import print_result
from bitfactor.cli.own_model import OwnArguments
from bitfactor.errors import imported


def main(arguments: Sequence[str]) -> None:
    """Say what of a network turns binary, what stays as it is and why, and whether it runs from a file."""
    options = parse(OwnArguments, "check", arguments)
    check = imported("bitfactor.api.check", "bitfactor check", "train").check
    result = check(
        options.network(), options.example(), keep_real=options.keep_real, **asdict(options.binarization)
    )
    print_result(result, as_json=options.json)
