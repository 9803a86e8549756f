"""Every public name and every flag of every command: listed, and one sentence for what is wrong with it.

The tables are derived, so what is added is covered: public names from `bitfactor.__all__`, arguments from
signatures, flags from the functions of the commands.
"""

import inspect
import subprocess
import sys
from dataclasses import dataclass, is_dataclass
from typing import get_type_hints

import pytest
import torch
from tests.cases import slow_beside
from torch import nn

import bitfactor
from bitfactor.api import ablate as study_api
from bitfactor.api import train as train_api
from bitfactor.cli import COMMANDS, function_of, main
from bitfactor.cli.flags import documented, flags_of, options_of
from bitfactor.cli.recipe import flags_for
from bitfactor.common.checks import choices_in
from bitfactor.common.errors import InputError
from bitfactor.recipes import recipe_named

_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Wrong:
    """What no argument takes."""

    def __repr__(self):
        return "Wrong()"


def functions():
    """Public names that are called, with what checks their arguments."""
    found = {name: getattr(bitfactor, name) for name in bitfactor.__all__}
    return {
        name: value
        for name, value in found.items()
        if callable(value) and not (isinstance(value, type) and issubclass(value, Exception))
    }


def is_checked(function):
    """Whether arguments are checked: by `checked`, or by `check_fields` of a dataclass."""
    inner = getattr(function, "_function", lambda: function)()
    if is_dataclass(inner):
        return "check_fields" in getattr(inner, "__post_init__", is_checked).__code__.co_names
    return hasattr(inner.__init__ if isinstance(inner, type) else inner, "__wrapped__")


def test_nothing_public_is_unchecked():
    assert [name for name, function in functions().items() if not is_checked(function)] == []


SPEC = {"size": (8, 8), "resize": (8, 8), "mean": (0.5,), "std": (0.5,)}
GOOD = {
    "InputSpec": SPEC,
    "Optimization": {"epochs": 1, "batch_size": 1, "learning_rate": 0.1},
    "ablate": {"recipe": "digits", "out": "out"},
    "compare": {"data": "photos", "out": "out"},
    "decide": {"plan": "plan.toml", "out": "out"},
    "adopt_": {"model": nn.Linear(2, 2), "example": torch.zeros(2, 2)},
    "binarize_": {"model": nn.Linear(2, 2)},
    "assign": {"model": nn.Linear(2, 2), "batches": []},
    "check": {"model": nn.Linear(2, 2), "example": torch.zeros(2, 2)},
    "export": {"model": nn.Linear(2, 2), "path": "x", "example_input": torch.zeros(2, 2)},
    "parameter_groups": {"model": nn.Linear(2, 2)},
    "predict": {"model": "digits", "images": "x"},
    "reproduce": {"exhibit": "table2", "out": "out"},
    "summary": {"model": nn.Linear(2, 2), "input_shape": (2, 2)},
    "train": {"recipe": "digits", "out": "out"},
}


def arguments_of(function):
    """Yield the name of each argument whose annotation says what it takes, and near misses of its choices."""
    inner = getattr(function, "_function", lambda: function)()
    if isinstance(inner, type) and not is_dataclass(inner):
        inner = inner.__init__
    hints = get_type_hints(inner if is_dataclass(inner) else getattr(inner, "__wrapped__", inner))
    for name, parameter in inspect.signature(inner).parameters.items():
        if name != "self" and parameter.kind not in _OPEN and name in hints:
            words = [word for word in choices_in(hints[name]) if isinstance(word, str) and len(word) > 2]
            yield name, [f"{words[-1]}x"] if words else []


CASES = [
    (name, argument, value)
    for name, function in functions().items()
    if is_checked(function)
    for argument, near in arguments_of(function)
    for value in (Wrong(), *near)
]


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path, monkeypatch):
    """Nothing may be left behind."""
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "argument", "value"), CASES)
def test_a_wrong_argument_is_one_sentence_of_its_own(name, argument, value):
    function = functions()[name]
    required = [
        one
        for one, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty and parameter.kind < 2
    ]
    others = GOOD.get(name, dict.fromkeys(required, "digits"))
    with pytest.raises(InputError) as error:
        function(**{**others, argument: value})
    text = str(error.value)
    assert "\n" not in text
    assert argument in text
    assert repr(value) in text


def test_public_names_are_there_and_listed():
    import bitfactor.common.machine  # a module that was imported is no public name

    assert [name for name in dir(bitfactor) if not name.startswith("__")] == bitfactor.__all__
    for name in bitfactor.__all__:
        assert getattr(bitfactor, name) is not None
    with pytest.raises(AttributeError, match="did you mean Session"):
        bitfactor.Sesion  # noqa: B018


def test_rooms_are_there_without_an_import_of_theirs():
    code = "import bitfactor as b; print(b.runtime.instruction_sets()[-1], b.exporter.export.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "scalar export\n"


def test_names_without_torch_do_not_import_it():
    code = "import sys, bitfactor; dir(bitfactor)\n"
    code += "for name in bitfactor._WITHOUT_TORCH: getattr(bitfactor, name)\n"
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_training_imports_nothing_that_is_for_pages():
    code = "import sys, bitfactor.api.train\n"
    code += "print([m for m in ('matplotlib', 'jinja2', 'onnx') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_and_the_package_import_next_to_nothing():
    """Of what is not Python's own: no numpy, no parser."""
    code = "import sys; from bitfactor.cli import main; main(['--help'])\n"
    code += "print([m for m in ('numpy', 'tyro', 'rich', 'cv2', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_names_that_need_torch_name_the_extra():
    code = "import sys; sys.modules['torch'] = None; import bitfactor; bitfactor.binarize_"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith(
        "bitfactor.binarize_: expected the package torch, found that it is not installed; "
        "pip install 'bitfactor[train]'"
    )


