"""A Build made runnable: cached, locked against a second builder, verified, sharing its content, prunable."""

from harness.environment.envcache import Listed, cache_root, list_environments
from harness.environment.model import Environment
from harness.environment.providing import from_lock, in_use, provide, write_lock
from harness.environment.pruning import Pruned, prune

__all__ = [
    "Environment",
    "Listed",
    "Pruned",
    "cache_root",
    "from_lock",
    "in_use",
    "list_environments",
    "provide",
    "prune",
    "write_lock",
]
