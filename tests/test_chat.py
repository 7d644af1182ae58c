"""The chat check against a server in this process: healthy, and each thing that can be wrong with it."""

import hashlib
import html
import json
from pathlib import Path

import pytest
from answering import MODEL, Answering, Reply, context
from chatting import ARGUMENTS, GOOD, JSON, PATH, detokenize, model

from harness import scenario
from harness.checks import CHECKS, chat_markup
from harness.checks.chat_faults import FAULTS, ChatParams
from harness.checks.chat_judgement import COUNTED
from harness.checks.chat_questions import ECHO_QUESTION, SCHEMA_QUESTION, TOOL, TOOL_QUESTION
from harness.client.answers import BadAnswer
from harness.client.server_client import ServerClient

SCENARIOS = Path(__file__).parents[1] / "scenarios"
ALL = ("echo", "tool", "schema")
MARKUP = ECHO_QUESTION.markup


def checked(route, *, params=None, other=None):
    routes = {f"POST {PATH}": route, "POST /detokenize": detokenize, **(other or {})}
    with Answering(routes).serving() as server:
        client = ServerClient(server.url, MODEL, request_seconds=5)
        result = CHECKS["chat"].run(context(client, ChatParams(**(params or {}))))
        return result, server


def only(question, **parts):
    """The model, whose answers to one question have other parts."""
    return model(lambda asked, _: parts if asked == question else None)


def values(result):
    return {m.name: m.value for m in result.measurements}


def test_healthy():
    result, server = checked(model())
    assert (result.outcome, result.request) == ("pass", None)
    assert result.message == (
        "6 answers: 6 with reasoning, 2 with a tool call, no marker leaked, "
        "markup is text in 3 of 3 prompts, 3 of 3 streams compared and equal"
    )
    assert values(result) | {"slowest": 0} == {
        "answers": 6, "with_reasoning": 6, "with_tool_call": 2, "prompts_shown": 3, "streams_compared": 3,
        "leaked": 0, "escaped": 0, "cut": 0, "streams_different": 0, "broken_json": 0, "other_faults": 0, "slowest": 0,
    }  # fmt: skip
    bodies = server.bodies(PATH)
    assert sorted(bool(body.get("stream")) for body in bodies) == [False] * 3 + [True] * 3
    assert {body["max_tokens"] for body in bodies} == {1024}
    assert all(body["temperature"] == 0 and body["return_token_ids"] for body in bodies)


