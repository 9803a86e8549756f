"""Compare the speed of each network of the zoo with that of the last release, on the same kind of CPU.

    python benchmarks/release.py [--store]

The ratio to torch in float32 is compared, from one interleaved run: it depends little on how busy the machine
is. The status is 1 where a network has lost more than a fifth.

Figures stand in benchmarks/releases.json by version, CPU and network. Who makes a release adds those of its
version by `--store`, on a machine that does nothing else, and commits the file. Without a record of an
earlier version on this CPU, the figures are printed and nothing is compared.
"""

import json
from pathlib import Path

import tyro

import bitfactor
from bitfactor.common import __version__
from bitfactor.common.files import write_json
from bitfactor.common.machine import cpu_name
from bitfactor.runtime import instruction_sets, zoo

STORED = Path(__file__).with_name("releases.json")
LOST, RUNS = 0.8, 100


def ratio(network: str) -> float:
    """Return how many times as fast as torch a network is."""
    ours, torch, *_ = bitfactor.bench(network, against=("torch",), runs=RUNS, threads=1).engines
    return round(torch["minimum_ms"] / ours["minimum_ms"], 2)


def main(store: bool = False) -> int:
    """Print each network's ratio beside the last release's."""
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    cpu = f"{cpu_name()}, {instruction_sets()[0]}"  # virtual machines give CPUs of all kinds one name
    found = {name: ratio(name) for name in zoo.names()}
    others = {version: cpus for version, cpus in stored.items() if version != __version__}
    earlier = [(version, cpus[cpu]) for version, cpus in others.items() if cpu in cpus]
    version, before = earlier[-1] if earlier else ("", {})
    for name, now in found.items():
        known = f", {before[name]:.2f}x in {version}" if name in before else ""
        print(f"{name}: {now:.2f}x torch float32{known}")
    if not before:
        print(f"no earlier release was measured on {cpu}: nothing to compare with")
    if store:
        write_json(STORED, {**stored, __version__: {**stored.get(__version__, {}), cpu: found}})
    return int(any(found[name] < LOST * was for name, was in before.items() if name in found))


if __name__ == "__main__":
    raise SystemExit(tyro.cli(main))
