"""A stand-in for a server that does what its script says: `standin.py '[["say", "hello"], ["serve", 8000]]'`."""

import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path

kept = []  # objects that must live as long as the process


def say(text, *, stream=1):
    os.write(stream, text.encode() + b"\n")


def raw(text, stream=1):
    """Bytes written as \\u0000 to \\u00ff."""
    data = text.encode("latin-1")
    while data:
        data = data[os.write(stream, data) :]


def fork(steps):
    if os.fork() == 0:
        run(steps)
        os._exit(0)


def daemon(steps):
    """Double fork and a session of its own: no parent, no group, nothing that ties it to us."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            run(steps)
        os._exit(0)


def ignore_term(times):
    def handle(*_):
        nonlocal times
        times -= 1
        say(f"SIGTERM ignored, {times} to go")
        if times < 0:
            os._exit(0)

    signal.signal(signal.SIGTERM, handle)


def ignore(*names):
    for name in names:
        signal.signal(getattr(signal, name), signal.SIG_IGN)


class Handler(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self):
        body = b'{"data": [{"id": "standin"}]}' if self.path == "/v1/models" else b""
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(port, status=200):
    server = ThreadingHTTPServer(("127.0.0.1", port), type("H", (Handler,), {"status": status}))
    threading.Thread(target=server.serve_forever, daemon=True).start()


def short(port, name, longest):
    """A model that takes so many tokens in all, one a character, and refuses more as vLLM does."""
    name = name.strip("'")

    class Short(Handler):
        def do_GET(self):
            self.reply(200, {"data": [{"id": name, "max_model_len": longest}]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = body.get("prompt") or "".join(message["content"] for message in body["messages"])
            if self.path == "/tokenize":
                tokens = [ord(letter) for letter in prompt]
                self.reply(200, {"count": len(tokens), "tokens": tokens})
            elif len(prompt) + body["max_tokens"] > longest:
                self.reply(400, {"error": {"message": f"maximum context length is {longest} tokens"}})
            else:
                self.reply(501, {"error": {"message": "no model"}})

        def reply(self, status, value):
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", port), Short)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def deaf(port):
    """Accepts (in the kernel) and never answers."""
    kept.append(socket.create_server(("127.0.0.1", port)))


def burn(seconds, share=1.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        busy = time.monotonic() + 0.05 * share
        while time.monotonic() < busy:
            pass
        time.sleep(0.05 * (1 - share))


def flood(megabytes, line=0):
    block = (b"x" * line + b"\n") * max(1, (1 << 20) // (line + 1)) if line else b"x" * (1 << 20)
    for _ in range(megabytes):
        raw(block.decode(), 1)


def shm(name, *close):
    memory = shared_memory.SharedMemory(name=name, create=True, size=4096)
    resource_tracker.unregister(memory._name, "shared_memory")
    kept.append(memory)
    if close:
        memory.close()


def semaphore(name):
    """As glibc's sem_open does it."""
    first, real = Path(f"/dev/shm/{name}.first"), Path(f"/dev/shm/{name}")
    with first.open("w+b") as file:
        file.write(b"0" * 32)
        file.flush()
        kept.append(mmap.mmap(file.fileno(), 32))
    os.link(first, real)
    first.unlink()


def temp():
    folder = Path(os.environ["TMPDIR"])
    (folder / "a").mkdir()
    (folder / "a" / "file").write_text("12345")
    socket.socket(socket.AF_UNIX).bind(str(folder / "0b9d5ad4-9d1c-4b3c-9c60-3a35f7f1c36a"))


def program(*argv):
    kept.append(subprocess.Popen(argv))


def meet(folder, count):
    """Go on when `count` of us are here."""
    Path(folder).mkdir(exist_ok=True)
    (Path(folder) / str(os.getpid())).touch()
    while len(list(Path(folder).iterdir())) < count:
        time.sleep(0.02)


def once(path):
    """The first of us stays here."""
    try:
        Path(path).touch(exist_ok=False)
    except FileExistsError:
        return
    time.sleep(3600)


STEPS = {
    "say": say,
    "err": lambda text: say(text, stream=2),
    "raw": raw,
    "rawerr": lambda text: raw(text, 2),
    "env": lambda name: say(os.environ.get(name, "(not set)")),
    "cwd": lambda: say(str(Path.cwd())),
    "pid": lambda label: say(f"{label} {os.getpid()}"),
    "sleep": time.sleep,
    "wait": lambda: time.sleep(3600),
    "burn": burn,
    "fork": fork,
    "daemon": daemon,
    "ignore_term": ignore_term,
    "ignore": ignore,
    "serve": serve,
    "short": short,
    "deaf": deaf,
    "flood": flood,
    "shm": shm,
    "semaphore": semaphore,
    "temp": temp,
    "program": program,
    "meet": meet,
    "once": once,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "exit": os._exit,
    "die": lambda name: os.kill(os.getpid(), getattr(signal, name)),
}


def run(steps):
    for name, *words in steps:
        STEPS[name](*words)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