FAULTY = {
    "escaped_prompt": model(prompt=html.escape),
    "lost_prompt": model(prompt=lambda _: "<|im_start|>user\n<|im_end|>"),
    "leaked_content": only("tool", content='<tool_call>\n{"name": "f"}\n</tool_call>', tool_calls=[]),
    "leaked_reasoning": only("echo", reasoning="<|open|>think<|sep|>Hm"),
    "leaked_arguments": only("tool", tool_calls=[{"name": TOOL, "arguments": '{"query": "a</tool_call>"}'}]),
    "escaped_answer": only("echo", content=f"{MARKUP} {html.escape(MARKUP)}"),
    "cut": only("schema", content='{"capital": "Pa', finish_reason="length"),
    "no_reasoning": only("echo", reasoning=None),
    "no_tool_call": only("tool", content="It is there.", tool_calls=[]),
    "other_tool": only("tool", tool_calls=[{"name": TOOL, "arguments": '{"text": "x"}'}]),
    "no_echo": only("echo", content="Smith and Sons"),
    "not_json": only("schema", content="The capital is Paris."),
    "other_json": only("schema", content='{"capital": "Paris", "inhabitants": "many"}'),
    "finish": only("tool", finish_reason="stop"),
    "stream": model(lambda asked, streamed: {"content": "It is "} if streamed and asked == "tool" else None),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_is_the_sentence(kind):
    result, _ = checked(FAULTY[kind])
    count = {"escaped_prompt": "2 of 3 prompts", "lost_prompt": "3 of 3 prompts", "stream": "1 of 6 answers"}
    assert (result.outcome, result.message) == ("fail", f"{FAULTS[kind]}: {count.get(kind, '2 of 6 answers')}")
    assert 1 <= result.request <= 6
    assert result.detail["faults"][0]["fault"] == FAULTS[kind]
    assert result.detail["faults"][0]["shown"]


BROKEN = {
    "leaked_content": ["with_tool_call", "leaked"],
    "no_reasoning": ["with_reasoning"],
    "no_tool_call": ["with_tool_call"],
    "escaped_answer": ["escaped"],
    "cut": ["cut", "broken_json"],
    "stream": ["streams_different"],
    "not_json": ["broken_json"],
    "no_echo": ["other_faults"],
}


@pytest.mark.parametrize("kind", BROKEN)
def test_measurements_beyond_their_limits(kind):
    result, _ = checked(FAULTY[kind])
    assert [m.name for m in result.measurements if not m.ok] == BROKEN[kind]


@pytest.mark.parametrize(
    "arguments", ["no JSON", "[1]", '{"query": 3}', '{"query": "x", "more": 1}', "{}", '"a string"']
)
def test_arguments_that_do_not_fit(arguments):
    result, _ = checked(only("tool", tool_calls=[{"name": TOOL, "arguments": arguments}]))
    assert result.message == f"{FAULTS['other_tool']}: 2 of 6 answers"


@pytest.mark.parametrize("content", ["[1]", "3", "", '{"capital": "Paris"', f"```json\n{JSON}\n```"])
def test_content_that_is_no_json_object(content):
    result, _ = checked(only("schema", content=content))
    assert result.message == f"{FAULTS['not_json']}: 2 of 6 answers"


@pytest.mark.parametrize("content", ["{}", '{"capital": "Paris", "inhabitants": true}', JSON[:-1] + ', "x": 1}'])
def test_json_that_does_not_follow_its_schema(content):
    result, _ = checked(only("schema", content=content))
    assert result.message == f"{FAULTS['other_json']}: 2 of 6 answers"


def test_the_cause_stands_before_what_follows_from_it():
    leaks = "<think>\nHm\n</think>\n\n" + MARKUP
    result, _ = checked(only("echo", content=leaks, reasoning=None))
    assert result.message == f"{FAULTS['leaked_content']}: 2 of 6 answers"
    kinds = [fault["fault"] for fault in result.detail["faults"]]
    assert kinds == [FAULTS["leaked_content"]] * 2 + [FAULTS["no_reasoning"]] * 2
    assert "<think> </think> (think: parsers deepseek_r1" in result.detail["faults"][0]["shown"]


def test_a_scenarios_own_markers():
    route = only("echo", content=f"[[answer]] {MARKUP}")
    assert checked(route)[0].outcome == "pass"
    result, _ = checked(route, params={"markers": ["[[answer]]"]})
    assert result.message == f"{FAULTS['leaked_content']}: 2 of 6 answers"
    assert checked(model(), params={"markers": ["<b>"]})[0].outcome == "pass", "the user's own text has it"


def test_parts_that_are_off_are_not_asked():
    result, server = checked(only("echo", reasoning=None), params={"reasoning": False, "tools": False})
    assert (result.outcome, values(result)["answers"]) == ("pass", 4)
    assert not any("tools" in body for body in server.bodies(PATH))
    result, server = checked(model(), params={"json_schema": False})
    assert (result.outcome, len(server.bodies(PATH))) == ("pass", 4)
    assert not any("response_format" in body for body in server.bodies(PATH))


# --- streams


def test_a_stream_of_other_tokens_is_judged_alone():
    other = model(lambda _, streamed: {"tokens": [9], "reasoning": "Otherwise."} if streamed else None)
    result, _ = checked(other)
    assert (result.outcome, values(result)["streams_compared"]) == ("pass", 0)
    assert result.message.endswith("0 of 3 streams compared and equal")
    assert result.detail["same_tokens"] == dict.fromkeys(ALL, False)


def test_white_space_around_a_part_and_the_writing_of_arguments_do_not_count():
    spaced = {"content": "\n\n", "tool_calls": [{"name": TOOL, "arguments": ARGUMENTS.replace(": ", ":  ")}]}
    result, _ = checked(model(lambda asked, streamed: spaced if streamed and asked == "tool" else None))
    assert result.outcome == "pass"


@pytest.mark.parametrize(
    ("plain", "streamed", "outcome"),
    [
        ("abc <", "abc ", "pass"),
        ("abc <|tool", "abc", "pass"),
        ("abc", "abc", "pass"),
        ("abc d", "abc", "fail"),
        ("ab", "abc", "fail"),
    ],
)
def test_a_stream_that_was_cut_may_hold_back_what_could_be_a_marker(plain, streamed, outcome):
    cut = model(lambda _, s: {"content": streamed if s else plain, "tool_calls": [], "finish_reason": "length"})
    result, _ = checked(cut, params={"dummy_weights": True})
    assert result.outcome == outcome


# --- dummy weights


def rubbish(**parts):
    """What random weights write, in all answers."""
    random = {"content": "qk\x00<5\\", "reasoning": "ÿ&x", "tool_calls": [], "finish_reason": "length", **parts}
    return model(lambda *_: random)


def test_dummy_weights_are_judged_by_form_alone():
    result, server = checked(rubbish(), params={"dummy_weights": True, "max_tokens": 8})
    assert result.outcome == "pass"
    assert "form alone judged (dummy weights)" in result.message
    assert len([body for body in server.bodies(PATH) if "tools" in body]) == 2, "parsers are exercised all the same"
    assert checked(rubbish())[0].message == f"{FAULTS['cut']}: 6 of 6 answers", "as trained ones they would fail"


def test_random_markers_are_no_leak_and_their_streams_are_not_compared():
    written = "a</tool_call>b"
    cut = {"tokens": list(written.encode()), "tool_calls": [], "finish_reason": "length"}
    both = model(lambda _, streamed: {**cut, "content": "x" if streamed else written})
    result, _ = checked(both, params={"dummy_weights": True})
    assert (result.outcome, values(result)["streams_compared"]) == ("pass", 0)


def test_parts_of_random_text_may_differ_in_a_stream_but_nothing_may_be_missing():
    """As kimi_k3 of 0.30.0: in the stream all is reasoning, whole it is content, for its end never came."""
    parts = {"tool_calls": [], "finish_reason": "length"}
    moved = model(lambda _, s: {**parts, "reasoning": "qkx" if s else None, "content": None if s else "qkx"})
    assert checked(moved, params={"dummy_weights": True})[0].outcome == "pass"
    assert checked(moved)[0].outcome == "fail"
    missing = model(lambda _, s: {**parts, "reasoning": "q" if s else None, "content": None if s else "qkx"})
    result, _ = checked(missing, params={"dummy_weights": True})
    assert (result.outcome, result.message.partition(":")[0]) == ("fail", FAULTS["stream"])


@pytest.mark.parametrize("kind", ["escaped_prompt", "lost_prompt", "escaped_answer", "finish", "stream"])
def test_what_needs_no_sense_fails_with_dummy_weights_too(kind):
    result, _ = checked(FAULTY[kind], params={"dummy_weights": True})
    assert (result.outcome, result.message.partition(":")[0]) == ("fail", FAULTS[kind])


# --- what the server does not say


@pytest.mark.parametrize("hidden", [{"prompt": lambda _: None}, {}])
def test_without_prompts_the_line_that_came_back_shows_it(hidden):
    no_route = {} if hidden else {"POST /detokenize": lambda _: Reply({"detail": "Not Found"}, status=404)}
    result, _ = checked(model(**hidden), other=no_route)
    assert (result.outcome, values(result)["prompts_shown"]) == ("pass", 0)
    assert "markup is text in 0 of 3 prompts" in result.message


def test_without_prompts_and_without_sense_it_is_said_that_nothing_was_shown():
    hidden = model(lambda *_: {"content": "x", "tool_calls": [], "finish_reason": "length"}, prompt=lambda _: None)
    result, _ = checked(hidden, params={"dummy_weights": True})
    assert result.outcome == "not_tested"
    assert result.message.startswith("not shown that markup stays text")


def test_an_error_of_the_server_is_no_judgement_of_ours():
    broken = {"POST /detokenize": lambda _: Reply({"detail": "boom"}, status=500)}
    with pytest.raises(BadAnswer, match="POST /detokenize answered HTTP 500: boom"):
        checked(model(), other=broken)
    with pytest.raises(BadAnswer, match=r"answered HTTP 400: no chat template") as caught:
        checked(lambda _: Reply({"error": {"message": "no chat template"}}, status=400))
    assert caught.value.request in range(1, 7)


# --- markup


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (f"x{MARKUP}y", "whole"), (MARKUP.replace(" ", "  "), "whole"), (html.escape(MARKUP), "escaped"),
        (html.escape(MARKUP, quote=False), "escaped"), (html.escape(html.escape(MARKUP)), "escaped"),
        (MARKUP.replace("<", r"\u003c").replace("&", r"\u0026"), "escaped"), (MARKUP.replace('"', r"\""), "escaped"),
        ("Smith", "absent"),
    ],
)  # fmt: skip
def test_how_markup_is_in_a_text(text, where):
    assert chat_markup.find(MARKUP, text) == where


