"""Pages in a real browser: nothing is fetched, nothing of a log runs, 50 MB of log stay usable, every width and light.

Skipped where there is no Chromium, or no playwright to drive it.
"""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager

import pages
import pytest
import runs

from harness import report
from harness.bisect import rendering
from harness.record import load
from harness.report.html import run_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'harness[browser]'")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")

KINDS = ("passed", "crashed", "hung", "regressed", "bisected", "night", "hostile")
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
BIG_LINES = 500_000
EVIL = (
    b"</script><script>window.hit = 1</script>\n<img src=x onerror='window.hit = 2'>\n"
    b"</details></pre><svg onload='window.hit = 3'>\n\x1b[31m\x00\xff {{ 7 * 7 }} ${7 * 7} &lt;b&gt;\n"
    b"<a href='https://example.org/'>x</a><style>*{display:none}</style>\n"
)
RATIO = """() => {
  const part = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const level = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).map((c) => part(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = getComputedStyle(node).backgroundColor;
      if (!/rgba\\(.*, 0\\)/.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const shown = [...document.querySelectorAll("main *")].filter((n) => !n.closest("svg") && n.checkVisibility());
  return shown.map((node) => {
    const [a, b] = [level(getComputedStyle(node).color), level(behind(node))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), node.tagName + "." + node.className];
  }).sort((x, y) => x[0] - y[0])[0];
}"""
"""The worst contrast of a page, and where."""


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A page of each kind."""
    out = tmp_path_factory.mktemp("reports")
    made = {}
    for kind in ("passed", "crashed", "hung", "regressed"):
        folder = pages.put(getattr(pages, kind)(), out)
        report.render(folder)
        made[kind] = folder / "report.html"
    told = pages.bisected()
    folder = pages.put_bisection(told, out)
    rendering.write(told, folder)
    made["bisected"] = folder / "report.html"
    made["night"] = out / "all.html"
    report.write_html(pages.night(out, 6), made["night"])
    folder = runs.write(runs.hostile(evidence=((2, 4),)), out, log=EVIL)
    report.render(folder)
    made["hostile"] = folder / "report.html"
    return made


@contextmanager
def opened(browser, file, **words):
    """The page, with what it asked for beyond itself and what its console said."""
    context = browser.new_context(**{"viewport": DESK, **words})
    page = context.new_page()
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_load_state("load")
    yield page
    context.close()
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]


def lines(page) -> list[str]:
    return page.locator(".lines .row").all_inner_texts()


def pixels(page, css: str) -> str:
    return page.evaluate(f"getComputedStyle(document.body).getPropertyValue('{css}')")


@pytest.mark.parametrize("kind", KINDS)
def test_it_asks_for_nothing_and_fits_a_phone_and_a_desk_in_both_lights(browser, files, kind):
    for size in (PHONE, DESK):
        for scheme in ("light", "dark"):
            with opened(browser, files[kind], viewport=size, color_scheme=scheme) as page:
                page.locator("details").evaluate_all("all => all.forEach((each) => { each.open = true; })")
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= size["width"], "no scrolling sideways"
                dark = sum(map(int, re.findall(r"\d+", pixels(page, "background-color"))[:3])) < 3 * 128
                assert dark == (scheme == "dark")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(browser, files, scheme):
    """4.5 to 1, the ratio of WCAG 2.2, for every colour of text on what is behind it."""
    for kind in ("crashed", "night", "bisected"):
        with opened(browser, files[kind], color_scheme=scheme) as page:
            worst, where = page.evaluate(RATIO)
            assert worst >= 4.5, where


def test_nothing_of_a_log_runs_or_becomes_markup(browser, files):
    with opened(browser, files["hostile"]) as page:
        page.locator("details").evaluate_all("all => all.forEach((each) => { each.open = true; })")
        shown = lines(page)
        assert any("</script><script>window.hit = 1</script>" in line for line in shown)
        assert any("␛[31m␀\\xff {{ 7 * 7 }}" in line for line in shown)
        page.locator(".find").fill("<img")
        page.locator(".said", has_text="1 of 1 lines").wait_for()
        page.locator(".row.here").click()
        assert "<img src=x onerror='window.hit = 2'>" in page.locator("pre.line").inner_text()
        assert page.evaluate("window.hit") is None
        assert page.locator("main img, main a[href^=http], main svg[onload], main style").count() == 0


def test_an_inline_script_that_got_in_would_not_run(browser, files, tmp_path):
    """The policy of the page itself, should escaping ever fail."""
    file = tmp_path / "broken.html"
    text = files["passed"].read_text()
    file.write_text(text.replace("</main>", "<script>window.hit = 1</script><img src='http://127.0.0.1:9/x'></main>"))
    page = browser.new_page()
    asked = []
    page.on("requestfinished", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    assert page.evaluate("window.hit") is None
    assert not any("127.0.0.1" in url for url in asked)
    page.close()


def test_the_log_opens_at_the_cause_and_can_be_searched(browser, files):
    count = sum(b"attributeerror" in line.lower() for line in pages.CRASH.read_bytes().splitlines())
    with opened(browser, files["crashed"]) as page:
        page.locator(".row.cause").first.wait_for()
        assert any(re.match(r"▶\s+72\b", line) for line in lines(page))
        page.locator(".find").fill("AttributeError")
        page.locator(".said", has_text=f"3 of {count} lines").wait_for()  # two are above the cause
        assert page.locator(".row.here mark").first.inner_text() == "AttributeError"
        page.locator(".next").click()
        page.locator(".said", has_text=f"4 of {count} lines").wait_for()
        page.locator(".only").check()
        page.wait_for_function(f"document.querySelectorAll('.lines .row').length === {count}")
        page.locator(".find").fill("/Worker_TP[01] .*layer_names/")
        page.locator(".said", has_text="of 8 lines").wait_for()
        page.locator(".find").fill("/(/")
        page.locator(".said", has_text="not a pattern").wait_for()
        page.locator(".find").fill("no such words")
        page.locator(".said", has_text="nothing found").wait_for()
        page.locator("button.cause").click()
        page.locator(".row.cause").first.wait_for()


def test_fifty_megabytes_of_log(browser, tmp_path):
    """Opened, scrolled to both ends, and searched, with no more than a screen of it in the document."""
    line = "(EngineCore pid=4200) INFO 11-30 21:03:%02d [loggers.py:257] Avg throughput: %d.7 tokens/s, running: 3 %s\n"
    log = "".join(line % (n % 60, n, "x" * (n % 20)) for n in range(1, BIG_LINES + 1)).encode()
    assert len(log) > 50e6
    at = BIG_LINES // 2
    folder = runs.write(runs.failed_at_startup(evidence=((at, at + 3),)), tmp_path, log=log)
    text = run_page.render(load(folder), folder)
    (folder / "report.html").write_text(text)
    assert len(text) < 24e6
    with opened(browser, folder / "report.html") as page:
        page.locator(".row.cause").first.wait_for()
        assert page.evaluate("document.querySelectorAll('*').length") < 1_000
        page.locator("button.end").click()
        page.locator(".row", has_text=f"throughput: {BIG_LINES}.7").wait_for()
        page.locator("button.top").click()
        page.locator(".row", has_text="throughput: 1.7 ").wait_for()
        page.locator(".find").fill(f"throughput: {at + 7}.7 ")
        page.locator(".said", has_text="1 of 1 lines").wait_for()
        assert f"{at + 7}" in page.locator(".row.here").inner_text()
        page.locator(".goto").fill("123456")
        page.locator(".goto").press("Enter")
        page.locator(".row", has_text="throughput: 123456.7 ").wait_for()
        page.locator(".lines").evaluate("box => { box.scrollTop = box.scrollHeight; }")
        page.locator(".row", has_text=f"throughput: {BIG_LINES}.7").wait_for()
        assert page.evaluate("document.querySelectorAll('*').length") < 1_000


def test_on_paper_the_log_is_an_excerpt_and_what_was_folded_is_open(browser, files):
    with opened(browser, files["crashed"]) as page:
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert not page.locator(".viewer").first.is_visible()
        assert page.locator("pre.printed").first.is_visible()
        assert "AttributeError" in page.locator("pre.printed").first.inner_text()
        folded = page.locator("details.print")
        assert all(folded.evaluate_all("all => all.map((each) => each.open)"))
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert not all(folded.evaluate_all("all => all.map((each) => each.open)"))
        assert page.pdf().startswith(b"%PDF")


def test_without_scripts_everything_but_the_search_is_there(browser, files):
    with opened(browser, files["crashed"], java_script_enabled=False) as page:
        assert page.locator("pre.printed").first.is_visible()
        assert not page.locator(".viewer").first.is_visible()


def test_a_command_is_copied_and_rows_are_filtered(browser, files):
    with opened(browser, files["passed"]) as page:
        page.locator("[data-copy=again]").click()
        page.locator("[data-copy=again]", has_text="Copied").wait_for()
    with opened(browser, files["night"]) as page:
        page.locator(".filter").fill("OTHER pass")
        page.locator("#runs-said", has_text="5 of 18 shown").wait_for()
        assert page.locator("#runs tbody tr:visible").count() == 5
