from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from harness import cli, scenario
from harness.checks.base import Params
from harness.errors import ScenarioError, UsageError
from harness.scenario.find import scenario_files
from harness.scenario.merge import merge_plain
from harness.shrink import byte_tokenizer
from harness.units import DurationPerNodeClass

PROJECT = Path(__file__).parent.parent
SHIPPED = sorted(scenario_files(PROJECT / "scenarios"))


class Warmup(Params):
    requests: int = 8
    max_first_request: DurationPerNodeClass | None = None


class Perplexity(Params):
    corpus: str = "smoke_en"
    reference: str | None = None
    max: float | None = None
    max_log_ratio: float = 0.005


REGISTRY = scenario.Registry(
    runtimes={
        "vllm": scenario.RuntimeWords(
            own_flags=frozenset({"host", "port", "served-model-name", "api-key"}),
            parallel_flags=("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"),
            subjects=frozenset({"spec_decode", "prefix_cache"}),
        )
    },
    checks={"perplexity": Perplexity, "warmup": Warmup},
)
HEAD = "schema: 1\nname: s\nruntime: vllm\nmodel: m\n"  # four lines


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def written(text, **words):
        Path("s.yaml").write_text(text, encoding="utf-8")
        return scenario.load(Path("s.yaml"), registry=REGISTRY, **words)

    return written


@pytest.fixture
def refused(load):
    def lines(text, **words):
        with pytest.raises(ScenarioError) as caught:
            load(text, **words)
        return caught.value.what.splitlines()

    return lines


# --- errors: every kind, at its place


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("serve: {}\nsreve: {}\n", "6:1: unknown key `sreve`; did you mean `serve`?"),
        ("varients: {}\n", "5:1: unknown key `varients`; did you mean `variants`?"),
        ("zzz: 1\n", "5:1: unknown key `zzz`"),
        ("needs: {gpu: 1}\n", "5:9: unknown key `gpu` in `needs`; did you mean `gpus`?"),
        (
            "needs: {gpu_memory_gib: 1}\n",
            "5:9: unknown key `gpu_memory_gib` in `needs`; did you mean `gpu-memory-gib`?",
        ),
        ("serve: {a: 1, b: 2, a: 3}\n", "5:21: `a` stands twice, first at line 5"),
        ("revision: 1\n", '5:11: `revision` must be text, not the number 1; quote it: "1"'),
        ("revision: 0.10\n", '5:11: `revision` must be text, not the number 0.10; quote it: "0.10"'),
        ("revision: 1e5\n", '5:11: `revision` must be text, not the number 1e5; quote it: "1e5"'),
        ("revision: true\n", '5:11: `revision` must be text, not true; quote it: "true"'),
        ("description: [x]\n", "5:14: `description` must be text, not a list"),
        ("refs: vllm#1\n", '5:7: `refs` must be a list, not "vllm#1"; write [vllm#1]'),
        ("refs: [a, 5]\n", '5:11: `refs[1]` must be text, not the number 5; quote it: "5"'),
        ("serve: [a]\n", "5:8: `serve` must be a mapping, not a list"),
        ("serve:\n", "5:7: `serve` must be a mapping, not nothing; write {} for an empty one"),
        ("needs: {gpus: 1.5}\n", "5:15: `needs.gpus` must be a whole number, not the number 1.5"),
        ("needs: {gpus: 0}\n", "5:15: `needs.gpus` must be at least 1, not the number 0"),
        ("needs: {gpus: true}\n", "5:15: `needs.gpus` must be a whole number, not true"),
        ('needs: {gpu-memory-gib: "60"}\n', '5:25: `needs.gpu-memory-gib` must be a number, not "60"'),
        ("needs: {gpu-memory-gib: 0}\n", "5:25: `needs.gpu-memory-gib` must be above 0, not the number 0"),
        ("needs: {nodes: 2}\n", "5:16: `needs.nodes` above 1 is reserved: one launch runs on one node for now"),
        ("budgets: {startup: 30}\n", "5:20: `budgets.startup`: 30 has no unit: write 30s or 30m"),
        ("budgets: {stop: 0s}\n", '5:17: `budgets.stop`: "0s" is no time at all'),
        ("budgets: {stop: 1h90m}\n", '5:17: `budgets.stop`: "1h90m": 90m is 1h or more'),
        ("budgets: {stop: 5min}\n", '5:17: `budgets.stop`: "5min": "min" is not a unit of time: write 5m'),
        ("budgets: {startup: 90d}\n", '5:20: `budgets.startup`: "90d" is longer than 30 days'),
        ("env: {A: 1}\n", '5:10: `env.A` must be text, not the number 1; quote it: "1"'),
        ("env: {A: off, B: true}\n", '5:18: `env.B` must be text, not true; quote it: "true"'),
        ("env: {A: {form: B}}\n", "5:11: unknown key `form` in `env.A`; did you mean `from`?"),
        ("env: {A: {}}\n", "5:10: `from` is missing in `env.A`"),
        (
            "env: {1A: x}\n",
            (
                "5:7: `env.1A` is no good name: the name of a variable holds only letters, "
                'digits and "_", and begins with no digit'
            ),
        ),
        ("subject: [spec_decod]\n", '5:11: unknown subject "spec_decod"; did you mean `spec_decode`?'),
        ("subject: [x]\n", '5:11: unknown subject "x"; known are prefix_cache, spec_decode'),
        ("checks: {perplexty: {}}\n", "5:10: unknown check `perplexty`; did you mean `perplexity`?"),
        ("checks:\n  warmup:\n", "6:10: `checks.warmup` must be a mapping, not nothing; write {} for an empty one"),
        ('checks: {perplexity: {max: "12"}}\n', '5:28: `checks.perplexity.max` must be a number, not "12"'),
        ("checks: {perplexity: {maxx: 1}}\n", "5:23: unknown key `maxx` in `checks.perplexity`; did you mean `max`?"),
        (
            "checks: {perplexity: {max_log_ratio: 1}}\n",
            "5:23: unknown key `max_log_ratio` in `checks.perplexity`; did you mean `max-log-ratio`?",
        ),
        (
            "checks: {warmup: {max-first-request: {h200: 20}}}\n",
            "5:45: `checks.warmup.max-first-request.h200`: 20 has no unit: write 20s or 20m",
        ),
        (
            "when: [{builds: 0.29, serve: {a: 1}}]\n",
            '5:17: `when[0].builds` must be text, not the number 0.29; quote it: "0.29"',
        ),
        (
            'when: [{builds: "0.29.0", serve: {a: 1}}]\n',
            (
                '5:17: `when[0].builds`: "0.29.0" is not a range of releases such as "<0.29.0" or ">=0.28,<0.30"; '
                'for exactly this one write "==0.29.0"'
            ),
        ),
        (
            'when: [{builds: "", serve: {a: 1}}]\n',
            '5:17: `when[0].builds`: an empty range holds every build: say which, "<0.29.0"',
        ),
        ('when: [{builds: "<1"}]\n', "5:8: `when[0]` changes nothing: give it `serve` or `env`"),
        (
            'when: [{builds: "<1", serve: {port: 1}}]\n',
            "5:31: `when[0].serve.port` belongs to the harness, which sets it for every launch: remove it",
        ),
        (
            "expect: {signature: 123456789012}\n",
            '5:21: `expect.signature` must be text, not the number 123456789012; quote it: "123456789012"',
        ),
        ("expect: {}\n", "5:9: `signature` is missing in `expect`"),
        ("starts: [hot]\n", '5:10: `starts[0]` must be cold or warm, not "hot"'),
        ("variants: [a]\n", "5:11: `variants` must be a mapping, not a list"),
        ("variants: {a: }\n", "5:15: `variants.a` must be a mapping, not nothing; write {} for an empty one"),
        ("variants: {a: {name: b}}\n", "5:16: `variants.a.name`: a variant cannot change `name`"),
        (
            "variants: {a b: {}}\n",
            (
                '5:12: `variants.a b` is no good name: it holds only letters, digits, ".", "_" and "-", '
                "and begins with a letter or digit"
            ),
        ),
        ("variants: {a: {serv: {}}}\n", "5:16: unknown key `serv`; did you mean `serve`?"),
        ("variants: {a: {model: null}}\n", "1:1: `model` is missing"),
        ("env: !!binary x\n", "5:6: the tag tag:yaml.org,2002:binary is refused: quote a value that is text"),
    ],
)
def test_an_error_of_each_kind(refused, text, message):
    assert f"s.yaml:{message}" in refused(HEAD + text)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        *(
            (f"{flag}: x", f"5:9: `serve.{flag}` belongs to the harness, which sets it for every launch: remove it")
            for flag in ("host", "port", "served-model-name", "api-key", "served_model_name", "--port")
        ),
        (
            "tensor_parallel_size: 8",
            (
                "5:9: `serve.tensor_parallel_size` is not the name of a flag (lower case, dashes only between words); "
                "did you mean `tensor-parallel-size`?"
            ),
        ),
        (
            "--x: 1",
            "5:9: `serve.--x` is not the name of a flag (lower case, dashes only between words); did you mean `x`?",
        ),
        ("x y: 1", "5:9: `serve.x y` is not the name of a flag (lower case, dashes only between words)"),
        ("x.y: 1", "5:9: `serve.x.y` is not the name of a flag; write a mapping: x: {y: …}"),
        ("x: []", "5:12: `serve.x` is an empty list: write true for a bare flag, null to remove it"),
        ("x: [1, true]", '5:16: `serve.x` lists text, numbers or mappings, not true; quote it: "true"'),
        ("x: [[1]]", "5:13: `serve.x` lists text, numbers or mappings, not a list"),
        ("x: {repeat: 3}", "5:21: `serve.x` repeats a list, not the number 3"),
        ("x: {repeat: [1], y: 2}", "5:12: `serve.x` has something beside `repeat`, which must stand alone"),
        ("x: {replace: {}, y: 2}", "5:12: `serve.x` has something beside `replace`, which must stand alone"),
        ("replace: {}, y: 2", "5:9: `serve.replace` must stand alone: what is beside it would be lost"),
        (
            'tensor-parallel-size: "8"',
            '5:31: `serve.tensor-parallel-size` must be a whole number of 1 or more, not "8"',
        ),
        (
            "tensor-parallel-size: 0",
            "5:31: `serve.tensor-parallel-size` must be a whole number of 1 or more, not the number 0",
        ),
    ],
)
def test_flags_and_their_values(refused, flags, message):
    assert refused(f"{HEAD}serve: {{{flags}}}\n") == [f"s.yaml:{message}"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: s\nmodel: m\n", "1:1: `schema` is missing"),
        ("schema: 1\nmodel: m\n", "1:1: `name` is missing"),
        ("schema: 1\nname: s\n", "1:1: `model` is missing"),
        ("schema: 2\nname: s\nmodel: m\n", "1:9: `schema` must be 1, not the number 2"),
        ("schema: 1\nname: s\nmodel: ''\n", "3:8: `model` is empty text"),
        ("schema: 1\nname: 5\nmodel: m\n", '2:7: `name` must be text, not the number 5; quote it: "5"'),
        (
            "schema: 1\nname: a/b\nmodel: m\n",
            (
                '2:7: `name` is no good name: it holds only letters, digits, ".", "_" and "-", '
                "and begins with a letter or digit"
            ),
        ),
        ("schema: 1\nname: s\nmodel: m\nruntime: vlm\n", '4:10: unknown runtime "vlm"; did you mean `vllm`?'),
        ("- a\n", "1:1: a scenario is a mapping, not a list"),
        ("hello\n", '1:1: a scenario is a mapping, not "hello"'),
    ],
)
def test_what_every_scenario_has(refused, text, message):
    assert refused(text) == [f"s.yaml:{message}"]


