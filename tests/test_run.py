"""`execute` around the stand-in: what a real server cannot do on demand. Real faults are in tests/real."""

import json
import os
import re
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from standin_build import HEALTHY, make_build, make_scenario

from harness import conduct, run, scenario, triage, verdict, weights
from harness.client.answers import BadAnswer, RequestTimedOut, ServerGone
from harness.conduct import Finding
from harness.events import Event
from harness.record import Teardown, load
from harness.scenario import Expect

CLEAN = Teardown(seconds=0.1, steps=())
TRACEBACK = [
    ["err", "(EngineCore pid=7) ERROR 11-30 21:56:37 [core.py:1374] Traceback (most recent call last):"],
    ["err", '(EngineCore pid=7) ERROR 11-30 21:56:37 [core.py:1374]   File "/opt/vllm/v1/core.py", line 3, in boom'],
    ["err", "(EngineCore pid=7) ERROR 11-30 21:56:37 [core.py:1374]     raise KeyError('x')"],
    ["err", "(EngineCore pid=7) ERROR 11-30 21:56:37 [core.py:1374] KeyError: 'nobody set it'"],
]


@pytest.fixture
def go(tmp_path):
    build = make_build(tmp_path)

    def execute(steps, *lines, on_event=lambda _: None, **options):
        asked = scenario.load(make_scenario(tmp_path, steps, *lines))
        done = run.execute(asked, build=build, out=tmp_path / "reports", on_event=on_event, **options)
        assert load(tmp_path / "reports" / done.id) == done
        assert done.state == "finished"
        return done

    return execute


def test_healthy(go, tmp_path):
    events: list[Event] = []
    done = go(HEALTHY, on_event=events.append)
    assert (done.verdict, done.blame, done.exit, done.signature) == ("PASS", None, None, None)
    assert re.fullmatch(r"ready after \d+\.\d s, 0 checks passed", done.reason)
    # A log without one known line still has the road from spawn to ready.
    assert [(p.label, p.completed) for p in done.timeline.phases] == [
        ("spawn#1", True), ("ready#1", True), ("checks#1", True), ("stop#1", True),
    ]  # fmt: skip
    assert done.teardown.survivors == ()
    assert list(done.steps) == ["environment", "weights", "lease"]
    assert done.reproduce.startswith("harness run ")
    assert {"server.log", "server.times", "junit.xml", "summary.md", "packages.lock"} <= set(done.artifacts)
    assert [e.kind for e in events][:5] == ["run", "step", "step", "step", "spawned"]
    assert events[-1] == Event(kind="verdict", text=f"PASS stand-in: {done.reason}", ok=True)


def test_exit_0_while_starting_is_a_failure(go):
    done = go([["say", "bye"], ["exit", 0]])
    assert (done.verdict, done.exit) == ("FAIL", "exit 0")
    assert done.signature.kind == "other"


def test_the_root_error_is_named(go):
    done = go([*TRACEBACK, ["exit", 1]])
    assert done.verdict == "FAIL"
    assert done.signature.title == "KeyError: 'nobody set it' (boom)"
    assert done.signature.process == "EngineCore"
    assert done.evidence == ((1, 4),)


def test_a_native_crash_is_the_products_and_a_kill_is_not(go):
    assert (crash := go([["die", "SIGSEGV"]])).verdict == "FAIL"
    assert crash.exit == "SIGSEGV"
    assert (killed := go([["die", "SIGKILL"]])).verdict == "ERROR"
    assert killed.signature.kind == "killed_signal"


def test_not_ready_in_time_is_a_hang(go):
    done = go([["burn", 60]], "budgets: {startup: 1s, silence: 30s}")
    assert (done.verdict, done.signature.kind, done.signature.phase) == ("FAIL", "hang", "spawn#1")
    assert any(name.startswith("stacks/") for name in done.artifacts)


@pytest.mark.parametrize(
    ("error", "fatal"),
    [
        (BadAnswer("POST /x", "broke off: EngineCore died", request=1, status=200, body=""), True),
        (BadAnswer("POST /x", "answered HTTP 500", request=1, status=500, body=""), True),
        (BadAnswer("POST /x", "answered HTTP 400", request=1, status=400, body=""), False),
        (ServerGone("POST /x", "was cut off", request=1), True),
        (RequestTimedOut("POST /x", "had no answer", request=1), False),
    ],
)
def test_after_which_answers_a_server_may_be_dying(error, fatal):
    assert conduct._may_be_fatal(error) is fatal


