"""Networks to share: a directory in the conventions of the Hugging Face Hub, and the way back.

config.json says how the network is made: by a recipe's settings, or the calls of binarize_.
The file model.safetensors holds its parameters, factors included, to train on. The exported file, for
`Session`, is net.safetensors. README.md is the model card.
"""

import json
import operator
import os
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jinja2 import Template
from safetensors.torch import load_model, save_model
from torch import nn

from bitfactor.api.network import RunDirectory
from bitfactor.binarization import Binarization, binarize_
from bitfactor.binarization.binarize import calls_of
from bitfactor.common import __version__
from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.files import digest, made_directory, replacing, write_file, write_json
from bitfactor.common.result import Result
from bitfactor.exporter import export
from bitfactor.nn import binary_layers, merge_
from bitfactor.nn.model import Example
from bitfactor.recipes import recipe_of, recipe_of_settings
from bitfactor.recipes.runs import export_run, load, progress_of
from bitfactor.runtime.hub import FILE, fetched, is_repository, library, refused
from bitfactor.training import Run, build

_Path = str | os.PathLike[str]
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"


@dataclass(frozen=True)
class Pretrained(Result):
    """What was written: the directory and its files. Of what was uploaded, `url` is the commit."""

    path: Path
    files: tuple[str, ...]
    url: str = ""

    def __str__(self) -> str:
        return self.url or "\n".join(str(self.path / name) for name in self.files)


@checked
def save_pretrained(
    subject: nn.Module | _Path | RunDirectory,
    directory: _Path,
    *,
    example: Example | None = None,
    best: bool = False,
    license: str | None = None,
) -> Pretrained:
    """Write a network so that others can use it and train it on, as the Hugging Face Hub has it.

    What bitfactor wrote there before is replaced, but a README.md is kept.

    Parameters
    ----------
    subject
        A run, or a model that `binarize_` made binary.
    directory
        Where config.json, model.safetensors, net.safetensors and README.md go.
    example
        A batch of a model, with which it is exported. Left out, a net.safetensors that is there already is
        taken: `bitfactor.export` writes one with labels and an input specification.
    best
        Of a run, take the checkpoint of its best epoch.
    license
        The licence that the card states, by the Hub's name: apache-2.0, say.

    Raises
    ------
    InputError
        If the subject is neither, or the directory cannot be written or holds another library's model.

    Example
    -------
    >>> print(bitfactor.save_pretrained("runs/a", "shared", license="apache-2.0"))
    """
    _expect_no_other(Path(directory) / CONFIG)
    if isinstance(subject, nn.Module):
        model, about = subject, _of_model(subject)
        card: dict[str, Any] = {}
        target = made_directory(directory)
        if example is not None:
            export(model, target / FILE, example)
    else:
        place: Any = getattr(subject, "path", subject)
        run = Run(Path(place))
        model, about, card = load(run.path, best=best), *_of_run(run, best)
        target = made_directory(directory)
        export_run(run, target / FILE, best=best)
    with replacing(target / WEIGHTS) as temporary:
        save_model(model, str(temporary))
    names = [name for name in (WEIGHTS, FILE) if (target / name).is_file()]
    hashes = {name: digest(target / name) for name in names}
    write_json(
        target / CONFIG, {"library_name": "bitfactor", "version": __version__, **about, "sha256": hashes}
    )
    if not (target / CARD).exists():
        write_file(target / CARD, _card(target.resolve().name, model, card, license, exported=FILE in names))
    return Pretrained(target, (CONFIG, *names, CARD))


def _expect_no_other(config: Path) -> None:
    if config.exists() and '"library_name": "bitfactor"' not in config.read_text(errors="replace"):
        expected, found = "a new directory, or one that bitfactor wrote", "another library's config.json"
        raise InputError(config.parent, expected=expected, found=found, fix="choose another directory")


def _of_model(model: nn.Module) -> dict[str, Any]:
    if not binary_layers(model):
        expected = "a run, or a model that bitfactor.binarize_ made binary"
        raise InputError("subject", expected=expected, found="no binary layer", fix="call binarize_ first")
    layers = {
        name: {setting: getattr(layer, setting) for setting in _SETTINGS if hasattr(layer, setting)}
        for name, layer in binary_layers(model).items()
    }
    return {"architecture": type(model).__name__, "binarized": calls_of(model), "layers": layers}


_SETTINGS = ("binary_weights", "binary_activations", "input_scale", "padding_value")  # may be set later