FULL = yaml.safe_load("""
schema: 1
name: s
description: d
refs: [vllm#1]
runtime: vllm
model: m
revision: r
serve: {tensor-parallel-size: 1, speculative-config: {method: ngram}, flag: {a: [1]}, more: {repeat: [a, b]}}
env: {X: y, Z: {from: W}}
needs: {gpus: 1, gpu-memory-gib: 1.5, nodes: 1}
budgets: {startup: 1h, silence: 10m}
subject: [spec_decode]
starts: [cold, warm]
expect: {signature: "0123456789ab"}
when: [{builds: "<0.29.0", serve: {flag: null}, env: {X: null}}]
checks:
  warmup: {requests: 2, max-first-request: {default: 1s, h200: 2s}, max-tokens: 4, max-warm-ratio: 2}
  perplexity: {corpus: smoke_en, max: 9}
  prefix_cache: {block-tokens: 8}
  spec_decode: {min-acceptance-length: 1.5, against: no speculation}
  same_output: {against: {serve: {flag: null}, env: {X: other, Z: null}, build: "release:0.31.0"}, prompts: [a]}
  chat: {markers: [a]}
variants:
  small: {serve: {flag: {replace: {b: 2}}}, checks: {warmup: null}}
""")
ODD = [None, True, 0, 1.5, 10**30, "", "=", "x", [], {}, [[]], [{}], [None], [["warm"]], {"replace": None},
       {"replace": {"a": 1}}, {"repeat": None}, {"replace": None, "serve": {}}, {"x": None}, {"": ""}]  # fmt: skip


