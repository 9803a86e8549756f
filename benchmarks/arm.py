"""Count the instructions that binary networks, and others beside them, take on emulated 64-bit ARM.

The networks are those of `benchmarks/front.py`. Each runs on one thread of an emulated Cortex-A76, which has
dot products of bytes, and of a Cortex-A72, which has none. Ours run in the C library. The others run in
Debian's Python, in ONNX Runtime and OpenVINO.
Each engine finds the CPU's features as on a board, so that it chooses its kernels for them.

A count is that of one pass; what loads the network and the first pass are not in it. An instruction counts as
one, whatever it takes on a chip: these are neither times nor cycles. `vector` counts instructions of SIMD and
floating point, `memory` loads and stores, and `dot` dot products of bytes. What the results have already is
not counted again.

    apt-get install qemu-user g++-aarch64-linux-gnu cmake gcc
    python benchmarks/arm.py [--networks QuickNet ...] [--cpus cortex-a76] [--out build/front-arm.json]
    python docs/results/front.py             # the page, from the results

Needs the packages of bitfactor[train,bench] and timm, and Debian, whose packages for ARM are unpacked under
build/arm. QEMU is one of 6 to 8.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import front

ROOT = Path(__file__).parents[1]
HERE, RESULTS = ROOT / "benchmarks/emulated", ROOT / "docs/results/front-arm.json"
KINDS = ("instructions", "vector", "memory", "dot")
PASSES = 1  # after the first, which allocates
COMPILER = "aarch64-linux-gnu-g++"
PROGRAMS = {
    "qemu-aarch64": "qemu-user",
    COMPILER: "g++-aarch64-linux-gnu",
    "cmake": "cmake",
    "cc": "gcc",
}
PLATFORMS = ("manylinux_2_17", "manylinux2014", "manylinux_2_27", "manylinux_2_28", "manylinux_2_35")


@dataclass(frozen=True)
class Cpu:
    """Our instruction set on a CPU, and how the system describes one to programs."""

    isa: str
    part: int
    features: str

    @property
    def identity(self) -> int:
        """The register MIDR_EL1: Arm as the maker, the part, no revision."""
        return 0x410F0000 | self.part << 4


BASE = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"
CPUS = {
    "cortex-a76": Cpu("neondot", 0xD0B, f"{BASE} atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp"),
    "cortex-a72": Cpu("neon", 0xD08, BASE),
}


class MissingError(Exception):
    """What this machine lacks; the text says how to get it."""


def expect_programs() -> None:
    lacking = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if lacking:
        raise MissingError(f"expected programs of the packages {' '.join(lacking)}: apt-get install them")


def call(command: Sequence[str | Path]) -> str:
    """Run a command; return what it printed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise MissingError(f"{command[0]} failed: {done.stdout.strip()[-500:]}")
    return done.stdout


def build(folder: Path) -> None:
    """Compile the counter and the program that runs ours."""
    core, include = folder / "core", f"-I{ROOT / 'native/include'}"
    call(["cc", "-O2", "-shared", "-fPIC", HERE / "count.c", "-o", folder / "count.so"])
    cross = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64"]
    call(["cmake", "-S", ROOT, "-B", core, *cross, f"-DCMAKE_CXX_COMPILER={COMPILER}"])
    call(["cmake", "--build", core, "--target", "static", "--parallel", "2"])
    sources = [HERE / "passes.cpp", core / "libbitfactor.a"]
    call([COMPILER, "-static", "-O2", include, *sources, "-o", folder / "passes"])


def unpack(folder: Path) -> list[str]:
    """Unpack Debian's Python for ARM as `root`, and the engines as `site`; return their versions."""
    wanted = [f"{name}=={version(name)}" for name in ("onnxruntime", "openvino")]
    made = folder / "made.json"
    if made.exists() and json.loads(made.read_text()) == wanted:
        return wanted
    for old in ("site", "wheels"):
        shutil.rmtree(folder / old, ignore_errors=True)
    call([ROOT / "tests/wheel/debian_arm", folder])
    platforms = [word for name in PLATFORMS for word in ("--platform", f"{name}_aarch64")]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--python-version", "3.11", *platforms]
    call([*pip, "--only-binary", ":all:", "-d", folder / "wheels", *wanted])
    for wheel in (folder / "wheels").glob("*.whl"):
        call([sys.executable, "-m", "zipfile", "-e", wheel, folder / "site"])
    for binding in (folder / "site").glob("openvino/libs/libtbbbind*"):  # which reads the board's tables
        binding.unlink()
    made.write_text(json.dumps(wanted))
    return wanted


