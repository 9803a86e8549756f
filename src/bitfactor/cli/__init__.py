"""The command `bitfactor`: words into a call, a result into text.

So that `predict` and `bench` work where torch is not installed, and help comes at once, the table names
functions and holds none.
"""

import os
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from io import TextIOWrapper
from typing import NamedTuple

from bitfactor.common import __version__
from bitfactor.common.errors import InputError, TerminatedError, imported, near_matches
from bitfactor.common.files import run_file


class Command(NamedTuple):
    """What a command is for, ROOM.MODULE:FUNCTION, whose arguments are its flags, an example, its extras."""

    purpose: str
    function: str
    example: str
    extra: str = "cli"


COMMANDS = {
    "check-data": Command(
        "find out what is wrong with a directory of images", "cli.commands:check_data", "check-data photos"
    ),
    "recipes": Command("list what can be trained", "cli.commands:recipes", "recipes", "train"),
    "check": Command(
        "say whether a network becomes binary and runs from a file, before training",
        "cli.recipe:check",
        "check model.py:Net --input 3 224 224",
        "train",
    ),
    "summary": Command(
        "show the layers of a recipe or network: binary or real, operations, bytes",
        "cli.recipe:summary",
        "summary digits --latent tucker",
        "train",
    ),
    "train": Command(
        "train a recipe, or resume an interrupted run",
        "cli.recipe:train",
        "train digits --latent tucker --out runs/a",
        "train",
    ),
    "ablate": Command(
        "train a recipe for every combination of latent, scale and seed; resumable",
        "cli.recipe:ablate",
        "ablate digits --latent none tucker --seeds 3 --out runs/t",
        "train",
    ),
    "decide": Command(
        "answer a question by a plan: search, tests, corrections and a table",
        "api.decide:decide",
        "decide plan.toml --out runs/decided",
        "train",
    ),
    "compare": Command(
        "train one-bit and int8 networks on images of your own, and say which to take",
        "api.compare:compare",
        "compare photos --minutes 60 --out runs/compared",
        "bench,train",
    ),
    "evaluate": Command(
        "tell the accuracy of a run or of an exported file", "api.evaluate:evaluate", "evaluate runs/a"
    ),
    "export": Command(
        "write a run's network as one file of 1-bit weights",
        "api.export:write_network",
        "export runs/a -o net.safetensors",
    ),
    "convert": Command(
        "write a binary network that comes as ONNX as one file of 1-bit weights",
        "api.convert:convert",
        "convert net.onnx -o net.safetensors",
        "onnx,train",
    ),
    "freeze": Command(
        "write an exported file as one flat program, for the C library",
        "api.export:freeze",
        "freeze digits -o digits.bfp",
    ),
    "page": Command(
        "write a web page that runs an exported file, on photos and on the camera",
        "api.export:page",
        "page digits -o site",
    ),
    "inspect": Command(
        "show what an exported file holds, and draw its network", "api.inspect:inspect", "inspect digits"
    ),
    "predict": Command(
        "classify images with an exported file, or find and draw poses",
        "api.predict:predict",
        "predict cifar10-resnet18 photo.jpg",
    ),
    "zoo": Command("list the trained networks that come with the package", "cli.commands:zoo", "zoo digits"),
    "pckh": Command(
        "score predicted keypoints of MPII by PCKh, in all three means in print",
        "api.evaluate:score_files",
        "pckh predictions.mat --truth detections_our_format.mat",
        "pose",
    ),
    "bench": Command(
        "time an exported file, layer by layer, and against other engines",
        "api.bench:bench",
        "bench digits --against torch",
    ),
    "reproduce": Command(
        "train a table or figure of the paper, and show it beside the paper's",
        "api.reproduce:reproduce",
        "reproduce table1 --small --out runs/table1",
        "train",
    ),
    "report": Command(
        "write a page with a run's curves, weights and predictions",
        "api.report:report",
        "report runs/a -o report.html",
        "train",
    ),
    "doctor": Command(
        "show versions, instruction sets, devices, and which command lacks which package",
        "cli.doctor:doctor",
        "doctor",
    ),
    "completion": Command(
        "print a script with which a shell completes commands and flags",
        "cli.completion:completion",
        "completion bash > ~/.local/share/bash-completion/completions/bitfactor",
    ),
}