def _places(value, path=()):
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield path
    for key, each in inner:
        yield from _places(each, (*path, key))


def _changed(value, path, odd):
    if not path:
        return odd
    changed = value.copy()
    changed[path[0]] = _changed(value[path[0]], path[1:], odd)
    return changed


@pytest.mark.parametrize("path", list(_places(FULL)), ids=lambda path: ".".join(map(str, path)) or "file")
def test_whatever_stands_anywhere_is_read_or_refused_at_its_place(tmp_path, path):
    scenario_of(tmp_path, FULL)
    for odd in ODD:
        for line in _said(tmp_path, _changed(FULL, path, odd)):
            assert re.match(r"\S+s\.yaml:\d+:\d+: \S", line), line


def _said(folder, tree):
    try:
        scenario_of(folder, tree)
    except ScenarioError as error:
        return error.what.splitlines()
    return []


def scenario_of(folder, tree):
    """Of a tree, with all its variants; JSON is YAML, and every value of it has a place."""
    file = folder / "s.yaml"
    file.write_text(json.dumps(tree, indent=1))
    return scenario.load_file(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "starts: [cold, [warm]]", "s.yaml:5:16: `starts[1]` must be cold or warm, not a list"),
        (HEAD + "starts: [[]]", "s.yaml:5:10: `starts[0]` must be cold or warm, not a list"),
        (HEAD + "starts: [{}]", "s.yaml:5:10: `starts[0]` must be cold or warm, not a mapping"),
        (
            HEAD + "variants: {b: {replace: null}}",
            "s.yaml:5:16: `variants.b.replace` stands inside a key such as `serve`: a scenario is not replaced whole",
        ),
        (
            HEAD + "repeat: []",
            "s.yaml:5:1: `repeat` stands inside a key such as `serve`: a scenario is not replaced whole",
        ),
    ],
)
def test_shapes_that_nobody_would_write_on_purpose(refused, text, message):
    assert refused(text) == [message]


@pytest.mark.parametrize("name", ['""', "A=B", "A-B", "1A"])
@pytest.mark.parametrize("holders", ["env", "checks same_output against env", "checks spec_decode against env"])
def test_names_of_variables_are_judged_alike_wherever_they_are_set(tmp_path, holders, name):
    words = holders.split()
    line = ": {".join([*words, name])
    file = tmp_path / "s.yaml"
    file.write_text(f"{HEAD.replace('runtime: vllm', 'serve: {speculative-config: {}}')}{line}: x{'}' * len(words)}\n")
    with pytest.raises(ScenarioError) as caught:
        scenario.load(file)
    where = ".".join([*words, name.strip('"')])
    assert caught.value.what == (
        f"{file}:5:{len(line) - len(name) + 1}: `{where}` is no good name: the name of a variable holds only letters, "
        'digits and "_", and begins with no digit'
    )


@pytest.mark.parametrize(
    ("check", "name", "most"),
    [
        *((check, "max-tokens", 1 << 24) for check in
          ("warmup", "prefix_cache", "spec_decode", "determinism", "chat", "load", "log_hygiene")),
        ("prefix_cache", "block-tokens", 1 << 24),
        ("determinism", "prompt-tokens", 1 << 24),
        ("determinism", "batch", 4096),
        ("spec_decode", "prompts", 4096),
        ("load", "concurrency", 4096),
        ("load", "max-requests", 1_000_000),
        ("warmup", "requests", 1_000_000),
        ("perplexity", "window", 1 << 24),
        ("memory", "max-gpu", 1 << 30),
    ],
)  # fmt: skip
def test_numbers_that_no_server_could_be_asked_for(tmp_path, check, name, most):
    def load(value):
        file = tmp_path / "s.yaml"
        file.write_text(f"{HEAD}serve: {{speculative-config: {{}}}}\nchecks: {{{check}: {{{name}: {value}}}}}\n")
        return scenario.load(file)

    assert load(most).checks
    with pytest.raises(
        ScenarioError, match=rf"`checks.{check}.{name}` must be at most {most}, not the number"
    ) as caught:
        load(most + 1)
    assert caught.value.what.startswith(f"{tmp_path / 's.yaml'}:6:")
    with pytest.raises(ScenarioError, match=rf"`checks.{check}.{name}`"):
        load("1e23")


SPECULATES = "serve: {speculative-config: {method: ngram}}\n"
KNOWN_CORPORA = "; known are smoke_en, a file of yours starts with ./"
SAME = "that launch would be the same as the scenario's own; compare with one that differs"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("checks: {same_output: {against: no speculation}}", f"5:33: `checks.same_output.against`: {SAME}"),
        ("checks: {same_output: {against: {serve: {x: null}}}}", f"5:33: `checks.same_output.against`: {SAME}"),
        ("checks: {same_output: {against: {env: {A: null}}}}", f"5:33: `checks.same_output.against`: {SAME}"),
        (
            "serve: {a: 1, b: {c: 2}}\nchecks: {same_output: {against: {serve: {a: 1, b: {c: 2}}}}}",
            f"6:33: `checks.same_output.against`: {SAME}",
        ),
        (
            "serve: {enforce-eager: true}\nchecks: {same_output: {against: eager}}",
            f"6:33: `checks.same_output.against`: {SAME}",
        ),
        (
            SPECULATES + "checks: {spec_decode: {against: {serve: {x: null}}}}",
            f"6:33: `checks.spec_decode.against`: {SAME}",
        ),
        (
            'when: [{builds: "<1", serve: {y: 1}, env: {x: a}}]\nchecks: {same_output: {against: {serve: {x: null}}}}',
            f"6:33: `checks.same_output.against`: {SAME}",
        ),
        (
            "checks: {spec_decode: {}}",
            "5:10: `checks.spec_decode` would test nothing: give `speculative-config` in `serve`",
        ),
        (
            SPECULATES + "checks: {spec_decode: {}}\nvariants: {v: {serve: {speculative-config: null}}}",
            "6:10: `checks.spec_decode` would test nothing: give `speculative-config` in `serve`",
        ),
        (
            "checks: {perplexity: {corpus: me}}",
            '5:31: unknown corpus "me" in `checks.perplexity.corpus`' + KNOWN_CORPORA,
        ),
        (
            "checks: {perplexity: {corpus: smoke-en}}",
            '5:31: unknown corpus "smoke-en" in `checks.perplexity.corpus`; did you mean `smoke_en`?',
        ),
    ],
)
def test_what_would_test_nothing_is_refused_where_the_file_alone_says_so(tmp_path, text, message):
    file = tmp_path / "s.yaml"
    file.write_text(HEAD + text + "\n")
    with pytest.raises(ScenarioError) as caught:
        scenario.load_file(file)
    assert caught.value.what == f"{file}:{message}"


