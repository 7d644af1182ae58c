"""A night on Buildkite: one step for each scenario, variant and build, one that collects, bisections.

    scenarios, builds ─ jobs ─▶ steps ─ text ─▶ YAML for `buildkite-agent pipeline upload`
                           │
        the same command line with --collect, in the last step:
                           └▶ collect ─▶ artifacts of each job ─▶ JUnit, one annotation a scenario
                                            └ nights: what was green, what was red ─▶ steps of bisections, uploaded

Nothing here knows an API of Buildkite but the words of its agent (`agent.py`).
"""
