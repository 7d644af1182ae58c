"""A mini model that takes the code paths of a big one: its config.json, derived from the big one's.

    config.json ─▶ text side ─▶ layers ─▶ ranks ─▶ tokens ─▶ drafter ─▶ Mini ─▶ files

What code paths and kernels are chosen by stays: kinds of layers, head dimensions, convolution widths, activations,
gates, the quantisation's format, how many experts a token has. Counts and widths shrink. A start-up crash seldom needs
weights: `--load-format dummy` does the rest.
"""

from __future__ import annotations

from harness.shrink.mini import Mini, Unknown, shrink

__all__ = ["Mini", "Unknown", "shrink"]
