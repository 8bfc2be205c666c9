# Configuration of the lit suite: one folder per phase, e2e/ with real clang and ptxas.
#
# Run by tools/test.sh, or by hand: eval "$(tools/setup.sh --env)"; $LLVM/lit -v lit-tests [--filter=...]
# From the environment: CUDA_PATH, LLVM, WARPLINK_BIN_DIR (all printed by tools/setup.sh --env).

import os
import shutil
import subprocess
import tempfile

import lit.formats
import lit.util

source = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(source)
target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(root, "target")
llvm = os.environ.get("LLVM") or "/usr/lib/llvm-22/bin"
bin_dir = os.environ.get("WARPLINK_BIN_DIR") or os.path.join(target, "release", "libexec", "warplink")
cuda = os.environ.get("CUDA_PATH") or os.path.join(root, ".deps", "cuda")

config.name = "warplink"
config.test_format = lit.formats.ShTest(execute_external=True)
config.suffixes = [".test", ".cu", ".cpp", ".c", ".ll"]
config.excludes = ["Inputs", "fake-tools", "lit.cfg.py"]
config.test_source_root = source
config.test_exec_root = os.path.join(target, "lit")
os.makedirs(config.test_exec_root, exist_ok=True)

wrapper = os.path.join(bin_dir, "clang-linker-wrapper")
if not os.access(wrapper, os.X_OK):
    lit_config.fatal(f"{wrapper} is not there: run tools/setup.sh first")
warplink = os.path.join(os.path.dirname(os.path.realpath(wrapper)), "warplink")

