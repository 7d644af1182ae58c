"""Seconds from "the server answers" to "the harness knows", and from "the server died" to the verdict on disk.

    python benchmarks/reaction.py [--trials 10]

A small server stands in, because it can say to the microsecond when it began to answer and when it died. The rival is
the helper that most test suites have: every 0.5 s ask whether the process lives, then ask /health. Both see the same
server in one run. A verdict of ours includes triage, the proof that no process is left, and all reports written.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import requests

from harness import node, run, scenario
from harness.build import parse
from harness.events import Event

SERVER = """#!{python}
import os, sys, threading, time
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
def note(word):
    with open(os.environ["JOURNAL"], "a") as journal:
        journal.write(f"{{word}} {{time.monotonic()}}\\n")
time.sleep(float(os.environ["DELAY"]))
if os.environ["FATE"] == "die":
    print("ValueError: no such thing", file=sys.stderr, flush=True)
    note("died")
    os._exit(1)
port = int(sys.argv[sys.argv.index("--port") + 1])
server = HTTPServer(("127.0.0.1", port), Handler)
note("answers")
server.serve_forever()
"""
POLL = 0.5


class Bench:
    """A folder with the stand-in as a `venv:` build and a scenario that starts it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.journal = folder, folder / "journal"
        self.vllm = folder / "venv" / "bin" / "vllm"
        self.vllm.parent.mkdir(parents=True)
        (self.vllm.parent / "python").symlink_to(sys.executable)
        self.vllm.write_text(SERVER.format(python=sys.executable))
        self.vllm.chmod(0o755)
        (folder / "model").mkdir()
        (folder / "model" / "config.json").touch()
        (folder / "bench.yaml").write_text("schema: 1\nname: bench\nmodel: ./model\nchecks: {}\n")

    def set(self, fate: str, trial: int) -> None:
        # Delays that are no multiple of the rival's period, so that it is neither lucky nor unlucky.
        os.environ.update(FATE=fate, JOURNAL=str(self.journal), DELAY=str(0.6 + 0.137 * (trial % 7)))
        self.journal.unlink(missing_ok=True)

    def moment(self) -> float:
        return float(self.journal.read_text().split()[1])

    def ours(self, fate: str) -> float:
        known: list[float] = []

        def listen(event: Event) -> None:
            if event.kind == ("notice" if fate == "answer" else "verdict") and not known:
                known.append(time.monotonic())

        asked = scenario.load(self.folder / "bench.yaml")
        run.execute(asked, build=parse(f"venv:{self.folder / 'venv'}"), out=self.folder / "reports", on_event=listen)
        return known[0] - self.moment()

    def rival(self, _: str) -> float:
        port = node.free_port()
        with subprocess.Popen([self.vllm, "serve", "--port", str(port)], stderr=subprocess.DEVNULL) as server:
            while True:
                if server.poll() is not None or self._healthy(port):
                    known = time.monotonic() - self.moment()
                    server.kill()
                    return known
                time.sleep(POLL)

    @staticmethod
    def _healthy(port: int) -> bool:
        try:
            return requests.get(f"http://127.0.0.1:{port}/health", timeout=1).ok
        except requests.RequestException:
            return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    trials = parser.parse_args().trials
    with tempfile.TemporaryDirectory() as temp:
        bench = Bench(Path(temp))
        for fate, words in (("answer", "server answers → known"), ("die", "server died → verdict")):
            seconds: dict[str, list[float]] = {"ours": [], "rival": []}
            for trial in range(trials):
                for side in ("ours", "rival"):
                    bench.set(fate, trial)
                    seconds[side].append(getattr(bench, side)(fate))
            ours, rival = (statistics.median(seconds[side]) for side in ("ours", "rival"))
            worst = max(seconds["ours"])
            print(
                f"{words}: {ours * 1e3:6.1f} ms (worst {worst * 1e3:.1f}); "
                f"polling every {POLL} s: {rival * 1e3:6.1f} ms; ratio {ours / rival:.3f}"
            )


if __name__ == "__main__":
    main()