def test_a_port_that_is_somebody_elses_is_an_error_with_its_record(go):
    """The record keeps how far it came, and that the server was taken down."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with serving_foreign(port):
        done = go([["say", "up"], ["wait"]], port=port)
    assert (done.verdict, done.blame) == ("ERROR", "node")
    assert done.reason.startswith(f"another server answers on port {port}: process {os.getpid()} ")
    assert done.teardown.survivors == ()
    assert [phase.name for phase in done.timeline.phases] == ["spawn"]


@contextmanager
def serving_foreign(port):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def test_resolved_revisions_are_recorded(go, monkeypatch):
    got = (weights.Fetched(model="org/name", revision="abc123"), weights.Fetched(model="/local", revision=None))
    monkeypatch.setattr(weights, "fetch", lambda *_, **__: got)
    assert go(HEALTHY).revisions == {"org/name": "abc123"}


def test_a_request_without_an_answer_is_a_hang_in_the_checks(go):
    """The prompt is taken and nothing comes back: its own phase, as every other signature has it."""
    steps = [["serve", "PORT"], ["sleep", 1], ["stop"]]
    done = go(steps, "checks: {warmup: {}}", "budgets: {request: 3s}", on_event=wait_until_stopped)
    assert (done.verdict, done.signature.kind, done.signature.phase) == ("FAIL", "hang", "checks#1")


def wait_until_stopped(event):
    if event.kind == "phase" and event.text == "check warmup":
        time.sleep(2)  # the stand-in stops itself one second after it listens


def test_a_wrong_answer_fails_the_check_that_asked(go):
    """The stand-in knows no completions: HTTP 501 is the product's failure, named with its request."""
    done = go(HEALTHY, "checks: {warmup: {}, perplexity: {corpus: smoke_en, max: 9}}")
    assert done.verdict == "FAIL"
    assert done.signature.kind == "check_failed"
    assert [check.outcome for check in done.checks] == ["fail", "not_tested"]
    assert done.checks[0].request == 1
    assert "501" in done.checks[0].message


def test_the_random_name_that_a_server_is_given_is_no_part_of_a_failures_identity(go):
    steps = [*TRACEBACK[:-1], ["err", f"{TRACEBACK[-1][1].partition('KeyError')[0]}KeyError: 'NAME'"], ["exit", 1]]
    for first, second, title in (
        (
            go(HEALTHY, "checks: {determinism: {}}"),
            go(HEALTHY, "checks: {determinism: {}}"),
            "check determinism: GET <path> does not list harness-<hash>, but standin",
        ),
        (go(steps), go(steps), "KeyError: 'harness-<hash>' (boom)"),
    ):
        assert first.argv[-1] != second.argv[-1], "the name is the last word"
        assert first.signature.title == title
        assert first.signature.message.count(first.argv[-1]) == 1
        assert first.signature.id == second.signature.id


def test_a_question_before_the_first_request_is_no_request_of_number_0(go):
    done = go(HEALTHY, "checks: {load: {}}")
    assert done.reason.startswith("check load: GET /v1/models does not list ")


SHORT = [["short", "PORT", "'NAME'", 64], ["wait"]]


@pytest.mark.parametrize(
    ("checks", "said", "fix"),
    [
        ("warmup: {prompt: hello, max-tokens: 60}",
         "check warmup: a prompt of 5 tokens and an answer of 60 do not fit into the 64 tokens that the model takes",
         "lower `checks.warmup.max-tokens` to 59 at most, or raise its `max-model-len` to 65"),
        (f"warmup: {{prompt: {'x' * 64}, max-tokens: 1}}",
         "check warmup: a prompt of 64 tokens and an answer of 1 do not fit into the 64 tokens",
         "shorten `checks.warmup.prompt`, or raise its `max-model-len` to 65"),
        ("log_hygiene: {max-tokens: 100000}", "check log_hygiene: a prompt of 32 tokens and an answer of 100000 do not",
         "lower `checks.log_hygiene.max-tokens` to 32 at most, or raise its `max-model-len` to 100032"),
        ("chat: {tools: false, json-schema: false}", "check chat: a prompt of 69 tokens and an answer of 1024 do not",
         "take the check `chat` out, or raise its `max-model-len` to 1093"),
        ("load: {max-tokens: 64}", "check load: 64 tokens to generate leave no room", "lower `checks.load."),
        ("determinism: {}", "the prompts of `determinism` and an answer have up to 128 tokens, the model takes 64", ""),
        ("spec_decode: {}", "`spec_decode` asks for 64 tokens after a prompt of at least 48, the model takes 64", ""),
        ("same_output: {against: {build: 0.30.0}, max-tokens: 64}", "5 of 5 prompts of `same_output` do not fit", ""),
        ("prefix_cache: {block-tokens: 64}", "no prompt fits that could reuse a cache block", ""),
    ],
)  # fmt: skip
def test_what_the_model_has_no_room_for_is_the_scenarios_fault(go, monkeypatch, checks, said, fix):
    monkeypatch.setattr(run, "_others", lambda *_, **__: {})
    done = go(SHORT, f"checks: {{{checks}}}", "serve: {speculative-config: {method: ngram}}")
    assert (done.verdict, done.blame, done.signature) == ("ERROR", "scenario", None), done.reason
    assert done.reason.startswith(said)
    assert done.fix.startswith(fix)
    assert done.fix


