"""The command `bitfactor`. One file per command; only the one that runs is imported.

So that `predict` and `bench` work where torch is not installed, the table names modules and holds no
functions.
"""

import os
import sys
from collections.abc import Sequence

from bitfactor.errors import InputError, imported, near_matches

COMMANDS = {
    "check-data": "find out what is wrong with a directory of pictures",
    "recipes": "list what can be trained",
    "summary": "show a recipe's layers: binary or real, operations, bytes",
    "train": "train a recipe, or go on where an interrupted run stopped",
    "ablate": "train a recipe for every combination of latent, scale and seed; resumable",
    "evaluate": "measure the accuracy of a run or of an exported file",
    "export": "write a run's network as one file of 1-bit weights",
    "inspect": "show what an exported file holds, and draw its network",
    "predict": "classify pictures with an exported file, or find and draw poses",
    "zoo": "list the trained networks that come with the package",
    "pckh": "score predicted joints of MPII by PCKh, in all three means in print",
    "bench": "time an exported file, layer by layer, and against other engines",
    "report": "write a page with a run's curves, weights and predictions",
}

_USAGE = "usage: bitfactor COMMAND ...\n\n{}\n\n`bitfactor COMMAND --help` tells what a command takes."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0, 2 for unusable input, 130 when interrupted.

    A check that found problems returns 1; one whose reader has gone 141, as a shell would say.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE.format("\n".join(f"  {name:10} {text}" for name, text in COMMANDS.items())))
        return 0 if arguments else 2
    try:
        status = _command(arguments[0])(arguments[1:]) or 0
        sys.stdout.flush()
        return status
    except InputError as error:
        print(f"bitfactor: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read the output, `head` say, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("bitfactor: interrupted", file=sys.stderr)
        return 130


def _command(name: str):  # type: ignore[no-untyped-def]
    if name not in COMMANDS:
        raise InputError("command", expected="a command", found=repr(name), fix=near_matches(name, COMMANDS))
    without_torch = {
        "check-data": "cli",
        "evaluate": "cli",
        "inspect": "cli",
        "predict": "cli",
        "bench": "cli",
        "zoo": "cli",
        "pckh": "pose",
    }
    module = f"bitfactor.cli.{name.replace('-', '_')}"
    return imported(module, f"bitfactor {name}", without_torch.get(name, "train")).main
