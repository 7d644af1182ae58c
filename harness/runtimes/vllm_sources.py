"""What in vLLM's repository ends up in a wheel, and how: for builds whose Python sources come from a commit."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

NATIVE = (
    "CMakeLists.txt",
    "cmake/",
    "csrc/",
    "requirements/",
    "rust/",
    "setup.py",
    "*.c", "*.cc", "*.cpp", "*.cu", "*.cuh", "*.h", "*.hip", "*.hpp", "*.rs",
    ":(exclude)requirements/*dev*", ":(exclude)requirements/*docs*", ":(exclude)requirements/*lint*",
    ":(exclude)requirements/*test*",
)  # fmt: skip
"""Git's pathspecs of what is compiled into a release, or decides what is installed beside it: an overlay of Python
sources has these as they were in the base."""

GENERATED = ("vllm/_version.py",)
"""Python files that no commit has and every wheel does, where the repository's own .gitignore does not say so."""


def version_of_tag(tag: str) -> Version | None:
    """The release of a tag such as `v0.30.0`; None: a pre-release, which has no wheel that could be a base, or none."""
    try:
        version = Version(tag)
    except InvalidVersion:
        return None
    return None if version.is_prerelease or version.local else version


def tag_of(version: str) -> str:
    """The tag of a release."""
    return f"v{version}"