MARKERS = (
    ("<think>", "think"),
    ("</think>", "think"),
    ("<tool_call>", "tool_call"),
    ("</tool_calls>", "tool_call"),
    ("<function=f>", "function"),
    ("</parameter>", "function"),
    ("<arg_key>", "glm"),
    ("<|open|>", "kimi_k3"),
    ("<|tool_calls_section_begin|>", "kimi_k2"),
    ("<|tool_call_argument_begin|>", "kimi_k2"),
    ("<\uff5ctool\u2581calls\u2581begin\uff5c>", "deepseek"),
    ("<|channel|>", "harmony"),
    ("<|python_tag|>", "llama"),
    ("[TOOL_CALLS]", "mistral"),
    ("[/THINK]", "mistral"),
    ("<seed:think>", "seed"),
    ("<minimax:tool_call>", "minimax"),
    ("<|tool_call>", "gemma"),
    ("<|START_THINKING|>", "cohere"),
    ("<ifm|think>", "k2_horizon"),
    ("<function_calls>", "olmo"),
    ("<longcat_tool_call>", "longcat"),
    ("<|im_start|>", "turns"),
    ("<|plugin|>", "any other"),
)


@pytest.mark.parametrize(("text", "family"), MARKERS)
def test_a_marker_of_each_family(text, family):
    ((found, words),) = chat_markup.leaks(f"a {text} b").items()
    assert (found, words.partition(":")[0]) == (text, family)
    assert not chat_markup.leaks(text, user=f"what is {text}?")


