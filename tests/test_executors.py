"""Runs made elsewhere, with a stand-in for the cluster; what needs Ray itself is in test_ray.py."""

import builtins
import contextlib
import os
import pickle
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import elsewhere
import psutil
import pytest
import standin_build
from hypothesis import given
from hypothesis import strategies as st

from harness import cli, executors, leases, node, record, scenario
from harness.build import parse
from harness.checks.startup_time import StartupTimeParams
from harness.errors import Interrupted, NodeError, UnmetError, UsageError
from harness.executors import demand, errand, mirror, parcel, remote
from harness.executors.base import Ask
from harness.executors.local import Local
from harness.scenario import meaning

HANGS = [["say", "hello"], ["wait"]]
BUDGETS = "budgets: {startup: 30s, silence: 20s, stop: 5s}"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ask(folder, steps=standin_build.HEALTHY, *lines, name="stand-in", **words):
    build = folder / "venv"
    made = parse(f"venv:{build}") if build.exists() else standin_build.make_build(folder)
    file = standin_build.make_scenario(folder, steps, BUDGETS, *lines, name=name)
    return Ask(scenario=scenario.load(file), build=made, out=folder / "reports", **words)


def cluster(node_class="cpu", **words):
    engine = elsewhere.Engine(**words)
    return remote.Cluster(engine, node_class=node_class), engine


# --- one run


def test_a_run_made_elsewhere_is_here_as_if_it_had_been_made_here(place):
    made, engine = cluster()
    events = []
    asked = ask(place)
    done = made.execute(asked, events.append)
    folder = place / "reports" / done.id
    assert (done.verdict, engine.avoided) == ("PASS", [""])
    assert record.load(folder) == done
    assert {"run.json", "server.log", "server.times", "junit.xml", "summary.md"} <= {f.name for f in folder.iterdir()}
    assert "hello" in (folder / "server.log").read_text()
    assert [event.text for event in events if event.kind == "run"] == [f"stand-in on {asked.build} → {folder}"]
    assert next(event for event in events if event.kind == "spawned").tail() == "hello"
    assert done.reproduce == f"harness run stand-in.yaml --build {asked.build}"
    assert done.teardown.survivors == ()
    assert list((place / "cache" / "arriving").iterdir()) == []


def test_the_same_is_asked_by_a_run_made_here(place):
    asked = ask(place)
    there, here = cluster()[0].execute(asked, lambda _: None), Local().execute(asked, lambda _: None)
    for name in ("meaning", "content", "packages", "fingerprint", "node_class", "reproduce", "build", "resolved"):
        one, other = getattr(there, name), getattr(here, name)
        if name == "resolved":
            assert one["model"].endswith(other["model"])
            one, other = {**one, "model": ""}, {**other, "model": ""}
        assert one == other, name


def test_what_is_normal_travels_with_the_run(place):
    asked = ask(place)
    asked = replace(asked, scenario=replace(asked.scenario, checks={"startup_time": StartupTimeParams()}))
    made, _ = cluster()
    runs = [made.execute(asked, lambda _: None) for _ in range(6)]
    assert [run.verdict for run in runs] == ["PASS"] * 6
    said = [check.outcome for run in runs for check in run.checks]
    assert said[:5] == ["not_tested"] * 5
    assert said[5] in ("pass", "fail"), "five of them are enough to judge the sixth by"
    assert [night.run for night in runs[5].nights] == [run.id for run in runs[:5]]
    assert list(place.glob("reports/.*")) == []


def test_the_record_and_the_log_grow_while_the_run_goes(place):
    made, _ = cluster()
    seen = []

    def look(event):
        if event.kind == "phase" and not seen:
            seen.extend(record.load(file).state for file in place.glob("reports/*/run.json"))

    made.execute(ask(place), look)
    assert seen == ["running"]


def test_a_lost_run_is_an_error_of_the_node_and_is_made_once_more_elsewhere(place):
    made, engine = cluster(loses=elsewhere.at("phase"))
    events = []
    done = made.execute(ask(place), events.append)
    first, second = sorted(map(record.load, place.glob("reports/*/run.json")), key=lambda run: run.verdict)
    assert (first.verdict, first.blame, first.signature, first.state) == ("ERROR", "node", None, "finished")
    assert first.reason == "one (node 1 of the cluster) was lost"
    assert (place / "reports" / first.id / "junit.xml").exists()
    assert (second, second.verdict) == (done, "PASS")
    assert engine.avoided == ["", "one"]
    assert "stand-in is made once more, elsewhere" in [event.text for event in events]