@pytest.mark.parametrize(
    "text",
    [
        SPECULATES + "checks: {same_output: {against: no speculation}}",
        "checks: {same_output: {against: no prefix cache}}",
        "checks: {same_output: {against: {serve: {x: null}, build: 0.31.0}}}",
        'when: [{builds: "<1", serve: {x: 1}}]\nchecks: {same_output: {against: {serve: {x: null}}}}',
        'when: [{builds: "<1", env: {x: a}}]\nchecks: {same_output: {against: {env: {x: null}}}}',
        'when: [{builds: "<1", serve: {speculative-config: {}}}]\nchecks: {spec_decode: {against: no speculation}}',
        "serve: {config: flags.yaml}\nchecks: {spec_decode: {}}",
        "serve: {spec-method: ngram}\nchecks: {spec_decode: {}}",
        "checks: {perplexity: {corpus: ./mine.txt}}",
        "checks: {perplexity: {corpus: /where/mine}}",
    ],
)
def test_what_a_build_a_rule_or_a_file_may_still_decide_is_left_to_them(tmp_path, text):
    file = tmp_path / "s.yaml"
    file.write_text(HEAD + text + "\n")
    assert scenario.load(file).checks


def test_a_file_that_is_only_a_replacement(refused):
    for text in ("replace: null", "replace: {schema: 1, name: s, model: m}"):
        words = "`replace` stands inside a key such as `serve`: a scenario is not replaced whole"
        assert f"s.yaml:1:1: {words}" in refused(text)


def test_all_errors_of_a_file_at_once_in_its_order(refused):
    text = (
        HEAD
        + "sreve: {}\nserve: {port: 1}\nserve: {}\nbudgets: {stop: 5}\nchecks: {x: {}}\n"
        + "variants: {a: {env: {A: 1}}, b: {modle: x}}\n"
    )
    assert refused(text) == [
        "s.yaml:5:1: unknown key `sreve`; did you mean `serve`?",
        "s.yaml:6:9: `serve.port` belongs to the harness, which sets it for every launch: remove it",
        "s.yaml:7:1: `serve` stands twice, first at line 6",
        "s.yaml:8:17: `budgets.stop`: 5 has no unit: write 5s or 5m",
        "s.yaml:9:10: unknown check `x`",
        's.yaml:10:25: `env.A` must be text, not the number 1; quote it: "1"',
        "s.yaml:10:34: unknown key `modle`; did you mean `model`?",
    ]


def test_errors_are_the_scenarios_fault_and_say_what_to_do(load):
    with pytest.raises(ScenarioError) as caught:
        load(HEAD + "x: 1\n")
    assert (caught.value.exit_code, caught.value.blame) == (2, "scenario")
    assert caught.value.fix == "correct the file; `harness schema` prints the format, so that an editor completes it"


# --- GPUs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("needs: {gpus: 2}\n", "5:15: `needs.gpus` is 2, but `serve` has no parallel size, which makes 1"),
        (
            "serve: {tensor-parallel-size: 4, pipeline-parallel-size: 2}\nneeds: {gpus: 4}\n",
            "6:15: `needs.gpus` is 4, but tensor-parallel-size 4 times pipeline-parallel-size 2 in `serve` makes 8",
        ),
        (  # of two that do not fit, the one that was written last
            "needs: {gpus: 4}\nserve: {tensor-parallel-size: 4}\nvariants: {one: {serve: {tensor-parallel-size: 1}}}\n",
            "7:48: `needs.gpus` is 4, but tensor-parallel-size 1 in `serve` makes 1",
        ),
        (
            'needs: {gpus: 1}\nwhen: [{builds: "<1", serve: {tensor-parallel-size: 2}}]\n',
            "6:53: `needs.gpus` is 1, but tensor-parallel-size 2 in `when[0].serve` makes 2",
        ),
    ],
)
def test_needs_are_the_product_of_the_parallel_sizes(refused, text, message):
    assert refused(HEAD + text) == [f"s.yaml:{message}"]


def test_gpus_left_out_mean_any_node(load):
    loaded = load(HEAD + "serve: {tensor-parallel-size: 4, decode-context-parallel-size: 4, data-parallel-size: 2}\n")
    assert (loaded.needs.gpus, loaded.world_size, loaded.needs.words) == (None, 8, "any node")


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ("{gpus: 1}", "1 GPU"),
        ("{gpus: 8, gpu-memory-gib: 130}", "8 GPUs of 130 GiB"),
        ("{gpu-memory-gib: 60}", "a GPU of 60 GiB"),
    ],
)
def test_needs_in_words(load, needs, words):
    assert (
        load(f"{HEAD}serve: {{tensor-parallel-size: {8 if '8' in needs else 1}}}\nneeds: {needs}\n").needs.words
        == words
    )


# --- what is read


def test_everything_has_its_default(load, tmp_path):
    loaded = load("schema: 1\nname: s\nmodel: m\n")
    assert (loaded.title, loaded.variant, loaded.runtime, loaded.model, loaded.revision) == (
        "s",
        None,
        "vllm",
        "m",
        None,
    )
    assert (loaded.refs, loaded.serve, loaded.env, loaded.subject, loaded.checks, loaded.when) == (
        (),
        {},
        {},
        (),
        {},
        (),
    )
    assert (loaded.expect, loaded.starts, loaded.description, loaded.world_size) == (None, (), "", 1)
    assert loaded.budgets == scenario.Budgets()
    assert loaded.budgets.model_dump() == {
        "download": 14400,
        "startup": 1800,
        "silence": 600,
        "request": 120,
        "stop": 60,
    }
    assert loaded.path == tmp_path / "s.yaml"


def test_values_arrive_as_written(load):
    loaded = load(
        HEAD
        + "serve: {a: true, b: false, c: null, d: 1e-5, e: yes, f: {x: null, y: [1]}, g: [a, 1], h: {repeat: [a, b]}}\n"
        + 'env: {A: "1", B: off, C: {from: HF_TOKEN}, D: null}\n'
        + "expect: {signature: 3f2a}\nstarts: [cold, warm]\n"
    )
    assert loaded.serve == {
        "a": True,
        "b": False,
        "d": 1e-05,
        "e": "yes",
        "f": {"x": None, "y": [1]},
        "g": ["a", 1],
        "h": {"repeat": ["a", "b"]},
    }
    assert loaded.env == {"A": "1", "B": "off", "C": scenario.FromEnv(**{"from": "HF_TOKEN"})}
    assert loaded.env["C"].from_ == "HF_TOKEN"
    assert loaded.expect.signature == "3f2a"
    assert loaded.starts == ("cold", "warm")


