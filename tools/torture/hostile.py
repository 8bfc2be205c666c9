"""Bytes that nobody's compiler wrote."""

import concurrent.futures
import os
import random
import shutil
import subprocess

from harness import LLVM, WARPLINK, Harness


class Hostile(Harness):
    def hostile(self):
        """Bytes that nobody's compiler wrote."""
        seeds = [self.a, self.variants[0]]
        archive, thin = self.path("lib.a"), self.path("thin.a")
        subprocess.check_call([f"{LLVM}/llvm-ar", "rcs", archive, self.a, self.b])
        subprocess.check_call([f"{LLVM}/llvm-ar", "rcsT", thin, self.a, self.b])
        fatbin, images = self.path("code.fatbin"), self.path("images.bin")
        self.link(self.objects, fatbin, "--emit-fatbin-only", "--warplink-ptx=all")
        subprocess.check_call([f"{LLVM}/llvm-objcopy", f"--dump-section=.llvm.offloading={images}", self.a, self.path("stripped")])
        cubin = os.path.join(self.kept, sorted(n for n in os.listdir(self.kept) if "." not in n)[0])
        response = self.path("line.rsp")
        with open(response, "w") as file:
            file.write(f"'{self.a}' \"{self.b}\" -shared --whole-archive {archive} --no-whole-archive -u fill\n")
        cache = self.path("hostile-cache")
        self.link(self.objects, self.path("h.so"), env=self.environment(WARPLINK_CACHE_DIR=cache))
        entries = [os.path.join(d, n) for d, _, names in os.walk(cache + "/v1") for n in names if "/counts" not in d]
        seeds += [archive, thin, fatbin, images, cubin, response, self.expected]
        total = self.numbers.get("hostile", 120 if self.short else 4000)

        def one(number):
            chance = random.Random(f"{self.seed}-{number}")
            tmp = self.directory(f"tmp-h{number}")
            place = self.directory(f"hostile{number}")
            self.count("inputs tried")
            if number % 12 == 0:
                copy = os.path.join(place, "cache")
                shutil.copytree(cache, copy)
                for path in entries:
                    mutate(path.replace(cache, copy), chance)
                output = os.path.join(place, "o.so")
                ended = self.link(self.objects, output, env=self.environment(WARPLINK_CACHE_DIR=copy, TMPDIR=tmp))
                self.judge(f"cache entries, mutation {number}", ended, output, self.expected, tmp=tmp)
                if ended.code != 0:
                    self.bad("a damaged cache makes the link fail", ended)
            else:
                seed = seeds[number % len(seeds)]
                path = os.path.join(place, "m-" + os.path.basename(seed))
                shutil.copy(seed, path)
                mutate(path, chance)
                env = self.environment(TMPDIR=tmp)
                runs = [self.run([WARPLINK, "inspect", path], env=env, limit=60)]
                if seed == response:
                    runs.append(self.link([f"@{path}"], os.path.join(place, "o"), "--emit-fatbin-only", env=env, cwd=place, limit=60))
                elif seed in (self.a, archive, thin, self.variants[0], images):
                    more = [self.b] if seed in (self.a, images) else []
                    before = ["--whole-archive"] if seed.endswith(".a") else []
                    runs.append(self.link(before + [path] + more, os.path.join(place, "o"), "--emit-fatbin-only", env=env, limit=60))
                for ended in runs:
                    if "crashed, most likely in LLVM" in ended.text and os.path.basename(path) in ended.text:
                        # LLVM's readers trust bitcode in places. One error that names the object, and nothing left.
                        self.count("ends in LLVM that name the object")
                        self.no_temps(f"{path}, mutation {number}", ended, tmp)
                        continue
                    names = None if seed == response else [os.path.basename(path), "for sm_", "undefined"]
                    self.judge(f"{os.path.basename(seed)}, mutation {number}", ended, says=names, tmp=tmp)
            shutil.rmtree(place, ignore_errors=True)
            shutil.rmtree(tmp, ignore_errors=True)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(one, range(total)))


def mutate(path, chance):
    """Changes a file in one to four places, as a fuzzer would."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    for _ in range(chance.randint(1, 4)):
        if not data:
            break
        # Headers are where the meaning is.
        at = chance.randrange(min(len(data), chance.choice([64, 512, len(data), len(data)])))
        if data[:8] == b"\x7fELF\2\1\1\0" and chance.random() < 0.2:
            at = max(0, len(data) - 1 - chance.randrange(64 * 30))
        how = chance.randrange(8)
        if how == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif how == 1:
            data[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
        elif how == 2:
            data = data[:at]
        elif how == 3:
            size = chance.choice([2, 4, 8])
            data[at : at + size] = chance.choice([0, 1, len(data), 1 << 15, (1 << 31) - 1, (1 << 64) - 1, (1 << 63), 1 << 40]).to_bytes(8, "little")[:size]
        elif how == 4:
            data[at:at] = data[at : at + chance.randrange(200)]
        elif how == 5:
            del data[at : at + chance.randrange(1, 100)]
        elif how == 6:
            data[at : at + chance.randrange(1, 64)] = chance.randbytes(chance.randrange(1, 64))
        else:
            other = chance.randrange(len(data))
            data[at : at + 16] = data[other : other + 16]
    with open(path, "wb") as file:
        file.write(data)
