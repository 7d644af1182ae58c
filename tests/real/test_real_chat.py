"""The chat check on a real server: a model that knows its answers by heart, and parsers that do not fit it."""

import pytest
from plugins import plugin
from real_runs import SHIPPED, execute

from harness.build import parse
from harness.checks.chat_faults import FAULTS

pytestmark = pytest.mark.real

UNGUIDED = """
def register():
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    guided = ChatCompletionRequest.to_sampling_params

    def unguided(self, *args, **kwargs):
        params = guided(self, *args, **kwargs)
        params.structured_outputs = None
        return params

    ChatCompletionRequest.to_sampling_params = unguided
"""


def chat(done):
    """The result of the check, what it measured, and its faults as (fault, question, answer)."""
    (result,) = [check for check in done.checks if check.name == "chat"]
    measured = {m.name: m.value for m in result.measurements}
    faults = {(f["fault"], f["question"], f["answer"]) for f in result.detail["faults"]}
    print(done.version, result.outcome, result.message, f"{result.seconds} s", measured)
    for fault in result.detail["faults"]:
        print("  ", fault)
    return result, measured, faults


def both(kind, *questions):
    return {(FAULTS[kind], question, how) for question in questions for how in ("plain", "streamed")}


def test_healthy(vllm_build, tmp_path):
    done = execute(vllm_build, tmp_path, name="tiny_chat")
    assert done.verdict == "PASS", done.reason
    result, got, faults = chat(done)
    assert (result.outcome, faults) == ("pass", set())
    assert (got["answers"], got["with_reasoning"], got["with_tool_call"]) == (6, 6, 2)
    assert (got["prompts_shown"], got["streams_compared"]) == (3, 3)


def test_another_tool_parser_leaks_markers(vllm_build, tmp_path):
    """The tool parser knows calls written as Python; the model writes <tool_call>."""
    done = execute(vllm_build, tmp_path, "serve.tool-call-parser=pythonic", name="tiny_chat")
    assert (done.verdict, done.blame, done.signature.kind) == ("FAIL", "product", "check_failed")
    result, got, faults = chat(done)
    assert result.message == "structural markers leaked into the content: 2 of 6 answers"
    assert both("leaked_content", "tool") | both("no_tool_call", "tool") == faults
    assert (got["with_reasoning"], got["with_tool_call"]) == (6, 0)


@pytest.mark.slow
def test_another_reasoning_parser_leaks_markers(vllm_build, tmp_path):
    """The reasoning parser looks for Granite's "Here is my thought process:"; the model writes <think>."""
    done = execute(vllm_build, tmp_path, "serve.reasoning-parser=granite", name="tiny_chat")
    assert (done.verdict, done.blame) == ("FAIL", "product")
    result, got, faults = chat(done)
    assert result.message.startswith(FAULTS["leaked_content"])
    assert both("leaked_content", "echo") | both("no_reasoning", "echo", "tool") <= faults
    assert got["with_reasoning"] == 0


@pytest.mark.slow
def test_an_escaping_template_and_a_schema_that_nobody_holds_to(vllm_build, tmp_path):
    """Two faults in one start: the template escapes the user's text, and a plugin drops `response_format`."""
    template = (SHIPPED / "models" / "tiny_chat" / "chatml.jinja").read_text()
    escaping = tmp_path / "escaping.jinja"
    escaping.write_text(template.replace("{{ message.content }}", "{{ message.content | e }}"))
    words = plugin(tmp_path / "plugin", "harness_test_unguided", UNGUIDED)
    done = execute(vllm_build, tmp_path / "out", f"serve.chat-template={escaping}", words, name="tiny_chat")
    assert (done.verdict, done.blame) == ("FAIL", "product")
    result, got, faults = chat(done)
    assert result.message == "markup of the user's text is escaped in the prompt: 2 of 3 prompts"
    assert {(FAULTS["escaped_prompt"], question, "plain") for question in ("echo", "tool")} <= faults
    assert both("not_json", "schema") <= faults
    assert (got["escaped"] >= 2, got["broken_json"]) == (True, 2)


@pytest.mark.slow
def test_the_parsers_of_kimi_k3(vllm_build, tmp_path):
    done = execute(vllm_build, tmp_path, name="tiny_chat", variant="kimi_k3")
    assert done.verdict == "PASS", done.reason
    _, got, _ = chat(done)
    assert (got["with_reasoning"], got["with_tool_call"], got["streams_compared"]) == (6, 2, 3)


@pytest.mark.slow
def test_dummy_weights_are_asked_and_judged_by_form(vllm_build, tmp_path):
    done = execute(vllm_build, tmp_path, name="tiny_chat", variant="dummy")
    assert done.verdict == "PASS", done.reason
    result, got, _ = chat(done)
    assert (result.outcome, got["answers"], got["prompts_shown"]) == ("pass", 6, 3)


@pytest.mark.slow
@pytest.mark.parametrize("release", ["0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0"])
def test_every_release_takes_them_apart(tmp_path, release):
    done = execute(parse(f"release:{release}+cpu"), tmp_path, name="tiny_chat")
    assert done.verdict == "PASS", done.reason
    _, got, _ = chat(done)
    assert (got["with_reasoning"], got["with_tool_call"], got["streams_compared"]) == (6, 2, 3)
