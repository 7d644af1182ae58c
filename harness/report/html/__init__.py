"""One self-contained HTML file for a run, for many runs, for a bisection: no network, no request, nothing beside it.

    run.json ─▶ facts ─┬─ plots (SVG) ─┐
    server.log ─ log ──┴───────────────┴─▶ page: templates + page.css + page.js ─▶ report.html

Text of servers reaches a page in two ways only: through a template that escapes it (`page`), or compressed and as
base64 (`log`), from which page.js makes text nodes. The page's own policy lets no other script run and nothing be
fetched.
"""
