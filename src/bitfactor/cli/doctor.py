"""What of bitfactor works on this machine: `bitfactor doctor`."""

import importlib
import platform
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata

from bitfactor.cli import COMMANDS
from bitfactor.common import __version__
from bitfactor.common.machine import cpu_name, instruction_sets, physical_cores
from bitfactor.common.result import Result

# What each instruction set gives to binary layers and to those of 8 bits, and which CPUs have it.
_SETS = {
    "amx": "tiles for both, on maps that are large enough: Intel Xeon since Sapphire Rapids",
    "avx512": "VPOPCNTDQ for binary layers, VNNI for 8 bits: Intel since Ice Lake, AMD since Zen 4",
    "avx512vnni": "VNNI for 8 bits: Intel Cascade Lake and Cooper Lake",
    "avx512bw": "registers of 512 bits: Intel since Skylake-X",
    "avxvnni": "registers of 256 bits, VNNI for 8 bits: Intel since Alder Lake",
    "avx2": "registers of 256 bits: Intel since Haswell, AMD since Zen",
    "neondot": "registers of 128 bits, dot products for 8 bits: ARM since v8.2",
    "neon": "registers of 128 bits: every 64-bit ARM",
    "scalar": "plain C++: any CPU",
}


@dataclass(frozen=True)
class Diagnosis(Result):
    """What is here: packages by version, instruction sets, devices, and by extra what it lacks.

    `commands` has the packages that each command lacks.
    """

    versions: dict[str, str]
    cpu: str
    instruction_sets: dict[str, str]
    devices: list[str]
    extras: dict[str, list[str]]
    commands: dict[str, list[str]]

    def __str__(self) -> str:
        lacking = {name: packages for name, packages in self.commands.items() if packages}
        lines = [
            "versions",
            *(f"  {name:24} {version}" for name, version in self.versions.items()),
            "",
            f"instruction sets of {self.cpu}, the best first",
            *(f"  {name:24} {gives}" for name, gives in self.instruction_sets.items()),
            "",
            "devices for training",
            *(f"  {device}" for device in self.devices),
            "",
            "extras",
            *(
                f"  {f'bitfactor[{extra}]':24} {'lacks ' + ', '.join(lacks) if lacks else 'installed'}"
                for extra, lacks in self.extras.items()
            ),
            "",
            *(
                f"bitfactor {name} needs {', '.join(lacks)}: pip install 'bitfactor[{COMMANDS[name].extra}]'"
                for name, lacks in lacking.items()
            ),
        ]
        return "\n".join(lines if lacking else [*lines, "all commands can run"])


def doctor() -> Diagnosis:
    """Show versions, instruction sets, devices, installed extras, and which command lacks which package."""
    needs = _requirements()
    extras = {extra: _missing(extra) for extra in sorted(needs) if extra not in ("", "dev")}
    return Diagnosis(
        {"bitfactor": __version__, "python": platform.python_version()}
        | {name: found for name in sorted({*needs[""], *needs["cli"], "torch"}) if (found := _version(name))},
        cpu_name(),
        {name: _SETS.get(name, "") for name in instruction_sets()},
        _devices(),
        extras,
        {name: _missing(command.extra) for name, command in COMMANDS.items()},
    )


@cache
def _requirements() -> dict[str, list[str]]:
    """Return the packages that each extra asks for, under "" those that all need."""
    found: dict[str, list[str]] = {
        extra: [] for extra in metadata.metadata("bitfactor").get_all("Provides-Extra", [])
    }
    for line in metadata.requires("bitfactor") or ():
        name = line.partition(";")[0].strip()
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        found.setdefault(extra.group(1) if extra else "", []).append(name)
    own = r"(bitfactor\[.*?\]|[\w.-]+).*"  # without the extras of others
    return {extra: [re.sub(own, r"\1", name) for name in names] for extra, names in found.items()}


def _missing(extra: str) -> list[str]:
    """Return the packages that extras ask for, and those that they include, and that are not here."""
    found: dict[str, None] = {}
    for package in (name for one in extra.split(",") for name in _requirements()[one.strip()]):
        if inner := re.fullmatch(r"bitfactor\[(.*)\]", package):
            found |= dict.fromkeys(_missing(inner[1]))
        elif _version(package) is None:
            found[package] = None
    return list(found)


def _version(package: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def _devices() -> list[str]:
    cpu = f"cpu: {physical_cores()} physical cores"
    try:
        cuda = importlib.import_module("torch").cuda
    except ImportError:
        return [f"none: torch is not installed ({cpu})"]
    return [cpu, *(f"cuda:{i}: {cuda.get_device_name(i)}" for i in range(cuda.device_count()))]
