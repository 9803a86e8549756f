"""`bitfactor summary RECIPE` and `bitfactor summary FILE.py:NAME`."""

from collections.abc import Sequence
from dataclasses import dataclass

from bitfactor.binarization import Summary, binarize_, summary
from bitfactor.cli.arguments import parse
from bitfactor.cli.check import OwnArguments
from bitfactor.cli.output import print_result
from bitfactor.cli.recipe_argument import parse_recipe
from bitfactor.common.errors import InputError
from bitfactor.recipes.own import is_spec
from bitfactor.training import build


@dataclass(frozen=True)
class Arguments:
    """Show a recipe's layers: binary or full precision, operations by bit width, bytes."""

    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print the layer table."""
    if arguments and is_spec(arguments[0]):
        options = parse(OwnArguments, "summary", arguments)
        print_result(_own(options), as_json=options.json)
        return
    recipe, own = parse_recipe("summary", Arguments(), arguments)
    print_result(summary(build(recipe), (1, *recipe.input_shape)), as_json=own.json)


def _own(options: OwnArguments) -> Summary:
    model = options.network()
    example = options.batch()
    try:
        binarize_(
            model, options.binarization, options.keep_real, example=example if options.example else None
        )
        return summary(model, example if options.example else (1, *options.input))
    except InputError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise InputError(
            options.model,
            expected=f"a network that takes {options.example or f'one input of shape {options.input}'}",
            found=f"{type(error).__name__}: {error}",
            fix="name its shape with --input, or what it takes with --example FILE.py:NAME",
        ) from error
