"""Faults, one in each link: tools that misbehave, inputs that change, places that cannot be used, calls of the system that fail."""

import os
import resource
import shutil
import subprocess

from harness import LLVM, ROOT, Harness


class Faults(Harness):
    def tools(self):
        """ptxas, nvlink and the host linker misbehave."""
        nvlink = ("--warplink-ptxas-mode=relocatable",)
        cases = []
        for fault in ("kill", "segv", "term", "garbage", "words", "flood", "endless", "nothing", "empty", "directory", "half", "fail", "version"):
            for tool, options in (("ptxas", ()), ("nvlink", nvlink)):
                if tool == "nvlink" and fault == "version" or self.short and tool == "nvlink" and fault not in ("kill", "nothing", "half"):
                    continue
                says = {"kill": "SIGKILL; the system may have run out of memory", "segv": "SIGSEGV", "term": "SIGTERM"}.get(fault, tool)
                cases.append((f"{tool} {fault}", options, dict(env={"FAULT": fault, "FAULT_TOOL": tool}, says=says, must_fail=fault not in ("version", "endless"))))
        for tool, options in (("ptxas", ()), ("nvlink", nvlink), ("ld", ())):
            cases.append((f"{tool} hangs", ("--warplink-tool-timeout=1", *options), dict(
                env={"FAULT": "hang", "FAULT_TOOL": tool}, says="has not ended within 1 s (--warplink-tool-timeout)", must_fail=True, limit=20)))
        for fault, says in (("kill", "SIGKILL"), ("segv", "SIGSEGV"), ("nothing", "/ld exited with code 0")):
            for options in ((), ("-r",)) if fault != "segv" else ((),):
                cases.append((f"ld {fault} {options}", options, dict(env={"FAULT": fault, "FAULT_TOOL": "ld"}, says=says, must_fail=True)))
        cases.append(("ld leaves an older output", (), dict(env={"FAULT": "nothing", "FAULT_TOOL": "ld"}, says="is still the file from before", must_fail=True, before=self.a)))
        cases.append(("no such ld", (), dict(linker="/nowhere/ld", says="/nowhere/ld", must_fail=True)))
        script = self.script("no-program", "text\n")
        cases.append(("ld is no program", (), dict(linker=script, says=script, must_fail=True)))

        def one(case):
            what, options, setting = case
            ended = self.fault(what, *options, **setting)
            if len(ended.text) > 200_000:
                self.bad(f"{what}: a message of {len(ended.text)} bytes")
            # The objects and the architecture, and which program it was.
            if what.split()[0] in ("ptxas", "nvlink") and setting["must_fail"] and "hangs" not in what:
                if "a.o" not in ended.text or "sm_80" not in ended.text:
                    self.bad(f"{what}: the message names no object or architecture", ended)

        self.each(one, cases)

    def changes(self):
        """Inputs are changed while the assembler runs."""
        words = {"cut": ("cut off", "was changed"), "change": "was changed", "touch": "was changed", "vanish": "has vanished", "replace": ("was replaced", "was changed")}

        def one(case):
            fault, says, name = case
            copy = self.slot(f"copy-{name}.o")
            shutil.copy(self.path(f"{name}.o"), copy)
            inputs = [copy if path.endswith(f"/{name}.o") else path for path in self.objects]
            ended = self.fault(f"input {name}.o: {fault}", inputs=inputs, env={"FAULT": fault, "FAULT_TOOL": "ptxas", "FAULT_FILE": copy}, says=says, must_fail=True)
            if copy not in ended.text:
                self.bad(f"input {name}.o: {fault}: the message does not name it", ended)

        self.each(one, [(fault, says, name) for fault, says in words.items() for name in ("a", "b")])
        self.fault("the temporary directory vanishes", env={"FAULT": "no-temps", "FAULT_TOOL": "ptxas"}, says=("warplink-", "ptxas"), must_fail=True)
        self.fault("the cache vanishes", env={"FAULT": "no-cache", "FAULT_TOOL": "ptxas", "FAULT_FILE": self.slot("cache")})

    def places(self):
        """Directories that cannot be written to, disks that are full, and limits of the process."""
        missing, file = self.path("missing/tmp"), self.path("a-file")
        open(file, "w").close()
        cases = []
        for what, place in (("missing", missing), ("a file", file), ("in /proc", "/proc/nowhere")):
            cases.append((f"TMPDIR is {what}", dict(env={"TMPDIR": place}, says=place, must_fail=True)))
            if place != missing:
                cases.append((f"the cache is {what}", dict(env={"WARPLINK_CACHE_DIR": place})))
        for files in (3, 5, 8, 16) if self.short else (3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 24):
            cases.append((f"{files} open files", dict(limits=[(resource.RLIMIT_NOFILE, files)], linker="/usr/bin/ld")))
        for size in (0, 100, 8000) if self.short else (0, 1, 100, 1000, 3000, 5000, 8000, 12000, 20000):
            cases.append((f"files of at most {size} bytes", dict(limits=[(resource.RLIMIT_FSIZE, size)], linker="/usr/bin/ld")))

        def one(case):
            what, setting = case
            ended = self.fault(what, after=not self.short, **setting)
            if "cache is" in what and ended.code != 0:
                self.bad(f"{what}: makes the link fail", ended)

        self.each(one, cases)
        disk = self.directory("disk")
        for pages in (2, 6) if self.short else (1, 2, 3, 4, 6, 8, 12, 16, 24):
            if subprocess.call(["mount", "-t", "tmpfs", "-o", f"size={pages * 4096}", "tmpfs", disk], stderr=subprocess.DEVNULL) != 0:
                print("full disks are left out: a tmpfs cannot be mounted")
                break
            try:
                self.fault(f"{pages} pages for the temporary files", env={"TMPDIR": disk}, after=False, tmp=disk)
                ended = self.fault(f"{pages} pages for the cache", env={"WARPLINK_CACHE_DIR": disk + "/c"}, after=not self.short)
                if ended.code != 0:
                    self.bad("a full cache makes the link fail", ended)
                shutil.rmtree(disk + "/c", ignore_errors=True)
                output = disk + "/o.so"
                ended = self.link(self.objects, output)
                self.count("faults injected")
                self.count("links done")
                self.judge(f"{pages} pages for the output", ended, output, self.expected)
                subprocess.call(["mount", "-o", "remount,ro", disk])
                self.fault("a read-only temporary directory", env={"TMPDIR": disk}, says=disk, must_fail=True, after=False, tmp=self.tmp)
                ended = self.fault("a read-only cache", env={"WARPLINK_CACHE_DIR": disk + "/c"}, after=False)
                if ended.code != 0:
                    self.bad("a read-only cache makes the link fail", ended)
            finally:
                subprocess.call(["umount", disk])

    def calls(self):
        """Every call of the system that warplink makes fails once."""
        library = self.path("faults.so")
        subprocess.check_call([f"{LLVM}/clang", "-shared", "-fPIC", "-O1", os.path.join(ROOT, "tools", "torture", "faults.c"), "-o", library])
        numbers = {"open": (2, 13, 24, 28), "read": (5,), "write": (28, 122), "mmap": (12,), "mkdir": (28, 30), "rename": (28, 18), "unlink": (13,), "opendir": (13,), "pipe": (24,), "spawn": (11, 12), "thread": (11,), "stat": (5, 13)}

        def one(case):
            call, error, again = case
            hit = self.slot("hit")
            step = 13 if self.short and call in ("open", "read", "stat") else 1
            nth = 1 + self.seed % step
            while nth < 3000:
                if os.path.exists(hit):
                    os.remove(hit)
                env = {"LD_PRELOAD": library, "FAULT_CALL": call, "FAULT_NTH": str(nth), "FAULT_ERRNO": str(error), "FAULT_HIT": hit, **({"FAULT_AGAIN": "1"} if again else {})}
                # What cannot be removed is left, and so it must be.
                tmp = None
                if call == "unlink" or call == "stat" and again:
                    tmp = self.directory("tmp-clean")
                    env["TMPDIR"] = self.directory("tmp-unlink")
                self.fault(f"call {nth} of {call} fails with {error} ({os.strerror(error)}){' for ever' if again else ''}", env=env, linker="/usr/bin/ld", after=not self.short, tmp=tmp)
                if not os.path.exists(hit):
                    self.count("faults injected", -1)
                    return
                nth += step

        lasting = ("open", "read", "write", "mkdir", "rename", "stat", "opendir")
        cases = [(call, error, call in lasting) for call, errors in numbers.items() for error in errors[: 1 if self.short else None]]
        if not self.short:
            cases += [(call, error, False) for call in lasting for error in numbers[call]]
        self.each(one, cases)
        shutil.rmtree(self.path("tmp-unlink"), ignore_errors=True)
