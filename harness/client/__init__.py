"""The harness as a client of the server: all HTTP to servers, with explicit connect and read deadlines."""

from harness.client.answers import BadAnswer, Completion, ModelInfo, RequestFailed, RequestTimedOut, ServerGone
from harness.client.server_client import Prompt, ServerClient

__all__ = [
    "BadAnswer",
    "Completion",
    "ModelInfo",
    "Prompt",
    "RequestFailed",
    "RequestTimedOut",
    "ServerClient",
    "ServerGone",
]
