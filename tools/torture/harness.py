"""What the parts of tools/torture.sh share: stand-ins for ptxas, nvlink and ld that do harm when asked to, links with a fault, and the rules by
which each is judged. Whatever is wrong is printed with what is needed to see it again.
"""

import collections
import concurrent.futures
import filecmp
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LLVM = os.environ.get("LLVM") or "/usr/lib/llvm-22/bin"
BIN = os.environ["WARPLINK_BIN_DIR"]
WARPLINK = os.path.join(os.path.dirname(os.path.realpath(os.path.join(BIN, "clang-linker-wrapper"))), "warplink")
FAKE = os.path.join(ROOT, "lit-tests", "fake-tools", "toolkit")
LIMIT = 120  # seconds after which a link is said to hang

# A stand-in for ptxas that remembers what the slow one of the lit suite has made, and does harm at the moment when a link waits for it.
PTXAS = r"""#!/bin/sh
name=${0##*/}
case "$*" in *--version*)
  if [ "$FAULT" = version ]; then echo "ptxas: release 1.0, V1.0.1"; else echo "stand-in for tests, release 13.0, V13.0.88"; fi
  exit;;
esac
in= out= last=
for a; do
  [ "$last" != -o ] || out=$a
  case $a in *.ptx) in=$a;; esac
  last=$a
done
harm() {
  case $FAULT in
    kill) kill -KILL $$;;
    segv) kill -SEGV $$;;
    term) kill -TERM $$;;
    hang) exec sleep 1000;;
    stubborn) trap '' TERM; while :; do :; done;;
    slow) i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done;;
    endless) yes 'warning: x' | head -n 2000000; "@FAKE@/bin/$name" "$@"; exit;;
    garbage) head -c 3000 /dev/urandom > "$out"; exit 0;;
    words) head -c 3000 /dev/urandom; exit 1;;
    flood) head -c 20000000 /dev/zero | tr '\0' x; exit 1;;
    nothing) exit 0;;
    empty) : > "$out"; exit 0;;
    directory) mkdir "$out"; exit 0;;
    fail) exit 3;;
    cut) truncate -s 5000 "$FAULT_FILE";;
    change) printf x >> "$FAULT_FILE";;
    touch) touch -d '2001-01-01' "$FAULT_FILE";;
    vanish) rm "$FAULT_FILE";;
    replace) cp -p "$FAULT_FILE" "$FAULT_FILE.new.$$"; printf x >> "$FAULT_FILE.new.$$"; touch -r "$FAULT_FILE" "$FAULT_FILE.new.$$"; mv "$FAULT_FILE.new.$$" "$FAULT_FILE";;
    no-temps) rm -rf "${out%/*}";;
    no-cache) rm -rf "$FAULT_FILE";;
  esac
}
[ "$FAULT_TOOL" != "$name" ] || harm
if [ "$name" = ptxas ] && [ -n "$in" ]; then
  key=$( { for a; do case $a in */*) ;; *) echo "$a";; esac; done; cat "$in"; } | sha256sum)
  kept=@KEPT@/${key%% *}
  [ -f "$in" ] || { echo "ptxas fatal   : no input file"; exit 1; }
  if ! [ -f "$kept" ]; then "@FAKE@/bin/ptxas" "$@" && cp "$out" "$kept.$$" && mv "$kept.$$" "$kept" || exit; fi
  cp "$kept" "$out" || exit
else
  "@FAKE@/bin/$name" "$@" || exit
fi
[ "$FAULT_TOOL" != "$name" ] || case $FAULT in half) truncate -s 300 "$out";; huge) truncate -s 2200M "$out";; esac
"""

LD = """#!/bin/sh
begin() { while [ $# -gt 0 ]; do [ "$1" != -o ] || head -c 1000 /dev/zero > "$2"; shift; done; }
case $FAULT_TOOL:$FAULT in
  ld:slow) begin "$@"; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done;;
  ld:stubborn) begin "$@"; trap '' TERM; while :; do :; done;;
  ld:kill) begin "$@"; kill -KILL $$;;
  ld:segv) begin "$@"; kill -SEGV $$;;
  ld:hang) begin "$@"; exec sleep 1000;;
  ld:fail) exit 7;;
  ld:nothing) exit 0;;
esac
exec /usr/bin/ld "$@"
"""

Ended = collections.namedtuple("Ended", "code text command hung left")