def test_a_run_that_is_lost_twice_stays_an_error(place):
    made, engine = cluster(loses=lambda _, item: getattr(item, "kind", "") == "step")
    done = made.execute(ask(place), lambda _: None)
    assert (done.verdict, len(engine.avoided)) == ("ERROR", 2)
    assert len(list(place.glob("reports/*/run.json"))) == 2


def test_a_run_that_was_lost_after_its_end_is_not_lost(place):
    made, engine = cluster(loses=lambda _, item: isinstance(item, errand.Ended))
    assert (made.execute(ask(place), lambda _: None).verdict, len(engine.avoided)) == ("PASS", 1)


def test_a_run_is_not_made_again_where_no_node_is_left(place):
    engine = elsewhere.Engine()

    def loses(_, item):
        if getattr(item, "kind", "") == "step":
            engine.declared = [{"GPU": 0.0, "node-class:cpu": 1.0}, {"GPU": 4.0}]
            return True
        return False

    engine.loses = loses
    events = []
    done = remote.Cluster(engine, node_class="cpu").execute(ask(place), events.append)
    assert (done.verdict, len(engine.avoided)) == ("ERROR", 1)
    assert any("is not made once more" in event.text for event in events)


@pytest.mark.parametrize(("skip", "verdict"), [(False, "ERROR"), (True, "SKIP")])
def test_what_no_node_has_is_said_in_a_record(place, skip, verdict):
    asked = ask(place, standin_build.HEALTHY, "serve: {tensor-parallel-size: 8}", skip_unmet=skip)
    done = cluster()[0].execute(asked, lambda _: None)
    assert (done.verdict, done.blame) == (verdict, "scenario")
    assert done.reason == ("needs 8 GPU, node-class:cpu on one node, and no node of the cluster has more than 4 GPU")


def test_a_node_of_another_class_than_it_declares(place):
    made, _ = cluster("h200", declared=[{"GPU": 4.0, "node-class:h200": 1.0}])
    done = made.execute(ask(place), lambda _: None)
    assert (done.verdict, done.blame) == ("ERROR", "node")
    assert "declares node-class:h200, and is cpu" in done.reason


def test_variables_of_whoever_asks_are_given_and_written_nowhere(place, monkeypatch):
    monkeypatch.setenv("HARNESS_TEST_TOKEN", "swordfish-4711")
    asked = ask(place, standin_build.HEALTHY)
    file = asked.scenario.path
    file.write_text(file.read_text().replace("env: {", "env: {GIVEN: {from: HARNESS_TEST_TOKEN}, "))
    asked = replace(asked, scenario=scenario.load(file))
    order = pickle.dumps(parcel.pack(asked))
    assert b"swordfish-4711" in order
    assert "swordfish" not in repr(parcel.pack(asked))
    monkeypatch.setattr(errand, "_raylet", lambda: {k: v for k, v in os.environ.items() if "TEST_TOKEN" not in k})
    done = cluster()[0].execute(asked, lambda _: None)
    assert (done.verdict, done.env["GIVEN"]) == ("PASS", "***")
    assert all(b"swordfish" not in f.read_bytes() for f in place.rglob("reports/**/*") if f.is_file())


def test_other_sources_are_refused(place, monkeypatch):
    stop = threading.Event()
    told = list(errand.work("another", b"", stop=stop, declared=lambda _: 1.0))
    assert [type(each.error) for each in told] == [NodeError]
    assert "has other sources of harness" in told[0].error.what


# --- several at once, and stopped


def test_runs_that_are_cancelled_take_their_servers_down_and_say_so(place):
    made, _ = cluster()
    events = []
    seen = threading.Event()

    def tell(event):
        events.append(event)
        if event.kind == "spawned":
            seen.set()

    asked = ask(place, HANGS)
    with made.pool(1, tell) as pool:
        pool.submit(1, lambda show: made.execute(asked, lambda event: (tell(event), show(event))))
        assert seen.wait(30)
        pool.cancel(1)
        assert pool.running == ()
    (done,) = map(record.load, place.glob("reports/*/run.json"))
    assert (done.state, done.teardown.survivors) == ("interrupted", ())
    assert not [p for p in psutil.Process().children(recursive=True) if "standin" in " ".join(p.cmdline())]


def test_an_interruption_of_the_driver_interrupts_the_runs(place):
    made, _ = cluster()

    def interrupt(event):
        if event.kind == "spawned":
            raise Interrupted("SIGTERM")

    with pytest.raises(Interrupted):
        made.execute(ask(place, HANGS), interrupt)
    (done,) = map(record.load, place.glob("reports/*/run.json"))
    assert (done.state, done.teardown.survivors) == ("interrupted", ())