def test_warmup_runs_first_and_the_others_keep_their_order(load):
    loaded = load(HEAD + "checks: {perplexity: {max: 12}, warmup: {max-first-request: {default: 60s, h200: 20s}}}\n")
    assert list(loaded.checks) == ["warmup", "perplexity"]
    assert loaded.checks["warmup"].max_first_request == {"default": 60.0, "h200": 20.0}
    assert loaded.checks["perplexity"] == Perplexity(max=12.0)


def test_local_paths_are_relative_to_the_file(load, tmp_path):
    loaded = load(
        "schema: 1\nname: s\ndescription: ./stays\nmodel: ./models/a\n"
        "serve: {x: ./x, y: {z: [./y, {w: ../w}]}, v: {repeat: [./v]}, u: .hidden, t: models/b}\n"
        "env: {A: ./a}\nchecks: {perplexity: {reference: ./r.json}}\n"
        'when: [{builds: "<1", serve: {x: ./other}}]\n'
    )
    here = str(tmp_path)
    assert loaded.model == f"{here}/models/a"
    assert loaded.description == "./stays"
    assert loaded.serve == {
        "x": f"{here}/x",
        "y": {"z": [f"{here}/y", {"w": f"{tmp_path.parent}/w"}]},
        "v": {"repeat": [f"{here}/v"]},
        "u": ".hidden",
        "t": "models/b",
    }
    assert loaded.env == {"A": f"{here}/a"}
    assert loaded.checks["perplexity"].reference == f"{here}/r.json"
    assert loaded.apply_when("0.9")[0].serve["x"] == f"{here}/other"


def test_the_record_is_json_with_the_keys_of_the_file(load):
    loaded = load(HEAD + "env: {A: {from: B}}\nchecks: {perplexity: {max: 12}}\nneeds: {gpu-memory-gib: 3}\n")
    record = json.loads(json.dumps(loaded.resolved()))
    assert record["env"] == {"A": {"from": "B"}}
    assert record["checks"] == {
        "perplexity": {"corpus": "smoke_en", "reference": None, "max": 12.0, "max-log-ratio": 0.005}
    }
    assert record["needs"] == {"gpus": None, "gpu-memory-gib": 3.0, "nodes": 1}
    assert (record["schema"], record["name"], record["variant"], record["budgets"]["stop"]) == (1, "s", None, 60.0)


# --- variants

BASE = HEAD + (
    "serve: {a: 1, b: {x: 1, y: 2}, c: {repeat: [1]}, l: [1, 2]}\nenv: {A: a}\n"
    "checks: {perplexity: {max: 12, corpus: c}, warmup: {}}\nrefs: [r]\n"
)


@pytest.mark.parametrize(
    ("overlay", "serve"),
    [
        ("{a: 2}", {"a": 2, "b": {"x": 1, "y": 2}, "c": {"repeat": [1]}, "l": [1, 2]}),
        ("{a: null, c: null, l: null}", {"b": {"x": 1, "y": 2}}),
        ("{b: {x: null, z: 3}}", {"a": 1, "b": {"y": 2, "z": 3}, "c": {"repeat": [1]}, "l": [1, 2]}),
        ("{b: {replace: {z: null}}}", {"a": 1, "b": {"z": None}, "c": {"repeat": [1]}, "l": [1, 2]}),
        ("{replace: {b: {z: 3}}}", {"b": {"z": 3}}),
        ("{b: 5, l: [3]}", {"a": 1, "b": 5, "c": {"repeat": [1]}, "l": [3]}),
        ("{b: {repeat: [2]}, c: {x: 1}}", {"a": 1, "b": {"repeat": [2]}, "c": {"x": 1}, "l": [1, 2]}),
        (
            "{c: {repeat: [2]}, d: {x: 1, y: null}}",
            {"a": 1, "b": {"x": 1, "y": 2}, "c": {"repeat": [2]}, "l": [1, 2], "d": {"x": 1}},
        ),
    ],
)
def test_variants_merge_deep(load, overlay, serve):
    loaded = load(f"{BASE}variants: {{v: {{serve: {overlay}}}}}\n", variant="v")
    assert loaded.serve == serve
    assert (loaded.title, loaded.variant, loaded.env, loaded.refs) == ("s[v]", "v", {"A": "a"}, ("r",))


def test_a_variant_removes_checks_and_limits(load):
    checks = "checks: {warmup: null, perplexity: {max: null}}"
    text = f"{BASE}variants: {{v: {{{checks}, env: null, refs: [], model: n}}}}\n"
    loaded = load(text, variant="v")
    assert loaded.checks == {"perplexity": Perplexity(corpus="c")}
    assert (loaded.env, loaded.refs, loaded.model) == ({}, (), "n")
    assert list(load(text).checks) == ["warmup", "perplexity"]


def test_an_unknown_variant(load, refused):
    text = BASE + "variants: {mini: {}, maxi: {}}\n"
    [message] = refused(text, variant="mni")
    assert message.endswith("/s.yaml: there is no variant `mni`; did you mean `mini`?")
    with pytest.raises(ScenarioError) as caught:
        load(text, variant="zzz")
    assert caught.value.fix == "its variants are mini, maxi"
    with pytest.raises(ScenarioError) as caught:
        load(BASE, variant="zzz")
    assert caught.value.fix == "it has no variants"


def test_a_file_names_its_variants(tmp_path):
    (tmp_path / "s.yaml").write_text(BASE + "description: d\nvariants: {mini: {description: e}, maxi: {}}\n")
    file = scenario.load_file(tmp_path / "s.yaml", registry=REGISTRY)
    assert (file.name, file.description, file.variants, file.path) == ("s", "d", ("mini", "maxi"), tmp_path / "s.yaml")
    assert file.scenario("mini").description == "e"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=10,
)
mappings = st.dictionaries(st.sampled_from("abcd"), json_values, max_size=4)


@given(mappings)
def test_merging_nothing_changes_nothing(base):
    assert merge_plain(base, {}) == base


@given(mappings, mappings)
def test_merging_twice_is_merging_once(base, overlay):
    once = merge_plain(base, overlay)
    assert merge_plain(once, overlay) == once


@given(mappings, mappings)
def test_what_an_overlay_does_not_name_stays(base, overlay):
    merged = merge_plain(base, overlay)
    assert {key: merged[key] for key in base if key not in overlay} == {
        k: v for k, v in base.items() if k not in overlay
    }
    assert set(merged) == {k for k in {**base, **overlay} if overlay.get(k, 0) is not None}


@given(mappings, mappings)
def test_replace_forgets_what_was_there(base, content):
    assert merge_plain(base, {"replace": content}) == content


@given(mappings, mappings)
def test_merging_leaves_its_arguments_alone(base, overlay):
    before = json.dumps([base, overlay])
    merge_plain(base, overlay)
    assert json.dumps([base, overlay]) == before


