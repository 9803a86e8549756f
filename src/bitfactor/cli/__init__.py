"""The command `bitfactor`. One file per command; only the one that runs is imported.

So that `predict` and `bench` work where torch is not installed, the table names modules and holds no
functions.
"""

import os
import sys
from collections.abc import Sequence

from bitfactor.common.errors import InputError, imported, near_matches
from bitfactor.common.files import run_file
from bitfactor.common.version import __version__

COMMANDS = {
    "check-data": "find out what is wrong with a directory of images",
    "recipes": "list what can be trained",
    "check": "say whether a network becomes binary and runs from a file, before training",
    "summary": "show the layers of a recipe or network: binary or real, operations, bytes",
    "train": "train a recipe, or resume an interrupted run",
    "ablate": "train a recipe for every combination of latent, scale and seed; resumable",
    "evaluate": "tell the accuracy of a run or of an exported file",
    "export": "write a run's network as one file of 1-bit weights",
    "convert": "write a binary network that comes as ONNX as one file of 1-bit weights",
    "freeze": "write an exported file as one flat program, for the C library",
    "page": "write a web page that runs an exported file, on photos and on the camera",
    "inspect": "show what an exported file holds, and draw its network",
    "predict": "classify images with an exported file, or find and draw poses",
    "zoo": "list the trained networks that come with the package",
    "pckh": "score predicted keypoints of MPII by PCKh, in all three means in print",
    "bench": "time an exported file, layer by layer, and against other engines",
    "reproduce": "train a table or figure of the paper, and show it beside the paper's",
    "report": "write a page with a run's curves, weights and predictions",
}

_USAGE = """usage: bitfactor COMMAND ...

{}

`bitfactor help COMMAND` or `bitfactor COMMAND --help` tells what a command takes; `bitfactor --version` the
version. `bitfactor --import FILE.py COMMAND ...` runs a file first that registers latents or recipes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0, 2 for unusable input, 130 when interrupted.

    A check that found problems returns 1; one whose reader has gone 141, as a shell would say.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except InputError as error:
        text = " ".join(str(error).split())
        print(text if text.startswith("bitfactor") else f"{_program(arguments)}: {text}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read the output, `head` say, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("bitfactor: interrupted", file=sys.stderr)
        return 130


def _run(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help") or list(arguments) == ["help"]:
        print(_USAGE.format("\n".join(f"  {name:10} {text}" for name, text in COMMANDS.items())))
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    if name in ("-V", "--version", "version"):
        print(f"bitfactor {__version__}")
        return 0
    if name == "--import":
        return _run(_imported(rest))
    if name == "help":
        return _run([*rest, "--help"])
    return _command(name)(rest) or 0


def _imported(arguments: Sequence[str]) -> Sequence[str]:
    """Run the file that comes first, and return the other arguments."""
    if not arguments:
        raise InputError("--import", expected="a Python file", found="nothing", fix="name one")
    run_file(arguments[0])
    return arguments[1:]


def _program(arguments: Sequence[str]) -> str:
    """Return how a message names the command."""
    return f"bitfactor {arguments[0]}" if arguments and arguments[0] in COMMANDS else "bitfactor"


def _command(name: str):  # type: ignore[no-untyped-def]
    if name not in COMMANDS:
        raise InputError(
            "bitfactor",
            expected="a command",
            found=repr(name),
            fix=f"{near_matches(name, COMMANDS)}; see `bitfactor help`",
        )
    without_torch = {
        "check-data": "cli",
        "evaluate": "cli",
        "export": "cli",
        "freeze": "cli",
        "page": "cli",
        "inspect": "cli",
        "predict": "cli",
        "bench": "cli",
        "zoo": "cli",
        "pckh": "pose",
    }
    module = f"bitfactor.cli.{name.replace('-', '_')}"
    return imported(module, f"bitfactor {name}", without_torch.get(name, "train")).main