def test_a_job_that_was_cancelled_makes_no_further_run(place):
    made, engine = cluster()
    gate, out = threading.Event(), []

    def job(_show):
        gate.wait(30)
        try:
            return made.execute(ask(place), lambda _: None)
        except Interrupted as error:
            out.append(error.what)

    with made.pool(1, lambda _: None) as pool:
        pool.submit(1, job)
        threading.Timer(0.2, gate.set).start()
        pool.cancel(1)
    assert (out, engine.avoided) == (["cancelled"], [])


def chosen(monkeypatch, engine):
    """The engine in the place of whatever --ray names."""
    monkeypatch.setattr(
        executors,
        "choose",
        lambda address, *, node_class=None: contextlib.nullcontext(remote.Cluster(engine, node_class="cpu")),
    )


def test_run_gives_all_its_scenarios_to_the_cluster_at_once(place, monkeypatch, capsys):
    engine = elsewhere.Engine()
    chosen(monkeypatch, engine)
    build = str(ask(place).build)
    names = [f"s{at}.yaml" for at in range(3)]
    for name in names:
        ask(place, name=name.removesuffix(".yaml"))
    assert cli.main(["run", *names, "--build", build, "--ray", "auto"]) == 0
    out = capsys.readouterr().out
    assert (engine.most, len(engine.avoided)) == (3, 3)
    assert [line.split()[1] for line in out.splitlines() if line.startswith("PASS")] == ["s0:", "s1:", "s2:"]
    assert "step: [s1] lease" in out


def trees(folder, *, builds, culprit):
    words = []
    for at in range(builds):
        words.append(str(standin_build.make_tree(folder / str(at), version=f"0.{at}.0")))
        source = folder / str(at) / "tree" / "vllm" / "core.py"
        for old in (source.parent / "__pycache__").iterdir():
            old.unlink()
        if at < culprit:
            text = source.read_text().replace("self.states, self.copied = 4, 2", "self.states, self.copied = 4, 4")
            source.write_text(text)
    (folder / "builds").write_text("\n".join(words))
    standin_build.make_scenario(folder, [], "budgets: {startup: 30s, silence: 20s}")
    return words


def test_a_bisection_finds_the_same_in_fewer_rounds(place, monkeypatch, capsys):
    words = trees(place, builds=6, culprit=3)
    engine = elsewhere.Engine()
    chosen(monkeypatch, engine)
    line = ["bisect", "stand-in.yaml", "--builds", "builds", "--ray", "auto", "--jobs", "3"]
    assert cli.main(line) == 0
    assert f"{words[3]}" in capsys.readouterr().out.split("FOUND", 1)[1].splitlines()[0]
    assert engine.most == 3
    before = finished(place)
    assert before[words[2]] == before[words[3]] == 2, "once to find them, once more"
    assert cli.main(line) == 0
    after = finished(place)
    assert {build: after[build] for build in before} == before, "runs on disk answer, by what the builds are there"


def finished(place):
    """How many runs of each build came to their end; a probe that could not matter any more was cancelled."""
    runs = map(record.load, place.glob("reports/*/run.json"))
    return Counter(run.build for run in runs if run.state == "finished")


# --- what travels


def test_a_scenario_means_the_same_where_its_files_were_sent(place):
    folder = place / "models" / "tiny"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (place / "template.jinja").write_text("{{ x }}")
    lines = ["model: ./models/tiny", "serve: {chat-template: ./template.jinja, hf-overrides: {a: [1, ./b]}}"]
    file = place / "x.yaml"
    file.write_text("\n".join(["schema: 1", "name: x", *lines]) + "\n")
    loaded = scenario.load(file)
    sent = pickle.loads(pickle.dumps(parcel.pack(Ask(scenario=loaded, build=parse("0.30.0"), out=place))))
    there = parcel.unpack(sent).scenario
    assert there.model != loaded.model
    assert (Path(there.model) / "config.json").read_text() == "{}"
    assert Path(there.serve["chat-template"]).read_text() == "{{ x }}"
    assert there.path.read_text() == file.read_text()
    assert (there.path.with_name("known_failures.yaml")).is_file(), "the project's own, where none is beside it"
    assert meaning(there) == meaning(loaded)
    assert parcel.unpack(sent).scenario == there


def test_weights_are_not_sent(place, monkeypatch):
    monkeypatch.setattr(parcel, "SENT_BYTES", 10)
    asked = ask(place)
    (place / "model" / "model.safetensors").write_bytes(b"x" * 11)
    sent = parcel.pack(asked)
    assert list(sent.files) == [str(asked.scenario.path)]
    assert parcel.unpack(sent).scenario.model == str(place / "model"), "as with a shared file system"
    (place / "model").rename(place / "gone")
    with pytest.raises(NodeError, match=r"model is not on this node, and with 0 MiB it is not sent"):
        parcel.unpack(sent)


