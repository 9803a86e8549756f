"""Small programs that the tests recorded (see record.py), a file each, for a fuzzer to begin with.

python tests/native/seeds.py CASES FOLDER
"""

import sys
from collections.abc import Iterator
from pathlib import Path

MOST_BYTES = 1 << 14


def programs(content: bytes) -> Iterator[bytes]:
    """Yield the frozen programs that stand one behind the other."""
    at = 0
    while at < len(content):
        end = at + int.from_bytes(content[at + 16 : at + 24], "little")
        yield content[at:end]
        at = end


if __name__ == "__main__":
    cases, folder = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for i, program in enumerate(programs(cases.read_bytes())):
        if len(program) <= MOST_BYTES:
            (folder / f"{i}.bfp").write_bytes(program)