# --- --set


def test_set_changes_and_removes(load):
    sets = (
        "serve.a=null",
        "serve.b.x=1e-5",
        "serve.new={k: [yes]}",
        "checks.perplexity.max=null",
        "budgets.stop=5s",
        "env.A='1'",
    )
    loaded = load(BASE, sets=sets)
    assert loaded.serve == {"b": {"x": 1e-05, "y": 2}, "c": {"repeat": [1]}, "l": [1, 2], "new": {"k": ["yes"]}}
    assert (loaded.checks["perplexity"].max, loaded.budgets.stop, loaded.env) == (None, 5.0, {"A": "1"})


def test_sets_come_after_the_variant_and_in_order(load):
    loaded = load(
        BASE + "variants: {v: {serve: {a: 2, z: 3}}}\n", variant="v", sets=("serve.a=3", "serve.a=4", "serve.z=null")
    )
    assert loaded.serve["a"] == 4
    assert "z" not in loaded.serve


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("serv.a=1", "--set serv.a=1: unknown key `serv`; did you mean `serve`?"),
        ("needs.gpu=1", "--set needs.gpu=1: unknown key `gpu` in `needs`; did you mean `gpus`?"),
        (
            "serve.port=1",
            "--set serve.port=1: `serve.port` belongs to the harness, which sets it for every launch: remove it",
        ),
        ("env.A=1", '--set env.A=1: `env.A` must be text, not the number 1; quote it: "1"'),
        ("model.x=1", "--set model.x=1: `model` must be text, not a mapping"),
        ("serve.zz=null", "--set serve.zz=null: there is no `serve.zz` to remove"),
        ("name=x", "--set name=x: `name` cannot be changed"),
        ("replace=null", "--set replace=null: a scenario is not replaced whole"),
        ("serve.a=[1", "--set serve.a=[1: did not find expected ',' or ']', while parsing a flow sequence"),
        ("serve.a={b: 1, b: 2}", "--set serve.a={b: 1, b: 2}: `b` stands twice"),
        ("needs.gpus=2", "--set needs.gpus=2: `needs.gpus` is 2, but `serve` has no parallel size, which makes 1"),
        (
            "serve.tensor-parallel-size=2",
            "--set serve.tensor-parallel-size=2: `needs.gpus` is 1, but tensor-parallel-size 2 in `serve` makes 2",
        ),
    ],
)
def test_bad_sets(refused, word, message):
    assert refused(BASE + "needs: {gpus: 1}\n", sets=(word,)) == [message]


@pytest.mark.parametrize("word", ["serve.a", "=1", "serve..a=1", "serve.a=", ".a=1"])
def test_sets_that_are_no_sets(load, word):
    with pytest.raises(UsageError, match=r"^--set "):
        load(BASE, sets=(word,))


# --- when

WHEN = HEAD + (
    "serve: {a: 1, b: {x: 1, y: 2}}\nenv: {A: a, B: b}\nwhen:\n"
    '- {builds: "<0.29.0", serve: {a: null, b: {x: 3}}}\n'
    '- {builds: ">=0.28,<0.30", serve: {b: {replace: {z: 1}}}, env: {A: null, C: secret}}\n'
)


def test_when_rules_apply_in_order_and_are_recorded(load):
    loaded = load(WHEN)
    assert loaded.apply_when("0.30.0") == (loaded, ())
    older, applied = loaded.apply_when("0.27.1")
    assert (older.serve, older.env) == ({"b": {"x": 3, "y": 2}}, {"A": "a", "B": "b"})
    assert applied == ('builds <0.29.0 holds for 0.27.1: serve.a removed, serve.b = {"x": 3}',)
    both, applied = loaded.apply_when("0.28.0")
    assert (both.serve, both.env) == ({"b": {"z": 1}}, {"B": "b", "C": "secret"})
    assert (
        applied[1] == 'builds >=0.28,<0.30 holds for 0.28.0: serve.b = {"replace": {"z": 1}}, env.A removed, env.C set'
    )
    assert both.fingerprint == loaded.fingerprint


@pytest.mark.parametrize(
    ("builds", "version", "holds"),
    [
        ("<0.29.0", "0.29.0rc1", True),  # PEP 440 would say: neither before 0.29.0 …
        (">=0.29.0", "0.29.0rc1", False),  # … nor from it on
        ("<0.29.0", "0.28.1rc1.dev123+gabcdef0", True),
        (">=0.28", "0.28.1rc1.dev123+gabcdef0", True),
        ("==0.29.0", "0.29.0+cpu", True),
        ("<=0.29.0", "0.29.0+cu130", True),
        (">0.29.0", "0.29.0+cpu", False),
        ("!=0.29.1,>=0.29", "0.29.1", False),
        ("~=0.29.0", "0.29.4", True),
        ("==0.29.*", "0.29.3", True),
    ],
)
def test_ranges_of_builds(builds, version, holds):
    assert scenario.When(builds=builds, serve={"a": 1}).holds(Version(version)) is holds


def test_a_build_without_a_version(load):
    with pytest.raises(ScenarioError) as caught:
        load(WHEN).apply_when("unknown")
    assert caught.value.what.endswith(
        's.yaml: `when` rules cannot be applied: the build\'s version "unknown" cannot be compared'
    )
    assert load(HEAD).apply_when("unknown")[1] == ()


def test_rules_that_only_together_change_the_number_of_gpus(load):
    loaded = load(
        HEAD + "serve: {tensor-parallel-size: 2, pipeline-parallel-size: 1}\nneeds: {gpus: 2}\n"
        'when: [{builds: "<1", serve: {x: 1}}]\n'
    )
    assert loaded.apply_when("0.1")[0].world_size == 2


# --- fingerprint


def test_the_fingerprint_is_the_same_on_every_machine(tmp_path):
    found = []
    for folder in ("a", "b/c"):
        (tmp_path / folder).mkdir(parents=True)
        file = tmp_path / folder / f"{folder[0]}.yaml"
        file.write_text("schema: 1\nname: s\nmodel: ./m\nserve: {x: ./y, z: 1}\n")
        found.append(scenario.load(file, registry=REGISTRY).fingerprint)
    assert found[0] == found[1]
    assert len(found[0]) == 12
    assert int(found[0], 16) >= 0