def test_a_build_that_is_a_path_must_be_there(place):
    asked = replace(ask(place), build=parse(f"source:{place}/repository@main"))
    with pytest.raises(NodeError, match=r"repository is not on this node, and the build source:.*@main is not sent"):
        parcel.unpack(parcel.pack(asked))


def test_what_was_sent_long_ago_is_forgotten(place):
    old = place / "cache" / "sent" / "old"
    old.mkdir(parents=True)
    os.utime(old, (1, 1))
    parcel.unpack(parcel.pack(ask(place)))
    assert not old.exists()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.sampled_from(["server.log", "cold/server.log"]), st.binary(max_size=40)),
        st.tuples(st.just("put"), st.sampled_from(["run.json", "a.xml", "cold/a.xml"]), st.binary(max_size=40)),
        st.tuples(st.just("look"), st.just(""), st.just(b"")),
    ),
    max_size=20,
)


@given(STEPS, st.integers(1, 16))
def test_a_mirror_becomes_what_it_shows(tmp_path_factory, steps, piece):
    here, there = (tmp_path_factory.mktemp("m") / name for name in ("here", "there"))
    source, target = mirror.Source(here), mirror.Target(there)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mirror, "PIECE", piece)
        for what, name, data in [*steps, ("last", "", b"")]:
            file = here / (name or "x")
            if not name:
                for each in source.changes(last=what == "last"):
                    target.write(each)
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            if what == "grow":
                with file.open("ab") as out:
                    out.write(data)
            else:
                part = file.with_name(".part")
                part.write_bytes(data)
                part.replace(file)
        assert list(source.changes()) == []
    found = {file.relative_to(here): file.read_bytes() for file in here.rglob("*") if file.is_file()}
    assert {file.relative_to(there): file.read_bytes() for file in there.rglob("*") if file.is_file()} == found


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", ""])
def test_nothing_is_written_beside_the_folder(tmp_path, path):
    piece = mirror.Piece(path=path, offset=0, data=b"x", grows=True, last=True)
    with pytest.raises(executors.base.run.HarnessError, match="a node sent a file named"):
        mirror.Target(tmp_path / "out").write(piece)


# --- what is asked of a cluster


GPU8 = {"GPU": 8.0, "node-class:h200": 1.0}
CPU = {"CPU": 64.0, "harness-cpu": 4.0, "node-class:cpu": 1.0}


@pytest.mark.parametrize(
    ("nodes", "wanted", "found"),
    [([GPU8], None, "h200"), ([GPU8, CPU], "cpu", "cpu"), ([{"GPU": 1.0}], None, None), ([GPU8, GPU8], "h200", "h200")],
)
def test_which_class_of_nodes(nodes, wanted, found):
    assert demand.class_of(nodes, wanted) == found


@pytest.mark.parametrize(
    ("nodes", "wanted", "said"),
    [
        ([GPU8, CPU], None, "nodes of the classes cpu, h200"),
        ([GPU8], "h100", "no node of the cluster declares node-class:h100, they declare h200"),
        ([{"GPU": 1.0}], "h100", "they declare no class"),
    ],
)
def test_a_class_that_must_be_named(nodes, wanted, said):
    with pytest.raises(UsageError, match=said):
        demand.class_of(nodes, wanted)


@pytest.mark.parametrize(
    ("build", "nodes", "node_class", "found"),
    [
        ("0.30.0", [GPU8], "h200", {"GPU": 2.0, "node-class:h200": 0.001}),
        ("0.30.0", [GPU8, CPU], "cpu", {"harness-cpu": 1.0, "node-class:cpu": 0.001}),
        ("0.30.0+cpu", [{**CPU, "GPU": 4.0}], None, {"harness-cpu": 1.0}),
        ("0.30.0", [{**CPU, "GPU": 4.0}], None, {"GPU": 2.0}),
        ("0.30.0+cpu", [{"GPU": 4.0}], None, {"GPU": 2.0}),
    ],
)
def test_what_a_launch_takes(place, build, nodes, node_class, found):
    loaded = ask(place, standin_build.HEALTHY, "serve: {tensor-parallel-size: 2}").scenario
    asked = demand.of_run(loaded, parse(build), nodes, node_class)
    assert asked.all == found
    assert any(asked.fits(each) for each in nodes)
    seen = demand.to_look(parse(build), nodes, node_class)
    assert set(seen.all.values()) == {0.001}
    assert set(seen.all) == set(found)


