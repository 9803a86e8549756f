"""Compiles the core to WebAssembly, plain and with relaxed vectors, into the folder of the web package.

    python native/web/build.py [FOLDER]

The compiler is PyPI's `ziglang`, in the version of constraints.txt: the same sources give the same bytes,
which `make test-web` compares with what is committed. Exceptions are those of WebAssembly itself; zig brings
the sources of the C++ runtime for them, but does not build them.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import ziglang

NATIVE = Path(__file__).parents[1]
PACKAGE = NATIVE.parent / "src" / "bitfactor" / "targets" / "page"
MODULES = {"bitfactor.wasm": [], "bitfactor-relaxed.wasm": ["-DRELAXED", "-mrelaxed-simd"]}

_ZIG = Path(ziglang.__file__).parent
_TARGET = ["-target", "wasm32-wasi", "-mcpu=generic+simd128+exception_handling+atomics+bulk_memory"]
_FLAGS = [*_TARGET, "-O3", "-fwasm-exceptions", "-ffp-contract=off"]
_FOLDERS = ("program", "steps", "kernels", "threads", "api", "web")
_NOT_HERE = "bindings.cpp"  # Python's
_RUNTIME = ["cxa_exception", "cxa_personality", "cxa_aux_runtime"]
# In bytes, as bitfactor.js says: the memory at first and at most, and a stack.
_MEMORY = (4 << 20, 1 << 30)
_STACK = 1 << 20
_EXPORTS = (
    "malloc",
    "free",
    "bf_load",
    "bf_free",
    "bf_instruction_set",
    "bf_input",
    "bf_output_count",
    "bf_output",
    "bf_label_count",
    "bf_label",
    "bf_edge_count",
    "bf_edge",
    "bf_image_of",
    "bf_prepare_image",
    "bf_run",
    "bf_verify",
    "bf_set_threads",
    "bf_thread",
    "bf_thread_lost",
    "__stack_pointer",
    "__tls_size",
    "__tls_align",
    "__wasm_init_tls",
)


def build(folder: Path) -> None:
    """Write both modules to `folder`."""
    with TemporaryDirectory() as name:
        objects = Path(name)
        (objects / "kernel_sets.inc").write_text("SET(wasm)\n")
        sources = (path for folder in _FOLDERS for path in (NATIVE / folder).glob("*.cpp"))
        common = [path for path in sources if path.name != _NOT_HERE]
        core = ["-Os", "-std=c++17", f"-I{NATIVE}", f"-I{NATIVE / 'include'}", f"-I{objects}"]
        # The runtime first: what is undefined before it would be taken from zig's, which has no exceptions.
        jobs = [("c++", *_runtime(one, objects)) for one in _RUNTIME]
        jobs += [
            ("c++", path, objects / f"{path.parent.name}-{path.stem}.o", core) for path in sorted(common)
        ]
        jobs.append(("cc", *_unwinder(objects)))
        jobs.append(
            ("cc", NATIVE / "web" / "exception.s", objects / "tag.o", ["-Wno-unused-command-line-argument"])
        )
        shared = [job[2] for job in jobs]
        for module, flags in MODULES.items():
            jobs.append(("c++", NATIVE / "isa" / "wasm.cpp", objects / f"{module}.o", [*core, "-O2", *flags]))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(_compile, jobs))
        for module in MODULES:
            _link([*shared, objects / f"{module}.o"], folder / module)
            (folder / module).chmod(0o644)


def _runtime(name: str, objects: Path) -> tuple[Path, Path, list[str]]:
    library = _ZIG / "lib" / "libcxxabi"
    where = [library / "include", library / "src", _ZIG / "lib/libcxx/src", _ZIG / "lib/libunwind/include"]
    flags = [
        "-std=c++23",
        *(f"-I{one}" for one in where),
        "-D_LIBCXXABI_BUILDING_LIBRARY",
        "-D_LIBCXXABI_HAS_NO_THREADS",
    ]
    flags += ["-D_LIBCPP_BUILDING_LIBRARY", "-DLIBCXX_BUILDING_LIBCXXABI", "-D_LIBCPP_HAS_THREADS=0"]
    return library / "src" / f"{name}.cpp", objects / f"{name}.o", flags


def _unwinder(objects: Path) -> tuple[Path, Path, list[str]]:
    library = _ZIG / "lib" / "libunwind"
    flags = [f"-I{library / 'include'}", "-D_LIBUNWIND_HIDE_SYMBOLS", "-D_LIBUNWIND_HAS_NO_THREADS", "-w"]
    return library / "src" / "Unwind-wasm.c", objects / "unwind.o", flags


def _compile(job: tuple[str, Path, Path, list[str]]) -> None:
    language, source, target, flags = job
    _zig(language, *_FLAGS, *flags, "-c", str(source), "-o", str(target))


def _link(objects: list[Path], module: Path) -> None:
    exports = [f"-Wl,--export={name}" for name in _EXPORTS]
    memory = ["-Wl,--import-memory", "-Wl,--shared-memory", f"-Wl,--initial-memory={_MEMORY[0]}"]
    memory += [f"-Wl,--max-memory={_MEMORY[1]}", f"-Wl,-z,stack-size={_STACK}"]
    how = [*_TARGET, "-O3", "-mexec-model=reactor", "-s", *memory, *exports]
    _zig("c++", *how, *map(str, objects), "-o", str(module))


def _zig(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "ziglang", *arguments], check=True)


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE)