def test_the_fingerprint_is_what_is_asked(load):
    base = load(HEAD + "serve: {a: 1, b: 2}\n")
    same = [
        HEAD + "serve: {b: 2, a: 1}\n",
        HEAD + "serve: {a: 1, b: 0x2}  # a comment\ndescription: d\nrefs: [r]\n",
        HEAD + "serve: {a: 1, b: 2}\nbudgets: {stop: 1m, startup: 1800s}\nneeds: {nodes: 1}\n",
        HEAD + "serve: {a: 1, b: 2}\nvariants: {v: {}}\n",
    ]
    others = [
        HEAD + "serve: {a: 1, b: 3}\n",
        HEAD + 'serve: {a: 1, b: "2"}\n',
        HEAD + "serve: {a: 1, b: 2}\nbudgets: {stop: 2m}\n",
        HEAD + "serve: {a: 1, b: 2}\nchecks: {warmup: {}}\n",
        HEAD + 'serve: {a: 1, b: 2}\nwhen: [{builds: "<1", serve: {a: 3}}]\n',
    ]
    assert {load(text).fingerprint for text in same} == {base.fingerprint}
    different = {load(text).fingerprint for text in others}
    assert len(different) == len(others)
    assert base.fingerprint not in different


def test_a_variant_and_the_same_sets_ask_the_same(load):
    text = HEAD + "serve: {a: 1}\nvariants: {v: {serve: {a: 2}}}\n"
    assert load(text, variant="v").fingerprint == load(text, sets=("serve.a=2",)).fingerprint


# --- warnings


def test_warnings(load, tmp_path):
    loaded = load(
        "schema: 1\nname: s\nmodel: ./m\nserve: {x: ./there}\nbudgets: {startup: 5m, silence: 5m}\n"
        "variants: {v: {serve: {zz: null}}}\n",
        variant="v",
    )
    (tmp_path / "there").mkdir()
    assert scenario.warnings(loaded) == (
        f"s.yaml:3:8: `model` {tmp_path}/m does not exist here",
        "s.yaml:6:28: there is no `serve.zz` to remove",
        "s.yaml:5:10: `budgets.silence` is not below `budgets.startup`, so no hang is found by its silence",
    )


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ("60s", []),
        ("{default: 60s, h200: 20s}", []),
        ("{h200: 20s}", ["7:24: limits nothing on other classes of node: give `default` too"]),
        ("{}", ["7:24: limits nothing: give `default`"]),
        (
            "{h200: 20s, Default: 1ms}",
            [
                "7:36: no class of node is called `Default`, they are in lower case: write `default`",
                "7:24: limits nothing on other classes of node: give `default` too",
            ],
        ),
        (
            "{default: 20s, h200: 1s, H200: 2s}",
            ["7:49: no class of node is called `H200`, they are in lower case: write `h200`"],
        ),
    ],
)
def test_a_limit_that_limits_nothing_is_remarked(tmp_path, monkeypatch, capsys, limits, said):
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(f"{HEAD}checks:\n  warmup:\n    max-first-request: {limits}\n")
    remarks = [f"s.yaml:{line[:5]} `checks.warmup.max-first-request`:{line[5:]}" for line in said]
    assert list(scenario.warnings(scenario.load(Path("s.yaml")))) == remarks
    assert cli.main(["validate", "s.yaml", "--strict"]) == (2 if said else 0)
    out = capsys.readouterr().out
    assert all(line in out for line in remarks)


# --- find