def test_a_cluster_that_does_not_say_how_many(place):
    with pytest.raises(UsageError, match="does not say how many runs a node may have"):
        demand.of_run(ask(place).scenario, parse("0.30.0"), [{"CPU": 8.0}], None)


def test_gpus_of_two_nodes_are_not_those_of_one(place):
    loaded = ask(place, standin_build.HEALTHY, "serve: {tensor-parallel-size: 2}").scenario
    with pytest.raises(UnmetError, match="no node of the cluster has more than 1 GPU"):
        demand.of_run(loaded, parse("0.30.0"), [{"GPU": 1.0}, {"GPU": 1.0}], None)


@pytest.mark.parametrize(
    ("counted", "smi", "run", "devices", "shares"),
    [
        ("GPU", True, True, "3", None),
        ("GPU", False, True, None, "4"),
        ("harness-cpu", True, True, "", "4"),
        ("GPU", True, False, "0,1", None),
        ("harness-cpu", False, False, "", None),
    ],
)
def test_the_environment_of_a_run_is_that_of_its_node(place, monkeypatch, counted, smi, run, devices, shares):  # noqa: PLR0917
    started = {"HOME": "/root", "OMP": "1", "RAY_ADDRESS": "x", "CUDA_VISIBLE_DEVICES": "0,1"}
    monkeypatch.setattr(errand, "_raylet", lambda: dict(started))
    monkeypatch.setattr(errand.shutil, "which", lambda _: "/nvidia-smi" if smi else None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    sent = parcel.pack(ask(place)) if run else None
    order = errand.Order(build=parse("0.30.0"), parcel=sent, node_class=None, counted=counted)
    made = errand.environ(order, 4.0)
    assert (made.get("CUDA_VISIBLE_DEVICES"), made.get("HARNESS_CPU_SHARES")) == (devices, shares)
    assert made["HOME"] == "/root"
    assert "RAY_ADDRESS" not in made


def test_the_environment_of_ray_on_this_node(monkeypatch):
    monkeypatch.setenv("RAY_RAYLET_PID", str(os.getpid()))
    assert errand._raylet()["PATH"]
    monkeypatch.setenv("RAY_RAYLET_PID", "0")
    assert errand._raylet() == dict(os.environ)


# --- parts of a CPU


def test_a_cpu_is_leased_in_parts(monkeypatch):
    here = replace(node.read(), gpus=())
    monkeypatch.setenv("HARNESS_CPU_SHARES", "2")
    with leases.lease(here, gpus=0, wait=0) as one, leases.lease(here, gpus=0, wait=0) as other:
        assert len(one.fds) == len(other.fds) == 2
        with pytest.raises(NodeError, match="waited 0 s for the CPU"), leases.lease(here, gpus=0, wait=0):
            pass
        monkeypatch.delenv("HARNESS_CPU_SHARES")
        with pytest.raises(NodeError, match="waited 0 s for the CPU"), leases.lease(here, gpus=0, wait=0):
            pass
    with leases.lease(here, gpus=0, wait=0):
        monkeypatch.setenv("HARNESS_CPU_SHARES", "2")
        with pytest.raises(NodeError, match=f"held by pid {os.getpid()}"), leases.lease(here, gpus=0, wait=0):
            pass


@pytest.mark.parametrize("word", ["0", "-1", "many", "1.5"])
def test_shares_that_are_none(monkeypatch, word):
    monkeypatch.setenv("HARNESS_CPU_SHARES", word)
    with pytest.raises(NodeError, match="HARNESS_CPU_SHARES is"), leases.lease(node.read(), gpus=0, wait=0):
        pass


# --- which executor


def test_without_ray_the_word_says_what_to_install(place, monkeypatch, capsys):
    real = builtins.__import__

    def without(name, *rest):
        if name == "ray" or name.startswith("ray."):
            raise ModuleNotFoundError("No module named 'ray'", name="ray")
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "harness.executors.ray", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    ask(place)
    assert cli.main(["run", "stand-in.yaml", "--ray", "auto"]) == 2
    assert "pip install 'harness[ray]'" in capsys.readouterr().err


def test_a_class_is_of_a_cluster(place, capsys):
    ask(place)
    assert cli.main(["run", "stand-in.yaml", "--node-class", "h200"]) == 2
    assert "--node-class chooses nodes of a cluster" in capsys.readouterr().err


def test_the_default_is_this_machine():
    with executors.choose(None) as made:
        assert made == Local()
        assert pickle.loads(pickle.dumps(made)) == made
        assert not made.remote