TERMINATED = 143  # 128 + SIGTERM, as shells report it

_USAGE = """usage: bitfactor COMMAND ...

{}

`bitfactor help COMMAND` or `bitfactor COMMAND --help` tells what a command takes; `bitfactor --version` the
version. `bitfactor --import FILE.py COMMAND ...` runs a file first that registers latents or recipes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0, 2 for unusable input, 130 when interrupted.

    A training that was asked to stop returns 143, and the same command goes on with it. A command that found
    problems returns 1; one whose reader has gone 141, as a shell would say.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    warnings.formatwarning = partial(_as_a_line, _program(arguments))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for names of files that are no UTF-8
    if _trains(arguments):
        _let_idle_threads_sleep()
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except InputError as error:
        text = " ".join(str(error).split())
        print(text if text.startswith("bitfactor") else f"{_program(arguments)}: {text}", file=sys.stderr)
        return 2
    except TerminatedError as stop:
        print(f"{_program(arguments)}: {stop}; the same command goes on from there", file=sys.stderr)
        return TERMINATED
    except BrokenPipeError:  # whoever read the output, `head` say, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.filename is None:
            raise
        found, fix = error.strerror or str(error), "choose another, or get access to it"
        said = InputError(error.filename, expected="a file or folder to use", found=found, fix=fix)
        print(f"{_program(arguments)}: {said}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bitfactor: interrupted", file=sys.stderr)
        return 130


def _as_a_line(program: str, message: Warning | str, *_: object, **__: object) -> str:
    return f"{program}: warning: {' '.join(str(message).split())}\n"


def _trains(arguments: Sequence[str]) -> bool:
    while arguments[:1] == ["--import"]:
        arguments = arguments[2:]
    return bool(arguments) and arguments[0] in COMMANDS and "train" in COMMANDS[arguments[0]].extra


def _let_idle_threads_sleep() -> None:
    """Let torch's idle threads look for work for 0.1 ms or so, not for milliseconds, unless the user decided.

    They would do it on the cores that the threads of the compiled core, and those that load images, need.
    GNU's OpenMP, which torch's wheels for Linux have, reads it where torch is imported.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "5000")


def _run(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help") or list(arguments) == ["help"]:
        print(_USAGE.format("\n".join(f"  {name:11}{one.purpose}" for name, one in COMMANDS.items())))
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    if "" in arguments:
        fix = "set the variable that it stands for, or leave it out"
        raise InputError(_program(arguments), expected="words", found="an empty one", fix=fix)
    if name in ("-V", "--version", "version"):
        print(f"bitfactor {__version__}")
        return 0
    if name == "--import":
        if not rest:
            raise InputError("--import", expected="a Python file", found="nothing", fix="name one")
        run_file(rest[0])
        return _run(rest[1:])
    if name == "help":
        return _run([*rest, "--help"])
    function = function_of(name)
    status: int = imported("bitfactor.cli.flags", f"bitfactor {name}", "cli").run(function, name, rest)
    return status


def _program(arguments: Sequence[str]) -> str:
    """Return how a message names the command."""
    return f"bitfactor {arguments[0]}" if arguments and arguments[0] in COMMANDS else "bitfactor"


def function_of(name: str):  # type: ignore[no-untyped-def]
    """Return the function of a command; only its module is imported."""
    if name not in COMMANDS:
        raise InputError(
            "bitfactor",
            expected="a command",
            found=repr(name),
            fix=f"{near_matches(name, COMMANDS)}; see `bitfactor help`",
        )
    module, _, function = COMMANDS[name].function.partition(":")
    return getattr(imported(f"bitfactor.{module}", f"bitfactor {name}", COMMANDS[name].extra), function)