# The environment: our tools first, and nothing of the person's own that changes a link.
config.environment = {
    "PATH": os.pathsep.join([llvm, os.environ["PATH"]]),
    "HOME": config.test_exec_root,
    "TMPDIR": tempfile.gettempdir(),
    "LC_ALL": "C",
    # Tests of the cache unset the first one and name a directory of their own.
    "WARPLINK_NO_CACHE": "1",
    # The fake tools read these.
    "WARPLINK_TOOL_ENV": "FAKE_*",
    "XDG_CACHE_HOME": os.path.join(config.test_exec_root, "cache"),
    "NO_COLOR": "1",
}
for name in ("CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
if "CARGO_HOME" not in os.environ:
    config.environment["CARGO_HOME"] = os.path.expanduser("~/.cargo")
if "RUSTUP_HOME" not in os.environ:
    config.environment["RUSTUP_HOME"] = os.path.expanduser("~/.rustup")

# The recording runtime, static and shared, made once per change of its source.
record_source = os.path.join(root, "test-inputs", "runtime", "cudart_record.c")
record_dir = os.path.join(config.test_exec_root, "runtime")
record = os.path.join(record_dir, "libcudart_record.a")
have_toolkit = os.path.exists(os.path.join(cuda, "include", "cuda_runtime_api.h")) and os.access(
    os.path.join(cuda, "bin", "ptxas"), os.X_OK
)
if have_toolkit:
    os.makedirs(record_dir, exist_ok=True)
    if not os.path.exists(record) or os.path.getmtime(record) < os.path.getmtime(record_source):
        compiler = [os.path.join(llvm, "clang"), "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", f"-I{cuda}/include"]
        subprocess.check_call(
            compiler + ["-shared", record_source, "-o", os.path.join(record_dir, "libcudart_record.so")]
        )
        subprocess.check_call(compiler + ["-c", record_source, "-o", os.path.join(record_dir, "record.o")])
        if os.path.exists(record):
            os.remove(record)
        subprocess.check_call([os.path.join(llvm, "llvm-ar"), "rcs", record, os.path.join(record_dir, "record.o")])
    config.available_features.add("cuda-toolkit")

for linker in ("bfd", "gold", "lld", "mold"):
    if shutil.which(f"ld.{linker}") or os.path.exists(os.path.join(llvm, f"ld.{linker}")):
        config.available_features.add(linker)
if have_toolkit and os.access(os.path.join(cuda, "bin", "nvcc"), os.X_OK) and shutil.which("g++"):
    config.available_features.add("nvcc")
if any(name.startswith("libnvvm.so") for d in ("nvvm/lib64", "lib64") if os.path.isdir(f"{cuda}/{d}") for name in os.listdir(f"{cuda}/{d}")):
    config.available_features.add("libnvvm")
for program in ("g++", "rustc"):
    if shutil.which(program, path=config.environment["PATH"]):
        config.available_features.add(program)
# Objects for AArch64 Linux: compiled and linked here, run under qemu.
cross = ("aarch64-linux-gnu-ld", "aarch64-linux-gnu-gcc", "qemu-aarch64")
missing = [program for program in cross if not shutil.which(program)]
if missing:
    lit_config.note(f"tests for AArch64 hosts are skipped: {', '.join(missing)} not found (tools/setup.sh --tests installs them)")
else:
    config.available_features.add("aarch64")
for program in ("lld-link", "clang-16", "clang-19", "cargo", "zstd"):
    if shutil.which(program, path=config.environment["PATH"]):
        config.available_features.add(program)
    else:
        lit_config.note(f"tests that need {program} are skipped: not found")
# A browser for the report. As root it runs only without its sandbox, which a page of our own does not need.
chromium = next((name for name in ("chromium", "chromium-browser", "google-chrome") if shutil.which(name)), None)
if chromium:
    config.available_features.add("chromium")
else:
    lit_config.note("tests of the report in a browser are skipped: chromium not found (tools/setup.sh --tests installs it)")
# Build systems. CMake knows clang 22 as a CUDA compiler in late releases only, which setup.sh fetches.
for program in ("cmake", "ninja", "make", "meson", "bazel"):
    if shutil.which(program, path=config.environment["PATH"]):
        config.available_features.add(program)
    else:
        lit_config.note(f"tests of building with {program} are skipped: not found (tools/setup.sh --tests installs it)")
for program in ("dpkg-deb", "lintian", "man", "groff", "bash", "zsh", "fish", "redis-server", "nginx"):
    # Servers are in sbin, which not everybody has on PATH.
    if shutil.which(program, path=config.environment["PATH"] + ":/usr/sbin"):
        config.available_features.add(program)
    else:
        lit_config.note(f"tests that need {program} are skipped: not found (tools/setup.sh --tests installs it)")
cmake_cuda = os.path.join(root, ".deps", "cmake", "bin", "cmake")
if os.access(cmake_cuda, os.X_OK):
    config.available_features.add("cmake-cuda")
else:
    lit_config.note(f"tests of CMake's language CUDA are skipped: no {cmake_cuda} (tools/setup.sh --tests fetches it)")
if len(os.sched_getaffinity(0)) > 1:
    config.available_features.add("more-cores")
# A container need not have pseudo-terminals.
try:
    for end in os.openpty():
        os.close(end)
    config.available_features.add("terminal")
except OSError:
    pass
if os.path.exists("/dev/nvidia0"):
    config.available_features.add("gpu")

# Device code that needs none of the toolkit's headers compiles in a fraction of the time.
mini = (
    f"{llvm}/clang++ -c -O2 -nocudainc -nocudalib --cuda-feature=+ptx88 -Xclang -target-sdk-version=12.9 "
    f"-include {source}/Inputs/cuda_mini.h -fgpu-rdc -foffload-lto -Wno-unknown-cuda-version"
)
# The same by older releases, whose driver still has to be told.
older = mini.replace(f"{llvm}/clang++", "clang++-%s --offload-new-driver").replace("+ptx88", "+ptx78").replace("12.9", "11.8")
full = f"{llvm}/clang++ -c -O2 --cuda-path={cuda} -fgpu-rdc -foffload-lto -Wno-unknown-cuda-version"

# Longer names first: lit replaces them in this order.
config.substitutions += [
    # compile with cuda_mini.h / with the toolkit's own headers; give --offload-arch= in the test
    ("%clang-cuda-full", full),
    ("%clang-cuda-16", older % "16"),
    ("%clang-cuda-19", older % "19"),
    ("%clang-cuda", mini),
    # nvcc's relocatable objects; give -arch= in the test
    ("%nvcc", f"{cuda}/bin/nvcc -O2 -rdc=true"),
    # link as a user would; the runtime (%record) and -o come from the test
    ("%link", f"{llvm}/clang++ -B{bin_dir} --cuda-path={cuda} --offload-link"),
    # the same with neither a toolkit on the line nor in the environment
    ("%bare-link", f"{llvm}/clang++ -B{bin_dir} --offload-link"),
    ("%clangxx", f"{llvm}/clang++ --cuda-path={cuda} -Wno-unknown-cuda-version"),
    ("%warplink", warplink),
    ("%bin-dir", bin_dir),
    ("%record-dir", record_dir),
    ("%record", record),
    ("%chromium", f"{chromium} --headless --no-sandbox --disable-gpu --hide-scrollbars --enable-logging=stderr"),
    ("%fake-cuda", os.path.join(source, "fake-tools", "toolkit")),
    ("%fake-bin", os.path.join(source, "fake-tools", "bin")),
    ("%build-systems", os.path.join(root, "test-inputs", "build-systems")),
    ("%cmake-cuda", cmake_cuda),
    # arguments by which CMake finds the package of the build tree
    ("%find-warplink", f"-Dwarplink_DIR={root}/tools/cmake -DWARPLINK_EXECUTABLE={warplink}"),
    ("%run-docs", os.path.join(source, "Inputs", "run_docs.py")),
    ("%root", root),
    ("%package", os.path.join(root, "tools", "package.sh")),
    ("%jobserver", os.path.join(source, "Inputs", "jobserver.py")),
    ("%demo", os.path.join(root, "test-inputs", "demo")),
    ("%runtime", record_source),
    ("%wrap-code", os.path.join(root, "crates", "device-link", "src", "wrap")),
    ("%rust-host", os.path.join(root, "test-inputs", "rust-host")),
    ("%root", root),
    ("%mini", os.path.join(source, "Inputs", "cuda_mini.h")),
    ("%llvm", llvm),
    ("%cuda", cuda),
    # runs a program under the recording runtime: %run-recorded LOG PROGRAM ARGS...
    ("%run-recorded", os.path.join(source, "Inputs", "run-recorded")),
    # runs a program on a terminal: %on-terminal COLUMNS PROGRAM ARGS...
    ("%on-terminal", os.path.join(source, "Inputs", "on-terminal")),
    # what cuobjdump finds: kind and architecture of the images, binding and name of the functions
    ("%images", f"env CUOBJDUMP={cuda}/bin/cuobjdump {source}/Inputs/images"),
    ("%kernels", f"env CUOBJDUMP={cuda}/bin/cuobjdump {source}/Inputs/kernels"),
]
