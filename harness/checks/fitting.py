"""Is a request refused because it is too long for the model? Then the scenario is wrong, and the server is right.

    prompt 12 tokens + `max-tokens` 1024 > 512 that the model takes in all   ─▶ ScenarioError, with what would fit

Asked when a server has refused, not before: one that shortens the answer instead is none to complain about, and one
that crashes in a request of any length is the product's failure. A check that cuts its prompts to size, or would make
huge ones, looks first (prefix_cache, load, determinism, …).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from harness.checks.base import Params, kebab
from harness.client.answers import BadAnswer, RequestFailed
from harness.errors import ScenarioError

if TYPE_CHECKING:
    from harness.client.server_client import ServerClient

PROMPTS = ("prompt", "prompts", "prompt_tokens", "longest_prompt", "long_prompt", "window")
"""Parameters of checks that say how long a prompt is."""


def too_long(refused: RequestFailed, name: str, params: Params, client: ServerClient, *, launch: str = "") -> None:
    """Nothing, unless the model has no room for what was asked.

    `name` is that of the check, `launch` that of a second server.

    Raises:
        ScenarioError: it has not; which parameter of the check it is about, and how much would fit.
    """
    if not (isinstance(refused, BadAnswer) and _is_refusal(refused.status) and "max_tokens" in refused.asked):
        return
    longest, prompt = _sizes(refused, client)
    answer = int(refused.asked["max_tokens"])
    if longest is None or prompt + answer <= longest:
        return
    where = f"check {name}" + (f", the server with {launch}" if launch else "")
    raise ScenarioError(
        f"{where}: a prompt of {prompt} tokens and an answer of {answer} do not fit into the {longest} tokens that the "
        f"model takes in all ({refused})",
        fix=f"{_fix(name, params, longest - prompt)}, or raise its `max-model-len` to {prompt + answer}",
    )


def _is_refusal(status: int) -> bool:
    return HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR


def _sizes(refused: BadAnswer, client: ServerClient) -> tuple[int | None, int]:
    """Tokens that the model takes in all, and of the prompt. One that cannot be counted has at least one."""
    try:
        longest = client.models().max_model_len
    except RequestFailed:
        return None, 1
    try:
        return longest, client.prompt_tokens(refused.asked)
    except RequestFailed:
        return longest, 1


def _fix(name: str, params: Params, room: int) -> str:
    fields = type(params).model_fields
    if room > 0 and "max_tokens" in fields:
        return f"lower `checks.{name}.max-tokens` to {room} at most"
    given = [f"`checks.{name}.{kebab(field)}`" for field in PROMPTS if field in fields]
    return f"shorten {given[0]}" if given else f"take the check `{name}` out"
