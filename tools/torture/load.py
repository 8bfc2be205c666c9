"""Many links: at the same time, one after the other, ended by signals, in different surroundings."""

import concurrent.futures
import filecmp
import os
import random
import resource
import shutil
import signal
import subprocess
import time

from harness import LIMIT, WARPLINK, Harness

# Files that the cache knows by content: ptxas, nvlink, warplink itself, and the header that says the toolkit's release.
TOOLS = 4
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)


def files_below(directory, without=None):
    """How many files lie there, but for those below folders named `without`."""
    return sum(len(names) for place, _, names in os.walk(directory) if without not in place.split(os.sep))


class Load(Harness):
    def signals(self):
        """Links are ended by a signal at a random moment; nothing is left, and the next link is right."""
        total = self.numbers.get("signals", 16 if self.short else 500)
        # Stand-ins that take their time, so that there are moments to be hit in every phase.
        ways = [("", ""), ("ptxas", "slow"), ("ld", "slow"), ("ld", "slow")]
        times = {}
        expected = {(): self.expected, ("-r",): self.good(self.objects, "good.o", "-r")}
        for way in sorted(set(ways)) * (1 if self.short else 3):
            started = time.monotonic()
            self.link(self.objects, self.path("measure.so"), linker=self.ld, env=self.environment(FAULT=way[1], FAULT_TOOL=way[0], WARPLINK_CACHE_DIR=self.path("measure")))
            times[way] = min(times.get(way, LIMIT), time.monotonic() - started)
            shutil.rmtree(self.path("measure"), ignore_errors=True)

        def one(number):
            chance = random.Random(f"{self.seed}-{number}")
            which, whole = chance.choice(SIGNALS), chance.random() < 0.3
            tool, fault = way = chance.choice(ways)
            moment = chance.random() * times[way] * 0.8
            cache, tmp, output = self.slot("cache"), self.directory(os.path.basename(self.slot("tmp"))), self.slot("signal.so")
            what = f"link {number}, {which.name} after {moment * 1000:.0f} ms{' to the whole group' if whole else ''}, {tool} {fault}"
            env = self.environment(WARPLINK_CACHE_DIR=cache, TMPDIR=tmp, FAULT=fault, FAULT_TOOL=tool)
            options = ("-r",) if chance.random() < 0.2 else ()
            ended = self.link(self.objects, output, *options, linker=self.ld, env=env, stop=(moment, which, whole))
            self.count("links ended by signals" if ended.code != 0 else "links done before their signal")
            self.count(which.name)
            killed = which == signal.SIGKILL
            if ended.hung:
                self.bad(f"{what}: hangs", ended)
            elif ended.code not in (0, -which) and not (whole and ended.code > 0):
                self.bad(f"{what}: ends otherwise", ended)
            if "panicked" in ended.text or "internal error" in ended.text:
                self.bad(f"{what}: internal error", ended)
            if ended.left and not killed:
                self.bad(f"{what}: leaves {ended.left} running", ended)
            # One that was complete when the signal came is no half of one.
            if os.path.lexists(output) and (ended.code == 0 or not killed) and not filecmp.cmp(output, expected[options], shallow=False):
                self.bad(f"{what}: other bytes than those of an undisturbed link, {os.path.getsize(output)} of them", ended)
            if not killed:
                self.no_temps(what, ended, tmp)
                self.no_temps(f"{what}: in the cache", ended, cache + "/v1/tmp")
            else:
                shutil.rmtree(cache + "/v1/tmp", ignore_errors=True)
            shutil.rmtree(tmp)
            self.directory(os.path.basename(tmp))
            again = self.link(self.objects, output, env=self.environment(WARPLINK_CACHE_DIR=cache, TMPDIR=tmp))
            self.judge(f"the link after {what}", again, output, self.expected, tmp=tmp)
            self.count("links done", 2)
            os.remove(output)
            if chance.random() < 0.7:
                shutil.rmtree(cache)

        self.each(one, range(total), workers=3)
        # A child that does not listen is killed.
        for tool in ("ptxas", "ld"):
            output = self.path("stubborn.so")
            env = self.environment(FAULT="stubborn", FAULT_TOOL=tool)
            ended = self.link(self.objects, output, linker=self.ld, env=env, stop=(max(times.values()) * 3, signal.SIGTERM, False), limit=60)
            self.count("links done")
            if ended.code != -signal.SIGTERM or ended.left or os.path.exists(output):
                self.bad(f"{tool} ignores SIGTERM: ended with {ended.code}, left {ended.left}", ended)
            self.no_temps(f"{tool} ignores SIGTERM", ended, self.tmp)
            if self.short:
                break

    def load(self):
        """Links at the same time over one cache directory, some killed, some of them clearing it."""
        workers, rounds = (12, 2) if self.short else (64, 12)
        cache, killed_tmp = self.path("cache"), self.directory("tmp-killed")
        sets = [self.objects] + [[self.a, self.b, v] for v in self.variants[:3]]
        expected = [self.good(inputs, f"set{i}.so") for i, inputs in enumerate(sets)]

        def work(number):
            chance = random.Random(self.seed * 1000 + number)
            output = self.path(f"load{number}.so")
            for _ in range(rounds):
                which = chance.randrange(len(sets))
                dice = chance.random()
                if dice < 0.06:
                    self.count("cache clears")
                    ended = self.run([WARPLINK, "cache", "clear", f"--dir={cache}"], env=self.environment(WARPLINK_CACHE_DIR=cache))
                    if ended.code != 0:
                        self.bad("cache clear under load fails", ended)
                    continue
                stop, env = None, self.environment(WARPLINK_CACHE_DIR=cache)
                if dice < 0.4:
                    number_of = chance.choice(SIGNALS)
                    stop = (chance.random() ** 2 * 2.5, number_of, number_of == signal.SIGKILL or chance.random() < 0.5)
                    if number_of == signal.SIGKILL:
                        env["TMPDIR"] = killed_tmp
                if os.path.exists(output):
                    os.remove(output)
                ended = self.link(sets[which], output, stop=stop, env=env)
                self.count("links done")
                if stop and ended.code != 0:
                    self.count(f"killed by {stop[1].name}")
                    if ended.code != -stop[1] and not (stop[2] and ended.code > 0):
                        self.bad(f"a link killed by {stop[1].name} ends otherwise", ended)
                    # One that was complete when the signal came is no half of one.
                    if stop[1] != signal.SIGKILL and os.path.exists(output) and not filecmp.cmp(output, expected[which], shallow=False):
                        self.bad(f"part of an output after {stop[1].name}", ended)
                elif ended.code != 0:
                    self.bad("a link under load fails", ended)
                elif not filecmp.cmp(output, expected[which], shallow=False):
                    self.bad("wrong bytes under load", ended)
                elif "warning" in ended.text:
                    self.bad("a warning under load", ended)

        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            list(pool.map(work, range(workers)))
        self.no_temps("load", None, self.tmp)
        for i, inputs in enumerate(sets):
            output = self.path("after.so")
            ended = self.link(inputs, output, env=self.environment(WARPLINK_CACHE_DIR=cache))
            self.count("links done")
            self.judge("the link after the load", ended, output, expected[i])
            os.remove(output)
        shutil.rmtree(killed_tmp)

    def loop(self):
        """Links one after the other: files and memory do not grow, and every output is that of a link without a cache."""
        total = self.numbers.get("loop", 40 if self.short else 10000)
        cache = self.path("loop-cache")
        expected = [self.good([v], f"loop{i}.so") for i, v in enumerate(self.variants)]
        files, peaks, round_of = [], [], 200 if total >= 1000 else 20
        for number in range(total):
            which = number % len(self.variants)
            output = self.path("loop.so")
            env = self.environment(WARPLINK_CACHE_DIR=cache)
            command = [f"{os.environ['WARPLINK_BIN_DIR']}/clang-linker-wrapper", "--linker-path=/usr/bin/ld", "-shared", self.variants[which], "-o", output]
            child = subprocess.Popen(command, env=env, cwd=self.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            text = child.stdout.read()
            _, status, usage = os.wait4(child.pid, 0)
            child.stdout.close()
            child.returncode = os.waitstatus_to_exitcode(status)
            peaks.append(usage.ru_maxrss)
            self.count("links done")
            if child.returncode != 0 or text or not filecmp.cmp(output, expected[which], shallow=False):
                self.bad(f"link {number} of the loop: ended with {child.returncode}: {text!r}, or has other bytes")
            if number % round_of == round_of - 1:
                self.no_temps(f"link {number} of the loop", None, self.tmp)
                # The identity of a tool is kept from when its file has not changed for a while: that is at most one for each.
                files.append(files_below(cache, without="tool"))
                if files_below(os.path.join(cache, "v1", "tool")) > TOOLS:
                    self.bad(f"more identities than tools in the cache: {os.listdir(os.path.join(cache, 'v1', 'tool'))}")
                if len(files) % 5 == 4:
                    self.run([WARPLINK, "cache", "clear", f"--dir={cache}"], env=env)
                    if files_below(cache + "/v1") or os.listdir(cache) != ["CACHEDIR.TAG"]:
                        self.bad(f"a cleared cache holds {os.listdir(cache)}")
        if len(set(files)) != 1:
            self.bad(f"the number of files in the cache grows: {files}")
        part = max(len(peaks) // 10, 1)
        first, last = (sorted(some)[len(some) // 2] for some in (peaks[:part], peaks[-part:]))
        print(f"loop: {total} links, peak memory {first} KB at first and {last} KB at last (medians of a tenth), {files[-1]} files in the cache")
        if last > first * 1.1 + 1000:
            self.bad(f"memory grows from {first} to {last} KB")

    def same(self):
        """The same bytes, whatever surrounds the link."""
        others = subprocess.call(["unshare", "-u", "true"], stderr=subprocess.DEVNULL) == 0
        if not others:
            print("host names are left out: unshare -u is not allowed")
        for partition in ("never", "always"):
            expected = None
            for number, (jobs, state) in enumerate((j, s) for j in ((1, 8) if self.short else (1, 2, 8)) for s in ("off", "cold", "warm")):
                place = self.directory(f"place{'x' * number}/{number}")
                for path in self.objects:
                    shutil.copy(path, place)
                env = self.environment(HOSTNAME=f"host{number}", TMPDIR=self.directory(f"tmp{number}"), LC_ALL=("C", "tr_TR.UTF-8", "de_DE.UTF-8")[number % 3], TZ=("UTC", "Asia/Tokyo")[number % 2], USER=f"u{number}")
                if state != "off":
                    env.pop("WARPLINK_NO_CACHE")
                    env["WARPLINK_CACHE_DIR"] = self.path(f"same-{partition}-{jobs}")
                output = os.path.join(place, "o.so")
                command = ["sh", "-c", 'umask $1; [ -z "$2" ] || hostname $2; shift 2; exec "$@"', "sh", ("022", "077", "000")[number % 3], f"host{number}" if others else ""]
                command = (["unshare", "-u"] if others else []) + command
                command += [f"{os.environ['WARPLINK_BIN_DIR']}/clang-linker-wrapper", "--linker-path=/usr/bin/ld", "-shared", "a.o", "b.o", "-o", "o.so"]
                ended = self.run(command + [f"--warplink-partition={partition}", f"--warplink-jobs={jobs}", "--warplink-ptx=all"], env=env, cwd=place)
                self.count("links done")
                self.count("same bytes compared")
                if ended.code == 0:
                    expected = expected or shutil.copy(output, self.path(f"same-{partition}.so"))
                self.judge(f"partition {partition}, {jobs} jobs, cache {state}", ended, output, expected, tmp=env["TMPDIR"])