class Harness:
    def __init__(self, arguments):
        self.short = arguments.short
        self.seed = arguments.seed
        self.numbers = {name: int(count) for name, count in (word.split("=") for word in arguments.count)}
        self.random = random.Random(arguments.seed)
        self.work = tempfile.mkdtemp(prefix="warplink-torture-")
        self.counts = collections.Counter()
        self.wrong = []
        self.lock = threading.Lock()
        self.kept = self.directory("kept")
        self.toolkit = self.directory("toolkit/bin")
        for name in ("ptxas", "nvlink"):
            self.script(f"toolkit/bin/{name}", PTXAS.replace("@FAKE@", FAKE).replace("@KEPT@", self.kept))
        self.toolkit = os.path.dirname(self.toolkit)
        shutil.copytree(os.path.join(FAKE, "include"), os.path.join(self.toolkit, "include"))
        self.ld = self.script("ld", LD)
        self.slots = threading.local()
        self.slot_numbers = iter(range(1 << 30))
        self.tmp = self.directory("tmp")

    # --- what the parts are made of -----------------------------------------------------------

    def path(self, name):
        return os.path.join(self.work, name)

    def directory(self, name):
        os.makedirs(self.path(name), exist_ok=True)
        return self.path(name)

    def slot(self, name):
        """A path of this thread's own."""
        if not hasattr(self.slots, "number"):
            with self.lock:
                self.slots.number = next(self.slot_numbers)
        return self.path(f"{name}-{self.slots.number}")

    def each(self, work, items, workers=2):
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            return list(pool.map(work, items))

    def script(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        os.chmod(self.path(name), 0o755)
        return self.path(name)

    def count(self, what, more=1):
        with self.lock:
            self.counts[what] += more

    def bad(self, what, ended=None):
        with self.lock:
            self.wrong.append(what)
        print(f"WRONG: {what}", flush=True)
        if ended:
            print(f"  command: {ended.command}\n  ended with {ended.code}:\n" + "".join(f"  | {l}\n" for l in ended.text[-3000:].splitlines()))

    def compile(self, name, source, *options, arch="sm_80,sm_90"):
        path = self.path(name + ".cu")
        with open(path, "w") as file:
            file.write(source)
        command = [f"{LLVM}/clang++", "-c", "-O1", "-fPIC", "-nocudainc", "-nocudalib", "--cuda-feature=+ptx88", "-fgpu-rdc", "-foffload-lto"]
        command += ["-Xclang", "-target-sdk-version=12.9", "-include", f"{ROOT}/lit-tests/Inputs/cuda_mini.h", "-Wno-unknown-cuda-version"]
        subprocess.check_call(command + [f"--offload-arch={arch}", path, "-o", self.path(name + ".o"), *options])
        return self.path(name + ".o")

    def environment(self, **more):
        environment = {"PATH": f"{LLVM}:/usr/bin:/bin", "HOME": self.work, "LC_ALL": "C", "TMPDIR": self.tmp, "CUDA_PATH": self.toolkit}
        environment.update({"WARPLINK_RECORD": "no", "WARPLINK_TOOL_ENV": "FAULT*", "WARPLINK_REPRO_ON_CRASH": "no", "NO_COLOR": "1"})
        if "WARPLINK_CACHE_DIR" not in more:
            environment["WARPLINK_NO_CACHE"] = "1"
        environment.update(more)
        return environment

    def run(self, command, env=None, cwd=None, limits=(), stop=None, limit=LIMIT):
        """Runs a command; `stop` is (seconds, signal, whole group) to end it by. Whatever it leaves running is ended, and counted as `left`."""

        def prepare():
            for kind, value in limits:
                resource.setrlimit(kind, (value, value))

        child = subprocess.Popen(
            command, env=env, cwd=cwd or self.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=prepare if limits else None,
        )
        timers = [threading.Timer(limit, os.killpg, (child.pid, signal.SIGKILL))]
        if stop:
            def end():
                try:
                    os.killpg(child.pid, stop[1]) if stop[2] else child.send_signal(stop[1])
                except ProcessLookupError:
                    pass
            timers.append(threading.Timer(stop[0], end))
        for timer in timers:
            timer.start()
        started = time.monotonic()
        if stop:
            # What goes on after it holds its output open.
            with tempfile.TemporaryFile() as said:
                copier = threading.Thread(target=shutil.copyfileobj, args=(child.stdout, said))
                copier.start()
                child.wait()
                left = self.left_running(child.pid)
                if left:
                    os.killpg(child.pid, signal.SIGKILL)
                copier.join()
                said.seek(0)
                text = said.read().decode(errors="replace")
            child.stdout.close()
        else:
            text, left = child.communicate()[0].decode(errors="replace"), []
        for timer in timers:
            timer.cancel()
            timer.join()
        shown = " ".join(map(repr, command)) if len(command) < 40 else repr(command[:8]) + " ..."
        return Ended(child.returncode, text, shown, time.monotonic() - started >= limit, left)

    @staticmethod
    def left_running(session):
        """The processes of a session that go on although its leader has ended. A tool's own helpers may take a moment."""
        for pause in (0, 0.01, 0.1, 0.5, 1, 3, 6):
            time.sleep(pause)
            left = []
            for name in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{name}/stat", "rb") as file:
                        text = file.read()
                except OSError:
                    continue
                command, rest = text[text.index(b"(") + 1 : text.rindex(b")")], text[text.rindex(b")") + 2 :].split()
                if int(rest[3]) == session and rest[0] not in (b"Z", b"X"):
                    left.append(f"{command.decode(errors='replace')} ({name})")
            if not left:
                break
        return left

    def link(self, inputs, output, *options, linker="/usr/bin/ld", **setting):
        command = [f"{BIN}/clang-linker-wrapper", f"--linker-path={linker}", *([] if "-r" in options else ["-shared"]), *inputs, "-o", output, *options]
        setting.setdefault("env", self.environment())
        return self.run(command, **setting)

    def good(self, inputs, name, *options):
        """An undisturbed link without a cache, which every other is compared with."""
        ended = self.link(inputs, self.path(name), *options)
        if ended.code != 0:
            self.bad(f"the undisturbed link of {name} fails", ended)
        return self.path(name)

    def judge(self, what, ended, output=None, expected=None, says=None, must_fail=False, tmp=None):
        """The rules that hold for every link, whatever is done to it."""
        if ended.hung:
            self.bad(f"{what}: hangs", ended)
        elif ended.code < 0 or ended.code > 128:
            self.bad(f"{what}: ends by a signal", ended)
        elif "internal error" in ended.text or "panicked" in ended.text or "Traceback" in ended.text:
            self.bad(f"{what}: internal error", ended)
        elif ended.code != 0 and not ended.text.strip():
            self.bad(f"{what}: fails without a word", ended)
        elif must_fail and ended.code == 0:
            self.bad(f"{what}: is not noticed", ended)
        elif ended.code != 0 and says and not any(s in ended.text for s in ([says] if isinstance(says, str) else says)):
            self.bad(f"{what}: the message does not say {says!r}", ended)
        if output and os.path.exists(output):
            if ended.code == 0 and expected and not filecmp.cmp(output, expected, shallow=False):
                self.bad(f"{what}: other bytes than those of an undisturbed link", ended)
            if ended.code != 0:
                self.bad(f"{what}: leaves an output behind", ended)
        elif output and ended.code == 0:
            self.bad(f"{what}: no output", ended)
        self.no_temps(what, ended, tmp or self.tmp)

    def no_temps(self, what, ended, tmp):
        left = os.listdir(tmp) if os.path.isdir(tmp) else []
        if left:
            self.bad(f"{what}: leaves {left[:3]} in the temporary directory", ended)
            for name in left:
                shutil.rmtree(os.path.join(tmp, name), ignore_errors=True)

    # --- the parts ---------------------------------------------------------------------------

    def prepare(self):
        self.a = self.compile("a", "extern __device__ float weight(int);\n__device__ int counter;\n__global__ void fill(float *o) { o[0] = weight(counter); }\n")
        # Large enough to be mapped and not read.
        table = "".join(f"__device__ float table{i}(float x) {{ return x * {i}.5f + {i % 7}; }}\n" for i in range(300))
        self.b = self.compile("b", table + "__device__ float weight(int i) { float s = 0;\n" + "".join(f"s += table{i}(s + i);\n" for i in range(300)) + "return s; }\n__global__ void other(float *o) { *o = weight(3); }\n")
        self.variants = [self.compile(f"v{i}", f"__device__ int value{i} = {i};\n__global__ void kernel{i}(int *p) {{ *p = value{i} + {i}; }}\n") for i in range(4)]
        self.objects = [self.a, self.b]
        self.expected = self.good(self.objects, "good.so")

    def fault(self, what, *options, inputs=None, env=(), says=None, must_fail=False, after=True, tmp=None, before=None, **setting):
        """One link with a fault, and one after it that must be right, both over the same cache. `before` is an output from another time."""
        cache, output = self.slot("cache"), self.slot("fault.so")
        setting.setdefault("linker", self.ld)
        environment = self.environment(WARPLINK_CACHE_DIR=cache, TMPDIR=self.directory(os.path.basename(self.slot("tmp"))))
        environment.update(env)
        if before:
            shutil.copy(before, output)
        ended = self.link(inputs or self.objects, output, *options, env=environment, **setting)
        self.count("faults injected")
        self.count("links done")
        self.judge(what, ended, None if before else output, self.expected, says, must_fail, tmp or self.slot("tmp"))
        if os.path.lexists(output):
            os.remove(output)
        if after:
            again = self.link(self.objects, output, env=self.environment(WARPLINK_CACHE_DIR=cache, TMPDIR=self.slot("tmp")))
            self.judge(f"the link after: {what}", again, output, self.expected, tmp=self.slot("tmp"))
            self.count("links done")
            if os.path.exists(output):
                os.remove(output)
        shutil.rmtree(cache, ignore_errors=True)
        return ended

    def fatbin(self, program):
        section = self.slot("section")
        subprocess.check_call([f"{LLVM}/llvm-objcopy", f"--dump-section=.nv_fatbin={section}", program, self.slot("stripped")])
        with open(section, "rb") as file:
            return file.read()
