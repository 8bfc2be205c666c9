#!/usr/bin/env python3
"""jobserver.py pipe|fifo|other TOKENS COMMAND...: runs the command as a recipe of a make that has so many tokens to give.

Prints how many tokens were out at once at most (looked at every fraction of a millisecond), how many are back at the end and the exit
status. `other`: as in a recipe without `+`, the numbers in MAKEFLAGS are those of files that are not the jobserver's.
"""

import array
import fcntl
import os
import subprocess
import sys
import tempfile
import termios
import threading
import time

kind, count, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
scratch = tempfile.mkdtemp()
if kind == "fifo":
    name = os.path.join(scratch, "jobs")
    os.mkfifo(name)
    read = write = os.open(name, os.O_RDWR)
    auth, passed = f"fifo:{name}", ()
elif kind == "pipe":
    read, write = os.pipe()
    auth, passed = f"{read},{write}", (read, write)
else:
    name = os.path.join(scratch, "file")
    with open(name, "w") as file:
        file.write("0123456789")
    read, write = os.open(name, os.O_RDONLY), os.open(name, os.O_WRONLY)
    auth, passed = f"{read},{write}", (read, write)
if kind != "other":
    os.write(write, b"+" * count)


def available():
    waiting = array.array("i", [0])
    fcntl.ioctl(read, termios.FIONREAD, waiting)
    return waiting[0]


lowest, ended = count, threading.Event()


def watch():
    global lowest
    while not ended.is_set():
        lowest = min(lowest, available())
        time.sleep(0.0002)


if kind != "other":
    threading.Thread(target=watch, daemon=True).start()
environment = dict(os.environ, MAKEFLAGS=f" -j{count + 1} --jobserver-auth={auth}")
try:
    status = subprocess.run(command, env=environment, pass_fds=passed, timeout=120).returncode
except subprocess.TimeoutExpired:
    status = "timeout"
ended.set()
if kind == "other":
    with open(name) as file:
        print(f"file: {file.read()}, exit {status}")
else:
    print(f"out: {count - lowest}, back: {available()} of {count}, exit {status}")
