"""Sizes and names at the limits, and beyond them."""

import os
import random
import resource
import shutil
import subprocess

from harness import LLVM, Harness


class Limits(Harness):
    def limits(self):
        """Sizes and names that nobody has, until somebody does."""
        expected = self.fatbin(self.expected)
        empty = self.path("empty.o")
        subprocess.run([f"{LLVM}/clang", "-c", "-x", "c", "-", "-o", empty], input=b"", check=True)
        names = [b"a b.o", b"a'b.o", b'a"b.o', b"a\nb.o", b"a,b.o", b"a=b.o", b"\xff\xfe.o", b"a\\b.o", b"-a.o", b"@a.o", b"a(b).o", b"a:b.o", b"$HOME.o", b"%s%n.o", b"\xe2\x80\xae.o"]
        for name in names:
            place = os.path.join(os.fsencode(self.directory("names")), b"d" + name)
            os.makedirs(place, exist_ok=True)
            path = os.path.join(place, name)
            shutil.copy(self.a, path)
            output = path + b".so"
            # The directory for temporary files, that of the cache and the output have such names as well.
            tmp = os.path.join(place, b"tmp" + name)
            os.makedirs(tmp, exist_ok=True)
            env = self.environment(TMPDIR=tmp, WARPLINK_CACHE_DIR=os.path.join(place, b"cache" + name))
            for way in ("", "-r", "kept", "@"):
                inputs = [path, os.fsencode(self.b)]
                if way == "@":
                    line = b"".join(b'"' + word.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"\n' for word in inputs)
                    with open(os.path.join(place, b"line"), "wb") as file:
                        file.write(line)
                    inputs = [b"@" + os.path.join(place, b"line")]
                options = {"-r": ["-r"], "kept": ["--save-temps"]}.get(way, [])
                ended = self.link(inputs, output, *options, env=env)
                self.count("links done")
                self.judge(f"a file named {name!r} {way}", ended, os.fsdecode(output), tmp=tmp)
                if ended.code != 0 or way != "-r" and self.fatbin(output) != expected:
                    self.bad(f"a file named {name!r} {way}: other device code", ended)
                if self.short:
                    break
        deep = self.directory("deep")
        here = os.open(deep, os.O_RDONLY)
        while len(deep) < 3900:
            os.mkdir("d" * 150, dir_fd=here)
            here, before = os.open("d" * 150, os.O_RDONLY, dir_fd=here), here
            os.close(before)
            deep += "/" + "d" * 150
        shutil.copy(self.a, deep + "/a.o")
        long = "/" + "x" * 4095
        ended = self.link([long, self.b], self.path("deep.so"))
        self.count("links done")
        self.judge("a path that is too long", ended, self.path("deep.so"), says="ile name too long", must_fail=True)
        for output in (self.path("deep.so"), deep + "/" + "o" * min(200, 4095 - len(deep) - 1)):
            ended = self.link([deep + "/a.o", self.b], output)
            self.count("links done")
            self.judge(f"a path of {len(deep)} bytes", ended, output, None)
        count = 1000 if self.short else 10000
        many = self.directory("many")
        paths = []
        for number in range(count):
            paths.append(f"{many}/{number:05}{'n' * 220}.o")
            os.link(empty, paths[-1])
        pad = "/." * ((4 << 20) // 10000 // 2 - 150)
        lines = [p.replace(many, many + pad) for p in paths]
        lines[count // 2 : count // 2] = self.objects
        response = self.path("response")
        with open(response, "w") as file:
            file.write("\n".join(lines))
        output = self.path("many.so")
        ended = self.link([f"@{response}"], output)
        self.count("links done")
        self.judge(f"{count} objects in a response file of {os.path.getsize(response)} bytes", ended, output)
        if ended.code == 0 and self.fatbin(output) != expected:
            self.bad("many objects: other device code", ended)
        shutil.rmtree(many)
        long = self.compile("long", f'__global__ void k(int *p) __asm__("{"k" * 65536}");\n__global__ void k(int *p) {{ *p = 1; }}\n')
        kernels = 100 if self.short else 2000
        source = "".join(f"__global__ void k{i}(int *p) {{ *p = {i}; }}\n" for i in range(kernels))
        for what, path in (("a name of 64 KiB", long), (f"{kernels} kernels", self.compile("kernels", source, arch="sm_90"))):
            output = self.path("limit.so")
            ended = self.link([path], output)
            self.count("links done")
            self.judge(what, ended, output)
        if not self.short:
            self.large(expected)

    def large(self, expected):
        """A long line, much bitcode, and files and images of more than 2 GB."""
        output = self.path("large.so")
        # As long as the system takes it: a quarter of the stack's limit.
        most = min(resource.getrlimit(resource.RLIMIT_STACK)[0] // 4, 6 << 20) if resource.getrlimit(resource.RLIMIT_STACK)[0] > 0 else 6 << 20
        words = [f"-L/{'l' * 200}{number}" for number in range((most - (64 << 10)) // 220)]
        ended = self.link(self.objects, output, *words)
        self.count("links done")
        self.judge(f"a line of {sum(map(len, words))} bytes", ended, output)

        modules = []
        chance = random.Random(self.seed)
        for number in range(4):
            name = self.path(f"bitcode{number}")
            with open(name + ".ll", "w") as file:
                file.write('target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"\ntarget triple = "nvptx64-nvidia-cuda"\n')
                for part in range(25):
                    data = "".join(f"\\{byte:02X}" for byte in chance.randbytes(1 << 20))
                    file.write(f'@table{number}_{part} = internal addrspace(1) constant [{1 << 20} x i8] c"{data}"\n')
                    kept = f"ptr addrspace(1) @table{number}_{part}"
                    file.write(f"define ptr @get{number}_{part}() {{ ret ptr addrspacecast ({kept} to ptr) }}\n")
                file.write(f"define ptx_kernel void @large{number}(ptr %p) {{ store i32 {number}, ptr %p\nret void }}\n")
            subprocess.check_call([f"{LLVM}/llvm-as", name + ".ll", "-o", name + ".bc"])
            os.remove(name + ".ll")
            subprocess.check_call([f"{LLVM}/llvm-offload-binary", "-o", name + ".bin", f"--image=file={name}.bc,triple=nvptx64-nvidia-cuda,arch=sm_90,kind=cuda"])
            subprocess.run([f"{LLVM}/clang", "-c", "-x", "c", "-", "-o", name + ".o", "-Xclang", f"-fembed-offload-object={name}.bin"], input=b"", check=True)
            modules.append(name + ".o")
        size = sum(os.path.getsize(name) for name in modules)
        ended = self.link(modules, output)
        self.count("links done")
        self.judge(f"{size} bytes of bitcode", ended, output)
        for name in modules:
            os.remove(name)

        sparse = self.path("sparse.o")
        shutil.copy(self.a, sparse)
        os.truncate(sparse, 3 << 30)
        ended = self.link([sparse, self.b], output, linker="/usr/bin/ld")
        self.count("links done")
        self.judge("an object of 3 GB", ended, output)
        if ended.code == 0 and self.fatbin(output) != expected:
            self.bad("an object of 3 GB: other device code", ended)
        os.remove(sparse)

        with open("/proc/meminfo") as file:
            available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
        for compress in ("zstd", "none"):
            if available < (14 << 20):
                print("an image of more than 2 GB is left out: it takes 14 GB of memory")
                break
            ended = self.link([self.variants[0]], output, f"--warplink-compress={compress}", env=self.environment(FAULT="huge", FAULT_TOOL="ptxas"), limit=900)
            self.count("links done")
            self.judge(f"images of 2.2 GB, compressed by {compress}", ended, output)
            print(f"limits: two images of 2.2 GB, {compress}: ended with {ended.code}, {ended.text.strip()[:300]}")
