"""A night without a CI: the newest builds, what is new of them, what turned red, and which build brought it.

    CONFIG ─ config ─▶ watching ─▶ newest builds ─▶ night ─▶ rows ─▶ judging ─▶ news ─┬─▶ bisecting, within a budget
                                                      │                              ├─▶ story: nightly.json, nightly.md
                                 runs on disk ◀───────┴──────────────────────────────┴─▶ notify: JSON on stdin

The runs on disk say what was done: asking again runs nothing again, and a call that was killed goes on.
"""