def _of_run(run: Run, best: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return how a run's network is made, and what its card says."""
    recipe, record, state = recipe_of(run), run.record(), run.load(best=best)
    about = {
        "architecture": "recipe",
        "settings": record["settings"],
        "merged": bool(state.get("merged")),
        "interface": record["interface"],
    }
    progress = progress_of(run, recipe, best=best)
    keypoints = run.interface().skeleton is not None
    card = {
        "recipe": recipe.name,
        "description": recipe.description,
        "metric": progress.get("metric"),
        "epochs": f"{progress['epoch']} of {progress['epochs']}",
        "latent": "full precision" if recipe.real else recipe.binarization.words("latent"),
        "scale": recipe.binarization.words("scale"),
        "task": "keypoint-detection" if keypoints else "image-classification",
    }
    return about, card


def _card(name: str, model: nn.Module, run: dict[str, Any], license: str | None, *, exported: bool) -> str:
    text = resources.files("bitfactor.study.documents").joinpath("templates/card.md.j2").read_text()
    layers = binary_layers(model).values()
    about = {"name": name, "run": run, "license": license, "exported": exported, "version": __version__}
    card: str = Template(text, trim_blocks=True, lstrip_blocks=True).render(
        **about, layers=len(layers), weights=sum(layer.latent().numel() for layer in layers)
    )
    return card


@checked
def from_pretrained(place: _Path, model: nn.Module | None = None) -> nn.Module:
    """Return a network that `save_pretrained` or `push_to_hub` wrote, in evaluation mode, to train on or use.

    The weights are checked against the SHA-256 in config.json.

    Parameters
    ----------
    place
        A directory, or a repository of the Hub: owner/name, or owner/name@revision to pin a commit.
    model
        The float model that it was made of; a network of a recipe needs none.

    Raises
    ------
    InputError
        If there is no such network, its files are not those of config.json, or `model` does not fit.

    Example
    -------
    >>> model = bitfactor.from_pretrained("owner/name@4f2a9c1")
    """
    config_file, weights = (_file(place, name) for name in (CONFIG, WEIGHTS))
    try:
        config = json.loads(config_file.read_text())
        expected = config["sha256"][WEIGHTS]
        made = _made(config, model, place)
    except InputError:
        raise
    except OSError as error:
        wanted, found = "what bitfactor.save_pretrained writes", error.strerror or str(error)
        raise InputError(config_file, expected=wanted, found=found, fix="name another") from error
    except (ValueError, KeyError, TypeError) as error:
        wanted = "the config.json that bitfactor.save_pretrained writes"
        raise InputError(config_file, expected=wanted, found=repr(error), fix="write it again") from error
    if (found := digest(weights)) != expected:
        fix = "download it again, or ask who shared it"
        raise InputError(weights, expected=f"SHA-256 {expected}", found=found, fix=fix)
    try:
        load_model(made, str(weights))
    except (RuntimeError, ValueError) as error:
        text = " ".join(str(error).split())[:200]
        fix = "pass the float model that it was made of"
        raise InputError(weights, expected="the parameters of the model", found=text, fix=fix) from error
    return made.eval()


def _file(place: _Path, name: str) -> Path:
    return fetched(place, name) if is_repository(place) else Path(place) / name


def _made(config: dict[str, Any], model: nn.Module | None, place: _Path) -> nn.Module:
    """Return the network before its weights are read."""
    settings = config.get("settings")
    if model is not None and settings is None:
        for call in config["binarized"]:
            options = {**call, "binarization": Binarization(**call["binarization"])}
            binarize_(model, **options)
        for name, layer in binary_layers(model).items():
            found = config.get("layers", {}).get(name, {})
            for setting in found.keys() & {*_SETTINGS}:
                setattr(layer, setting, operator.index(found[setting]))
        return model
    own = settings is not None and "spec" in settings["model"]
    if model is not None and settings is not None:
        if not own:
            found, fix = type(model).__name__, "leave it out"
            raise InputError(place, expected="no model, as its recipe makes it", found=found, fix=fix)
        recipe = recipe_of_settings({**settings, "model": {}}, place)
        network = build(replace(recipe, model=lambda: model))
        return merge_(network) if config["merged"] else network
    if settings is None or own:
        architecture = config["architecture"] if settings is None else settings["model"]["spec"]
        fix = "build it, and pass it: from_pretrained(place, model)"
        raise InputError(place, expected=f"the float model {architecture}", found="none", fix=fix)
    network = build(recipe_of_settings(settings, place))
    return merge_(network) if config["merged"] else network


@checked
def push_to_hub(
    subject: nn.Module | _Path | RunDirectory,
    repository: str,
    *,
    example: Example | None = None,
    best: bool = False,
    license: str | None = None,
    private: bool = False,
) -> Pretrained:
    """Upload to the Hugging Face Hub what `save_pretrained` writes; the repository is made if there is none.

    You are who `hf auth login` or HF_TOKEN says.

    Parameters
    ----------
    subject, example, best, license
        As of `save_pretrained`.
    repository
        owner/name.
    private
        Make a new repository private.

    Raises
    ------
    InputError
        If huggingface_hub is not installed, the Hub cannot be reached, or it refuses.

    Example
    -------
    >>> print(bitfactor.push_to_hub("runs/a", "owner/name").url)
    """
    expected = "a repository of the Hub that takes it"
    hub = library(repository, expected)
    with TemporaryDirectory() as parent:
        folder = Path(parent) / repository.rpartition("/")[2]
        written = save_pretrained(subject, folder, example=example, best=best, license=license)
        try:
            api = hub.HfApi(library_name="bitfactor", library_version=__version__)
            api.create_repo(repository, private=private, exist_ok=True)
            commit = api.upload_folder(
                repo_id=repository, folder_path=folder, commit_message="Upload by bitfactor"
            )
        except (OSError, ValueError, hub.errors.HTTPError) as error:
            raise refused(repository, expected, error) from error
    return Pretrained(Path(repository), written.files, str(commit.commit_url))