def test_a_room_and_its_function_are_one(tmp_path):
    import bitfactor.api.bench
    import bitfactor.study.documents

    assert "runs" in inspect.signature(bitfactor.bench).parameters
    assert "format" in inspect.signature(bitfactor.report).parameters
    with pytest.raises(InputError, match="expected a file, a run's directory, or the name of a network"):
        bitfactor.bench("nothing-of-that-name")


@dataclass(frozen=True)
class CommandFlags:
    """A command line without anything wrong, but for files that are not there, and its flags."""

    words: tuple[str, ...]
    flags: tuple


def listed():
    """List what there is."""


OF_RECIPE = {"ablate": study_api.ablate, "summary": listed, "train": train_api.train}


def command_flags():
    for name in COMMANDS:
        if name == "ablate":
            kind = options_of(study_api.ablate, ("recipe", "model"))
        elif name in OF_RECIPE:
            kind = flags_for(recipe_named("digits"), OF_RECIPE[name])
        else:
            kind = options_of(function_of(name))
        flags = tuple(flags_of(kind))
        places = [next(iter(choices_in(flag.annotation)), "digits") for flag in flags if flag.positional]
        required = [
            word for flag in flags if flag.required and not flag.positional for word in (flag.name, "x")
        ]
        yield name, CommandFlags((name, *["digits"] * (name in OF_RECIPE), *places, *required), flags)


TABLE = dict(command_flags())


@pytest.fixture
def line_of(capfd):
    """Run a command that is refused and return its sentence."""

    def line_of(*words):
        capfd.readouterr()
        assert main(list(words)) == 2
        printed = capfd.readouterr()
        assert printed.out == ""
        (line,) = printed.err.splitlines()
        assert line.startswith("bitfactor")
        assert ": expected " in line
        assert "Traceback" not in line
        return line

    return line_of


def values_for(flag):
    """Values that a flag does not take."""
    words = [str(word) for word in choices_in(flag.annotation)]
    if words:
        return [f"{words[-1]}x"]
    return ["half"] if any(kind in str(flag.annotation) for kind in ("int", "float")) else []


def flags_to_try(command):
    """Return the flags of a command; of `summary` those that `train`, with the same parts, has not."""
    known = {flag.name for flag in TABLE["train"].flags} if command == "summary" else {}
    return [flag for flag in TABLE[command].flags if flag.name not in known]


@pytest.mark.parametrize("command", TABLE)
def test_each_flag_with_a_wrong_value(command, line_of):
    given = TABLE[command]
    for flag in flags_to_try(command):
        if flag.positional or not flag.takes_value or "str" in str(flag.annotation):
            continue
        for value in values_for(flag):
            line = line_of(*given.words, flag.name, value)
            assert f"{flag.name}: expected " in line
            assert value in line


@pytest.mark.parametrize("command", TABLE)
def test_each_flag_misspelt(command, line_of):
    given = TABLE[command]
    for flag in flags_to_try(command):
        if flag.positional or len(flag.name) < 6:
            continue
        typo = f"{flag.name[:-2]}{flag.name[-1]}{flag.name[-2]}x"
        line = line_of(*given.words, typo, *["1"] * flag.takes_value)
        assert typo in line
        assert "found one that it does not have; did you mean --" in line


@pytest.mark.parametrize("command", TABLE)
def test_a_word_too_many_or_none_at_all(command, line_of):
    assert "expected" in line_of(*TABLE[command].words, "--json", "--no-such-flag")
    if any(flag.required for flag in TABLE[command].flags):
        assert "found nothing" in line_of(command)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("train digits --out x --lr 1", "did you mean --learning-rate?"),
        ("train digits --out x --bs 1", "did you mean --batch-size?"),
        ("train digits --out x --batchsize=1", "did you mean --batch-size?"),
        ("train digits --out x --wd 1", "did you mean --weight-decay?"),
        ("train digits --out x --resume", "the same command resumes"),
        ("train digits --output x", "did you mean --out?"),
        ("train digits -o x", "did you mean --out?"),
        ("export run --out x.onnx", "did you mean --output?"),
        ("train digits --out x --latent tuker", "did you mean tucker?"),
        ("ablate digits --out x --latent tuker", "did you mean tucker?"),
        ("bench digits --against torhc", "did you mean torch?"),
        ("trian digits", "did you mean train?"),
        ("help trian", "did you mean train?"),
        ("train digts", "did you mean digits?"),
        ("--import nothing.py recipes", "found no such file"),
    ],
)
def test_habits_and_typos_get_a_hint(words, hint, line_of):
    assert hint in line_of(*words.split())


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in OF_RECIPE])
def test_each_flag_is_explained(command):
    """By the docstring of the function that it is an argument of."""
    function = function_of(command)
    text, helps = documented(function)
    assert text
    for name, one in inspect.signature(function).parameters.items():
        assert helps.get(name) or name == "progress" or is_dataclass(one.annotation), name


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"bitfactor {bitfactor.__version__}\n"
    assert main(["help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    with pytest.raises(SystemExit) as stop:
        main(["train", "digits", "--help-all"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "--[no-]real-ends" in text
    assert "--no-real-ends" not in text


READ = ["recipes", "zoo", "inspect digits --json", "--help"]


@pytest.mark.parametrize("command", slow_beside(READ[1:], READ))
def test_a_reader_that_goes_away_ends_it_quietly(command):
    """As `bitfactor zoo | head -0` does, with a pipe that is closed before anything is printed."""
    arguments = [sys.executable, "-m", "bitfactor", *command.split()]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.wait(timeout=120) == 141
    assert process.stderr.read() == b""
