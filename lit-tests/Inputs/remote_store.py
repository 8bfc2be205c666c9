#!/usr/bin/env python3
"""remote_store.py KIND COMMAND...: starts a store on the loopback interface, runs the command with $STORE as its URL, ends the store.

KIND: redis (redis-server, with a password), nginx (as Bazel's documentation sets it up), dav (nginx that makes no directories by itself), s3 (stands
in for a bucket and checks the signature of every request by itself). The directory of the store is ./store; it must not be there yet.
"""

import hashlib
import hmac
import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

NGINX = """
daemon off; worker_processes 1; pid {here}/pid; error_log {here}/error.log; user root;
events {{ worker_connections 64; }}
http {{
  access_log {here}/access.log;
  client_body_temp_path {here}/body; proxy_temp_path {here}/proxy; fastcgi_temp_path {here}/fastcgi; uwsgi_temp_path {here}/uwsgi;
  scgi_temp_path {here}/scgi;
  client_max_body_size 1G;
  server {{
    listen 127.0.0.1:{port};
    root {here}/files;
    location / {{ dav_methods PUT DELETE MKCOL; create_full_put_path {create}; }}
  }}
}}
"""
ID, SECRET, REGION = "AKIDEXAMPLE", "a/secret+of/forty", "test-1"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, process):
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            sys.exit(f"remote_store.py: the server ended with {process.returncode}")
        time.sleep(0.1)
    sys.exit("remote_store.py: the server does not come up")


class Bucket(http.server.BaseHTTPRequestHandler):
    """One bucket in memory."""

    values = {}
    protocol_version = "HTTP/1.1"

    def signature(self, body):
        fields = dict(part.split("=", 1) for part in self.headers["Authorization"].split(" ", 1)[1].split(","))
        date = self.headers["x-amz-date"]
        scope = f"{date[:8]}/{REGION}/s3/aws4_request"
        names = fields["SignedHeaders"].split(";")
        canonical = "\n".join([self.command, self.path, "", *(f"{n}:{self.headers[n].strip()}" for n in names), "", ";".join(names),
                               hashlib.sha256(body).hexdigest()])
        text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = ("AWS4" + SECRET).encode()
        for part in [*scope.split("/"), text]:
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return fields["Credential"] == f"{ID}/{scope}" and fields["Signature"] == key.hex() and "host" in names

    def handle_one(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer, status = b"", 200
        if not self.signature(body):
            status = 403
        elif self.command == "PUT":
            self.values[self.path] = body
        elif self.path in self.values:
            answer = self.values[self.path]
        else:
            status = 404
        with open("store/access.log", "a") as log:
            print(self.command, self.path, status, file=log)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = handle_one

    def log_message(self, *_):
        pass


def main():
    kind, command = sys.argv[1], sys.argv[2:]
    os.makedirs("store/files")
    here, port, process = os.path.abspath("store"), free_port(), None
    if kind == "redis":
        process = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", here, "--save", "", "--requirepass", SECRET],
                                   stdout=subprocess.DEVNULL)
        url = f"redis://:a%2Fsecret%2Bof%2Fforty@127.0.0.1:{port}/1"
    elif kind in ("nginx", "dav"):
        with open("store/nginx.conf", "w") as file:
            text = NGINX.format(here=here, port=port, create="on" if kind == "nginx" else "off")
            file.write(text if os.getuid() == 0 else text.replace("user root;", ""))
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        process = subprocess.Popen([nginx, "-p", here, "-c", f"{here}/nginx.conf"], stderr=subprocess.DEVNULL)
        url = f"http://127.0.0.1:{port}" + ("" if kind == "dav" else "/warplink")
    else:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Bucket)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"s3://bucket/some%20prefix?endpoint=http://127.0.0.1:{port}&region={REGION}"
    try:
        if process:
            wait_for(port, process)
        keys = {"AWS_ACCESS_KEY_ID": ID, "AWS_SECRET_ACCESS_KEY": SECRET} if kind == "s3" else {}
        return subprocess.run(command, env={**os.environ, **keys, "STORE": url}).returncode
    finally:
        if process:
            process.terminate()
            process.wait()


sys.exit(main())