def test_a_refusal_of_what_would_fit_is_the_products_fault(go):
    done = go([["serve", "PORT"], ["wait"]], "checks: {warmup: {max-tokens: 100000}}")
    assert (done.verdict, done.blame) == ("FAIL", "product"), "nobody knows how much it takes"
    done = go(SHORT, "checks: {warmup: {prompt: hello, max-tokens: 59}}")
    assert (done.verdict, done.checks[0].message.partition(";")[0]) == (
        "FAIL",
        "check warmup, request 1: POST /v1/completions answered HTTP 501: no model",
    )


def test_unmet_needs_are_an_error_or_a_skip(go, tmp_path):
    for skip, expected in ((False, "ERROR"), (True, "SKIP")):
        asked = scenario.load(
            make_scenario(tmp_path, HEALTHY, "serve: {tensor-parallel-size: 64}", "needs: {gpus: 64}")
        )
        done = run.execute(asked, build=make_build(tmp_path / str(skip)), out=tmp_path / "out", skip_unmet=skip)
        assert (done.verdict, done.blame) == (expected, "scenario")
        assert done.reason.startswith("needs 64 GPUs, this node has ")
        assert done.argv == ()


def test_a_build_that_cannot_be_started_is_an_error(tmp_path):
    build = make_build(tmp_path)
    (tmp_path / "venv" / "bin" / "vllm").write_text("#!/no/such/interpreter\n")
    asked = scenario.load(make_scenario(tmp_path, HEALTHY))
    done = run.execute(asked, build=build, out=tmp_path / "reports")
    assert done.verdict == "ERROR"
    assert done.fix


def test_a_missing_variable_names_itself(tmp_path, monkeypatch):
    monkeypatch.delenv("NOT_THERE", raising=False)
    file = make_scenario(tmp_path, HEALTHY)
    file.write_text(file.read_text().replace("env: {", "env: {X: {from: NOT_THERE}, "))
    done = run.execute(scenario.load(file), build=make_build(tmp_path), out=tmp_path / "reports")
    assert (done.verdict, done.blame) == ("ERROR", "scenario")
    assert "env.X takes the variable NOT_THERE, which is not set here" in done.reason