@pytest.fixture
def places(tmp_path, monkeypatch):
    """scenarios/ of the working directory, and one more folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARNESS_SCENARIOS", raising=False)
    for file in ("scenarios/one.yaml", "more/two.yaml", "more/one.yaml", "here.yaml", "tiny_lm_2.yaml"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(HEAD)
    return tmp_path


@pytest.mark.parametrize(
    ("word", "path", "variant"),
    [
        ("scenarios/one.yaml", "scenarios/one.yaml", None),
        ("scenarios/one", "scenarios/one.yaml", None),
        ("./here.yaml[v]", "here.yaml", "v"),
        ("here", "here.yaml", None),
        ("one", "scenarios/one.yaml", None),
        ("one.yaml[mini]", "scenarios/one.yaml", "mini"),
    ],
)
def test_scenarios_are_found(places, word, path, variant):
    assert scenario.find(word) == (Path(path), variant)
    assert scenario.find(word, cwd=places)[1] == variant
    found, _ = scenario.find(f"{places}/{word}" if "/" in word else word)
    assert found.resolve() == places / path


def test_the_projects_own_scenarios_are_found_from_anywhere(places):
    assert scenario.find("tiny_lm")[0] == PROJECT / "scenarios" / "tiny_lm.yaml"
    assert scenario.find("kimi_k3_dspark.yaml[mini]") == (PROJECT / "scenarios" / "kimi_k3_dspark.yaml", "mini")


def test_a_variable_adds_folders(places, monkeypatch):
    with pytest.raises(ScenarioError):
        scenario.find("two")
    monkeypatch.setenv("HARNESS_SCENARIOS", f"{places}/nowhere{os.pathsep}{places}/more")
    assert scenario.find("two")[0] == Path("more/two.yaml")
    assert Path("more/two.yaml") in scenario.available()
    with pytest.raises(ScenarioError) as caught:
        scenario.find("one")
    assert caught.value.what == "one: there are 2 scenarios of this name, scenarios/one.yaml and more/one.yaml"
    assert caught.value.fix == "name the path of one"


def test_one_file_reached_twice_is_one(places):
    assert scenario.find("one", extra=[places / "scenarios", Path("scenarios")])[0] == Path("scenarios/one.yaml")
    (places / "more" / "one.yaml").unlink()
    (places / "more" / "one.yaml").symlink_to(places / "scenarios" / "one.yaml")
    assert scenario.find("one", extra=[places / "more"])[0] == Path("scenarios/one.yaml")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("kimi_k3_dsprk", "kimi_k3_dsprk: no such scenario; did you mean `kimi_k3_dspark`?"),
        ("zzzzzz", "zzzzzz: no such scenario"),
        ("scenarios/onne.yaml", "scenarios/onne.yaml: no such scenario; did you mean `one.yaml`?"),
        ("no/such.yaml", "no/such.yaml: no such scenario"),
        ("./scenarios", "./scenarios: is a folder"),
        ("one[]", "one[]: no variant between the brackets"),
    ],
)
def test_scenarios_that_are_not_there(places, word, message):
    with pytest.raises(ScenarioError) as caught:
        scenario.find(word)
    assert caught.value.what == message
    assert caught.value.fix


# --- what is shipped, with the real checks and runtimes


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_scenario_and_all_its_variants_are_valid(path):
    file = scenario.load_file(path)
    assert file.variants
    for variant in (None, *file.variants):
        loaded = file.scenario(variant)
        assert loaded.name == path.stem.replace("_", "-")
        assert scenario.warnings(loaded) == ()


def test_the_flagship():
    path, variant = scenario.find("kimi_k3_dspark[mini]")
    full, mini = scenario.load(path), scenario.load(path, variant=variant)
    assert (full.needs.words, full.world_size, mini.needs.words, mini.world_size) == (
        "8 GPUs of 130 GiB",
        8,
        "1 GPU of 60 GiB",
        1,
    )
    assert full.serve["speculative-config"] == {
        "model": "RadixArk/Kimi-K3-DSpark",
        "method": "dspark",
        "num_speculative_tokens": 7,
        "draft_sample_method": "probabilistic",
        "rejection_sample_method": "standard",
    }
    assert mini.serve["speculative-config"] == {
        **full.serve["speculative-config"],
        "model": str(PROJECT / "scenarios/models/kimi_k3_mini_dspark"),
    }
    assert (mini.model, mini.serve["load-format"]) == (str(PROJECT / "scenarios/models/kimi_k3_mini"), "dummy")
    assert list(full.checks) == [
        "warmup", "perplexity", "prefix_cache", "spec_decode", "determinism", "same_output", "chat", "load",
        "log_hygiene", "memory", "startup_time",
    ]  # fmt: skip
    assert list(mini.checks) == list(full.checks)
    smaller = "`--variant mini` on one GPU, or `--variant mini-tp2` on 2 GPUs, or `tiny_chat`, or `tiny_lm`"
    assert full.hint(None) == f"try {smaller}"


@pytest.mark.parametrize("ranks", [2, 8])
def test_the_flagship_is_mini_on_several_ranks_too(ranks):
    path, variant = scenario.find(f"kimi_k3_dspark[mini-tp{ranks}]")
    mini, one = scenario.load(path, variant=variant), scenario.load(path, variant="mini")
    assert (mini.needs.gpus, mini.world_size) == (ranks, ranks)
    assert mini.checks == one.checks
    own = {"tensor-parallel-size", "speculative-config"}
    assert {key: value for key, value in mini.serve.items() if key not in own} == {
        key: value for key, value in one.serve.items() if key not in own
    }
    assert mini.serve["speculative-config"] == {
        **one.serve["speculative-config"],
        "model": str(PROJECT / f"scenarios/models/kimi_k3_mini_dspark_tp{ranks}"),
    }


def test_the_siblings():
    load = {path.stem: scenario.load(path) for path in SHIPPED}
    assert load["kimi_k3_dspark_no_prefix_cache"].serve["enable-prefix-caching"] is False
    assert "speculative-config" not in load["kimi_k3_no_spec"].serve
    assert load["kimi_k3_dspark_dcp"].serve["decode-context-parallel-size"] == 8
    assert load["kimi_k3_dspark_dcp"].refs == ("vllm#53598",)


def test_the_byte_tokenizer_is_what_shrink_writes(tmp_path):
    byte_tokenizer.write(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shipped = PROJECT / "scenarios" / "models" / "tiny_lm" / name
        assert shipped.read_bytes() == (tmp_path / name).read_bytes()
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(256))
    assert [vocabulary[name] for name in ("!", "a", "Ġ", "Ċ", "ÿ")] == [0x21, 0x61, 0x20, 0x0A, 0xFF]


# --- JSON Schema


@pytest.fixture(scope="module")
def validator():
    schema = scenario.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_scenarios_fit_the_json_schema(validator, path):
    assert [error.message for error in validator.iter_errors(yaml.safe_load(path.read_text(encoding="utf-8")))] == []


MINIMAL = {"schema": 1, "name": "s", "model": "m"}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"serve": {"a": True, "b": None, "c": [1], "d": {"repeat": ["x"]}, "e": {"j": {"k": None}}}},
        {"checks": {"warmup": {"max-first-request": {"default": "60s", "h200": "20s"}}}},
        {"when": [{"builds": "<1", "serve": {"a": None}, "env": {"A": None}}]},
        {"variants": {"v": {"checks": {"warmup": None, "perplexity": {"max": None}}, "serve": {"replace": {"a": 1}}}}},
        {
            "variants": {
                "v": {"env": {"A": None, "B": {"from": "X"}}, "needs": {"gpus": None}, "budgets": {"stop": "5s"}}
            }
        },
        {"variants": {"v": {"serve": None, "checks": {"replace": {"warmup": {}}}}}},
    ],
)
def test_the_json_schema_accepts(validator, more):
    assert [error.message for error in validator.iter_errors({**MINIMAL, **more})] == []


@pytest.mark.parametrize(
    "more",
    [
        {"modle": "m"},
        {"schema": 2},
        {"name": "a b"},
        {"serve": {"port": 1}},
        {"checks": {"same_output": {"against": {"serve": {"port": 1}}}}},
        {"checks": {"same_output": {"against": {"env": {"A=B": "x"}}}}},
        {"serve": {"tensor_parallel_size": 1}},
        {"serve": {"a": []}},
        {"runtime": "vlm"},
        {"subject": ["x"]},
        {"budgets": {"stop": 5}},
        {"budgets": {"stop": "5min"}},
        {"checks": {"warmpu": {}}},
        {"checks": {"warmup": None}},
        {"checks": {"perplexity": {"max_log_ratio": 1}}},
        {"env": {"A": 1}},
        {"starts": ["hot"]},
        {"variants": {"v": {"name": "x"}}},
        {"variants": {"v": {"serve": {"port": 1}}}},
        {"variants": {"v": {"budgets": {"stop": 5}}}},
        {"variants": {"v": {"checks": {"warmpu": {}}}}},
    ],
)
def test_the_json_schema_refuses(validator, more):
    assert not validator.is_valid({**MINIMAL, **more})


# --- cost


def test_importing_scenarios_is_light():
    heavy = ("requests", "rich", "pytest", "torch", "numpy")
    code = f"import sys, harness.scenario; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=PROJECT)
    assert answer.stdout == "[]\n"


@pytest.mark.slow
def test_two_hundred_files_in_a_second_and_a_half(tmp_path):
    one = "kimi-k3-dspark-no-prefix-cache"  # with one variant
    for number in range(200):
        text = (PROJECT / "scenarios" / "kimi_k3_dspark_no_prefix_cache.yaml").read_text(encoding="utf-8")
        (tmp_path / f"s{number}.yaml").write_text(text.replace(f"name: {one}", f"name: s{number}"), encoding="utf-8")
    shutil.copytree(PROJECT / "scenarios" / "models", tmp_path / "models")
    code = (
        "import sys, time; from pathlib import Path; from harness import scenario\n"
        "files = [scenario.load_file(p) for p in Path(sys.argv[1]).glob('*.yaml')]\n"
        "print(len(files), time.process_time())"  # of the CPU, imports included: other work on the node does not count
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, tmp_path], check=True, capture_output=True, text=True, cwd=PROJECT
    )
    count, seconds = answer.stdout.split()
    assert (count, float(seconds) < 1.5) == ("200", True), seconds
