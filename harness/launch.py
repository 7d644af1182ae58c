"""The planned command. Pure: nothing here starts or opens anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Everything that the server process is given."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """The complete environment of the child; never written anywhere."""
    recorded_env: Mapping[str, str]
    """The part of it that may be written (set by the scenario, by us, or on the allow list), unmasked."""
    host: str
    port: int
    served_model_name: str
    """Unique to this launch, so that an answer from somebody else's server is noticed."""
    secrets: tuple[str, ...] = ()
    """Values that become *** in every written byte."""
    applied: tuple[str, ...] = field(default_factory=tuple)
    """The `when` rules that matched this build, as sentences."""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"