def test_no_secret_is_written(go, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_canary_5up3r")
    monkeypatch.setenv("PLAIN_NAME", "from-canary-77")
    steps = [["env", "HF_TOKEN"], ["env", "X"], ["err", "url https://user:pw-canary@host/"], *TRACEBACK]
    steps[-1] = ["err", "(EngineCore pid=7) ERROR 11-30 21:56:37 [core.py:1374] KeyError: 'hf_canary_5up3r'"]
    file = make_scenario(tmp_path, [*steps, ["exit", 1]])
    file.write_text(file.read_text().replace("env: {", "env: {X: {from: PLAIN_NAME}, "))
    done = run.execute(scenario.load(file), build=make_build(tmp_path / "b"), out=tmp_path / "reports")
    assert done.verdict == "FAIL"
    written = b"".join(p.read_bytes() for p in (tmp_path / "reports").rglob("*") if p.is_file())
    assert b"canary" not in written
    assert b"KeyError: '***'" in written


def test_a_reproduction_passes_when_it_fails_as_foretold(go):
    title = "KeyError: 'nobody set it' (boom)"
    assert go([*TRACEBACK, ["exit", 1]], f'expect: {{signature: "{title}"}}').verdict == "PASS"
    wrong = go([["say", "x"], ["exit", 3]], f'expect: {{signature: "{title}"}}')
    assert (wrong.verdict, wrong.blame) == ("FAIL", "product")
    assert wrong.reason.startswith(f"expected signature {title}, got ")
    healthy = go(HEALTHY, f'expect: {{signature: "{title}"}}')
    assert healthy.reason.startswith(f"expected signature {title}, but nothing failed")


def test_a_reproduction_is_named_by_id_prefix_title_or_record(go, tmp_path):
    first = go([*TRACEBACK, ["exit", 1]])
    record = f"@./reports/{first.id}/run.json"  # as seen from the scenario
    for word in (first.signature.id, first.signature.id[:5], first.signature.title, record):
        done = go([*TRACEBACK, ["exit", 1]], f'expect: {{signature: "{word}"}}')
        assert (done.verdict, done.reason) == ("PASS", f"reproduced: {first.signature.title}")
        assert done.signature == first.signature
    file = make_scenario(tmp_path, HEALTHY, f'expect: {{signature: "{record}"}}')
    assert scenario.load(file).expect.signature == f"@{tmp_path}/reports/{first.id}/run.json"
    moved = tmp_path / "moved"
    moved.mkdir()
    assert scenario.load(file).fingerprint == scenario.load(file.rename(moved / file.name)).fingerprint


def test_a_reproduction_whose_record_is_gone_is_said_before_anything_starts(go):
    done = go(HEALTHY, 'expect: {signature: "@./gone/run.json"}')
    assert (done.verdict, done.blame, done.argv) == ("ERROR", "scenario", ())
    assert "gone/run.json is not a readable run record" in done.reason


def test_errors_and_skips_are_no_answer_to_a_reproduction(go):
    killed = go([["die", "SIGKILL"]], 'expect: {signature: "0123456789ab"}')
    assert (killed.verdict, killed.blame) == ("ERROR", "node")
    needs = ("needs: {gpus: 64}", "serve: {tensor-parallel-size: 64}", 'expect: {signature: "0123456789ab"}')
    assert go(HEALTHY, *needs).verdict == "ERROR"
    assert go(HEALTHY, *needs, skip_unmet=True).verdict == "SKIP"
    held = replace(CLEAN, survivors=("4711 VLLM::Worker",))
    bad = Finding(reason="x", signature=triage.hang("capture#1", "silence"))
    expect = Expect(signature=bad.signature.id)
    assert verdict.judge(bad, held, expect=expect).reason.startswith("reproduced, but was not taken down: 4711")
    assert verdict.judge(bad, held, expect=expect).verdict == "ERROR"
    assert verdict.judge(bad, CLEAN, expect=Expect(signature=bad.signature.id[:3])).verdict == "FAIL", "too short"


def test_verdicts_of_what_was_left_behind():
    fine = Finding(reason="ready after 1.0 s, 0 checks passed")
    assert verdict.judge(fine, CLEAN, expect=None).verdict == "PASS"
    held = replace(CLEAN, left=("GPU GPU-1 holds 4096 MiB more than before the run",))
    assert verdict.judge(fine, held, expect=None) == verdict.Judgement(
        verdict="ERROR",
        reason="passed, but was not taken down: GPU GPU-1 holds 4096 MiB more than before the run",
        fix="free the node before the next run",
        blame="node",
    )
    bad = Finding(reason="x", signature=triage.hang("capture#1", "silence"))
    assert verdict.judge(bad, held, expect=None).verdict == "FAIL", "a failure of the product stays one"
    assert verdict.judge(bad, CLEAN, expect=Expect(signature=bad.signature.id[:6])).verdict == "PASS"


def test_the_record_grows_with_the_phases(go, tmp_path):
    """A node that is killed while its server starts leaves how far it came."""
    seen = []

    def look(event: Event) -> None:
        if event.kind == "phase" and event.text == "weights":
            (file,) = (tmp_path / "reports").glob("*/run.json")
            seen.append([phase["name"] for phase in json.loads(file.read_text())["timeline"]["phases"]])

    marks = ["non-default args: {'model': 'x'}", "Starting to load model x..."]
    go([*(["say", f"(APIServer pid=3) INFO 11-30 21:00:00 [a.py:1] {m}"] for m in marks), ["exit", 1]], on_event=look)
    assert seen == [["spawn", "config", "weights"]]


def test_the_record_is_readable_at_every_moment(go, tmp_path):
    states = []

    def look(event: Event) -> None:
        if event.kind == "step":
            (file,) = (tmp_path / "reports").glob("*/run.json")
            states.append((event.text, json.loads(file.read_text())["state"], time.monotonic()))

    go(HEALTHY, on_event=look)
    assert [state for _, state, _ in states] == ["running"] * 3