def test_each_family_has_a_marker_here():
    assert {family.name for family in chat_markup.FAMILIES} == {family for _, family in MARKERS}


@pytest.mark.parametrize(
    "text", [MARKUP, "a < b && c > d | e", "[x] {y} <b>", "if a<b: f(c)|g", "List<String>", "&c; R&D;"]
)
def test_plain_markup_is_no_marker_and_no_entity(text):
    assert (dict(chat_markup.leaks(text)), chat_markup.escapes(text)) == ({}, ())


@pytest.mark.parametrize("text", ["&lt;", "&gt;", "&amp;", "&quot;", "&#39;", "&#x27;", "&#X3C;", "&#034;", r"\u003e"])
def test_an_entity_of_each_kind(text):
    assert chat_markup.escapes(f"a{text}b") == (text,)


# --- what is shipped


def test_the_questions_hold_every_character_of_markup_and_no_word_of_json():
    assert set('<>&"') <= set(ECHO_QUESTION.markup)
    assert set('<>&"') <= set(TOOL_QUESTION.markup)
    assert "json" not in SCHEMA_QUESTION.text.lower()


def test_the_tiny_model_knows_these_questions():
    trained = json.loads((SCENARIOS / "models" / "tiny_chat" / "training.json").read_text())
    asked = [[q.text, dict(q.extra)] for q in (ECHO_QUESTION, TOOL_QUESTION, SCHEMA_QUESTION)]
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    assert trained["questions"] == digest, "train it again: scenarios/models/tiny_chat/train.py"
    weights = SCENARIOS / "models" / "tiny_chat" / "model.safetensors"
    assert trained["sha256"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert weights.stat().st_size < 1_000_000


def test_the_tokenizers_template_is_the_one_beside_it():
    folder = SCENARIOS / "models" / "tiny_chat"
    given = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    assert given == (folder / "chatml.jinja").read_text()


@pytest.mark.parametrize("variant", [None, "eager", "kimi_k3", "dummy"])
def test_the_scenario_asks_for_all_parts(variant):
    params = scenario.load(SCENARIOS / "tiny_chat.yaml", variant=variant).checks["chat"]
    assert (params.reasoning, params.tools, params.json_schema) == (True, True, True)
    assert params.dummy_weights == (variant == "dummy")


@pytest.mark.parametrize("params", [{"max_tokens": 0}, {"markers": [""]}, {"reasoning": "yes"}, {"nonsense": 1}])
def test_bad_parameters_are_refused(params):
    with pytest.raises(ValueError, match="validation error"):
        ChatParams(**params)


def test_every_fault_has_its_case():
    assert set(FAULTY) == set(FAULTS)
    counted = [kind for kinds in COUNTED.values() for kind in kinds]
    assert sorted([*counted, "no_reasoning", "no_tool_call"]) == sorted(FAULTS)
    assert set(GOOD) == set(ALL)