def describe(cpu: Cpu, root: Path) -> None:
    """Write the files in which Linux describes a CPU to programs; the machine's own are of another kind."""
    system = root / "sys/devices/system/cpu"
    info = f"processor\t: 0\nFeatures\t: {cpu.features}\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
    files = {
        root / "proc/cpuinfo": f"{info}CPU variant\t: 0x0\nCPU part\t: {cpu.part:#x}\nCPU revision\t: 0\n\n",
        **{system / name: "0\n" for name in ("possible", "present", "online")},
        system / "cpu0/regs/identification/midr_el1": f"0x{cpu.identity:016x}\n",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def programs(network: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield each precision of a network's real-valued layers, with the frozen program of it."""
    from bitfactor.common.machine import chosen_isa
    from bitfactor.format import load
    from bitfactor.format.low_precision import low_precision
    from bitfactor.runtime.runner import runner
    from bitfactor.targets.frozen import flat_program

    source = front.file_of(network, "1 bit", folder)
    for label in ("", "low"):
        path = source.with_name(f"{source.stem}{label and '-'}{label}.bfp")
        if not path.exists():
            model = load(source)
            if label:
                graph = low_precision(model.graph)
                golden = runner(graph, chosen_isa())(*model.golden_inputs)
                model = replace(model, graph=graph, golden_outputs=golden)
            path.write_bytes(flat_program(model).content)
        yield label and f", {label}", path


@dataclass(frozen=True)
class Engine:
    """What runs files, given behind the command: (network, weights, name in the results, file)."""

    command: Sequence[str | Path]
    files: Sequence[tuple[str, str, str, Path]]

    def without(self, rows: Sequence[dict]) -> "Engine | None":
        """Return it with the files that have no row yet, if there are any."""
        known = {(row["network"], row["weights"], row["engine"]) for row in rows}
        left = [one for one in self.files if one[:3] not in known]
        return replace(self, files=left) if left else None


def engines(cpu: Cpu, networks: Sequence[tuple[str, str]], folder: Path, arm: Path) -> Iterator[Engine]:
    """Yield each engine with its files."""
    binary = [network for network, weights in networks if weights == "1 bit"]
    others = [one for one in networks if one[0] not in binary]
    own = [
        (network, "1 bit", f"bitfactor {cpu.isa}{label}", path)
        for network in binary
        for label, path in programs(network, folder)
    ]
    yield Engine([arm / "passes", str(PASSES), cpu.isa], own)
    python = [arm / "root/usr/bin/python3.11", HERE / "session.py", str(PASSES)]
    files = [(*one, front.file_of(*one, folder)) for one in others]
    for package, name in (("onnxruntime", "ONNX Runtime"), ("openvino", "OpenVINO")):
        yield Engine([*python, package], [(*one, name, path) for *one, path in files])


def counts(cpu: str, engine: Engine, arm: Path) -> Iterator[dict]:
    """Run an engine's files on an emulated CPU; yield the instructions of a pass of each."""
    out = arm / "counts.txt"
    out.unlink(missing_ok=True)
    emulator = ["qemu-aarch64", "-cpu", cpu, "-L", (arm / "root").resolve()]
    command = [*emulator, "-plugin", f"file={(arm / 'count.so').resolve()},out={out}", *engine.command]
    environment = os.environ | {"PYTHONPATH": str(arm / "site")}
    done = subprocess.run([*command, *(path for *_, path in engine.files)], env=environment)
    marks = [tuple(map(int, line.split())) for line in out.read_text().splitlines()] if out.exists() else []
    expected = len(engine.files) * (PASSES + 1)
    if done.returncode or len(marks) != expected:
        said = f"found {len(marks)}, and exit code {done.returncode}"
        raise MissingError(f"{' '.join(map(str, command))}: expected {expected} marks, {said}")
    for i, (network, weights, name, path) in enumerate(engine.files):
        before, after = marks[(i + 1) * (PASSES + 1) - 2 :][:2]
        about = {"network": network, "weights": weights, "engine": name, "bytes": path.stat().st_size}
        yield about | dict(zip(KINDS, map(int.__sub__, after, before), strict=True))


def report(name: str, found: dict) -> None:
    print(f"\n{name}, {found['isa']}: millions of instructions, vector, memory, dot")
    print(*(f"{package} {number}" for package, number in found["versions"].items()))
    for row in sorted(found["rows"], key=lambda row: row["instructions"]):
        numbers = " ".join(f"{row[kind] / 1e6:9.2f}" for kind in KINDS)
        print(f"{row['network']:24} {row['weights']:6} {row['engine']:24} {numbers} {row['bytes']:11,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cpus", nargs="+", choices=CPUS, default=list(CPUS))
    parser.add_argument("--networks", nargs="+", default=[], help="some of those that are published")
    parser.add_argument("--folder", type=Path, default=Path("build/front"), help="keeps the networks")
    parser.add_argument("--arm", type=Path, default=Path("build/arm"), help="keeps what runs on ARM")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    for folder in (options.folder, options.arm):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        expect_programs()
        build(options.arm)
        packages = dict(one.split("==") for one in unpack(options.arm))
        lines = {name: call([name, "--version"]).splitlines()[0] for name in ("qemu-aarch64", COMPILER)}
        results = json.loads(options.out.read_text()) if options.out.exists() else {}
        for name in options.cpus:
            cpu = CPUS[name]
            describe(cpu, options.arm / "root")
            found = results.setdefault(name, {"isa": cpu.isa, "versions": {}, "rows": []})
            found["versions"] |= {**lines, **packages}
            for engine in engines(cpu, front.chosen(options.networks), options.folder, options.arm):
                if left := engine.without(found["rows"]):
                    found["rows"] += counts(name, left, options.arm)
                    options.out.write_text(json.dumps(results, indent=1) + "\n")
            report(name, found)
    except MissingError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
