"use strict";
(() => {
  document.documentElement.classList.add("js");
  const ROW = 18, MOST_PX = 8e6, SHOWN = 2000, MOST_HITS = 200000, KEPT = 12;

  // --- copy, print, filter

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const from = document.getElementById(button.dataset.copy);
      let done = false;
      try { await navigator.clipboard.writeText(from.textContent); done = true; } catch { /* no secure context */ }
      if (!done) {
        getSelection().selectAllChildren(from);
        done = document.execCommand("copy");
      }
      button.textContent = done ? "Copied" : "Selected";
    });
  }

  const opened = [];
  addEventListener("beforeprint", () => {
    const closed = [...document.querySelectorAll("details.print:not([open]), details.log:not([open])")];
    for (const each of closed) each.open = true;
    opened.push(...closed);
  });
  addEventListener("afterprint", () => { for (const each of opened.splice(0)) each.open = false; });

  for (const input of document.querySelectorAll("input.filter")) {
    const rows = [...document.querySelectorAll(`#${input.dataset.of} tbody tr`)];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const said = document.getElementById(`${input.dataset.of}-said`);
    input.hidden = false;
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, at) => {
        row.hidden = !words.every((word) => texts[at].includes(word));
        shown += !row.hidden;
      });
      said.textContent = words.length ? `${shown} of ${rows.length} shown` : "";
    });
  }

  // --- a log: chunks are opened when somebody looks at them

  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

  async function inflate(text) {
    const stream = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  }

  class Log {
    constructor(box) {
      this.box = box;
      this.chunks = [...box.querySelectorAll("script.chunk")].map((node) => ({
        node, first: +node.dataset.first, lines: +node.dataset.lines, size: +node.dataset.size, gap: !node.textContent,
      }));
      // A gap is one row, whatever is missing in it.
      let row = 0;
      for (const chunk of this.chunks) { chunk.row = row; row += chunk.gap ? 1 : chunk.lines; }
      this.rows = row;
      this.evidence = JSON.parse(box.querySelector("script.evidence").textContent);
      this.open = new Map();
      this.hits = []; this.hit = -1; this.only = false; this.here = 0; this.pattern = null; this.asked = 0;
      this.view = box.querySelector(".lines");
      this.gutter = String(+box.dataset.lines).length;
      this.space = document.createElement("div");
      this.pane = document.createElement("div");
      this.pane.className = "pane";
      this.view.append(this.space, this.pane);
      this.listen();
      box.querySelector(".viewer").hidden = false;
      this.sized();
      this.go(+box.dataset.at);
      box.addEventListener("toggle", () => box.open && this.show(this.rowOf(this.here)), { once: true });
    }

    get(name) { return this.box.querySelector(`.${name}`); }
    say(text) { this.get("said").textContent = text; }
    get count() { return this.only ? this.hits.length : this.rows; }

    listen() {
      this.view.addEventListener("scroll", () => this.draw());
      new ResizeObserver(() => this.draw()).observe(this.view);
      let timer = 0;
      this.get("find").addEventListener("input", (event) => {
        clearTimeout(timer);
        timer = setTimeout(() => this.search(event.target.value), 150);
      });
      this.get("find").addEventListener("keydown", (event) => {
        if (event.key === "Enter") { event.preventDefault(); this.step(event.shiftKey ? -1 : 1); }
      });
      this.get("next").addEventListener("click", () => this.step(1));
      this.get("prev").addEventListener("click", () => this.step(-1));
      this.get("top").addEventListener("click", () => this.go(1));
      this.get("end").addEventListener("click", () => this.go(+this.box.dataset.lines));
      this.get("cause")?.addEventListener("click", () => this.go(this.evidence[0][0]));
      this.get("goto").addEventListener("change", (event) => this.go(Math.trunc(+event.target.value) || 1));
      this.get("only").addEventListener("change", (event) => {
        this.only = event.target.checked;
        this.sized();
        this.show(this.only ? Math.max(this.hit, 0) : this.rowOf(this.here));
      });
      this.pane.addEventListener("click", (event) => {
        const row = event.target.closest(".row");
        if (row && row.dataset.row) this.whole(+row.dataset.row);
      });
    }

    chunkOf(row) {
      let low = 0, high = this.chunks.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (this.chunks[middle].row <= row) low = middle; else high = middle - 1;
      }
      return this.chunks[low];
    }

    rowOf(line) {
      const chunk = this.chunks.find((each) => line < each.first + each.lines) ?? this.chunks.at(-1);
      return chunk.gap ? chunk.row : chunk.row + Math.min(Math.max(line - chunk.first, 0), chunk.lines - 1);
    }

    lineOf(row) {
      const chunk = this.chunkOf(row);
      return chunk.first + (chunk.gap ? 0 : row - chunk.row);
    }

    async lines(chunk) {
      let found = this.open.get(chunk);
      if (!found) {
        found = inflate(chunk.node.textContent).then((text) => text.split("\n"));
        this.open.set(chunk, found);
        if (this.open.size > KEPT) this.open.delete(this.open.keys().next().value);
      }
      return found;
    }

    async text(row) {
      const chunk = this.chunkOf(row);
      if (chunk.gap) {
        const last = (chunk.first + chunk.lines - 1).toLocaleString("en");
        return `[… lines ${chunk.first.toLocaleString("en")} to ${last} are not in this page …]`;
      }
      return (await this.lines(chunk))[row - chunk.row] ?? "";
    }

    // Browsers draw nothing below some 17 million pixels: beyond that the place on the bar is a share of the rows.
    sized() {
      this.height = Math.min(this.count * ROW, MOST_PX);
      this.space.style.height = `${this.height}px`;
      this.draw();
    }

    get fits() { return Math.ceil(this.view.clientHeight / ROW) + 1; }

    get first() {
      const { scrollTop, clientHeight } = this.view;
      if (this.count * ROW <= MOST_PX) return Math.floor(scrollTop / ROW);
      return Math.round((scrollTop / (this.height - clientHeight)) * (this.count - this.fits + 2));
    }

    show(place) {
      const from = Math.max(0, place - Math.floor(this.fits / 3));
      this.view.scrollTop = this.count * ROW <= MOST_PX
        ? from * ROW
        : (from / (this.count - this.fits + 2)) * (this.height - this.view.clientHeight);
      this.draw();
    }

    go(line) {
      this.here = line;
      if (this.only) { this.get("only").checked = this.only = false; this.sized(); }
      this.show(this.rowOf(line));
    }

    async draw() {
      const asked = ++this.asked, from = Math.max(0, Math.min(this.first, this.count - 1));
      const until = Math.min(this.count, from + this.fits);
      const rows = [];
      for (let at = from; at < until; at++) rows.push(this.only ? this.hits[at] : at);
      const made = await Promise.all(rows.map(async (row) => this.row(row, await this.text(row))));
      if (asked !== this.asked) return; // somebody scrolled on
      this.pane.replaceChildren(...made);
      const exact = this.count * ROW <= MOST_PX;
      this.pane.style.top = `${exact ? from * ROW : this.view.scrollTop}px`;
    }

    row(row, text) {
      const made = document.createElement("div"), number = document.createElement("i");
      const line = this.lineOf(row), chunk = this.chunkOf(row);
      const cause = !chunk.gap && this.evidence.some(([first, last]) => first <= line && line <= last);
      made.className = `row${cause ? " cause" : ""}${line === this.here ? " here" : ""}${chunk.gap ? " gap" : ""}`;
      made.dataset.row = row;
      number.textContent = `${cause ? "▶" : " "}${String(line).padStart(this.gutter)}`;
      const more = text.length - SHOWN;
      const shown = more > 0 ? text.slice(0, SHOWN) : text;
      made.append(number, ...this.marked(shown), more > 0 ? ` … ${more.toLocaleString("en")} more characters` : "");
      return made;
    }

    marked(text) {
      if (!this.pattern) return [text];
      const parts = [];
      let at = 0;
      for (const found of text.matchAll(this.pattern)) {
        if (!found[0] || parts.length > 200) break;
        const mark = document.createElement("mark");
        mark.textContent = found[0];
        parts.push(text.slice(at, found.index), mark);
        at = found.index + found[0].length;
      }
      return [...parts, text.slice(at)];
    }

    async whole(row) {
      this.here = this.lineOf(row);
      const box = this.get("line");
      box.textContent = `${this.here}: ${await this.text(row)}`;
      box.hidden = false;
      this.draw();
    }

    read(asked) {
      const slashed = /^\/(.+)\/(i?)$/.exec(asked);
      if (!asked) return null;
      return slashed ? new RegExp(slashed[1], `g${slashed[2]}`) : new RegExp(asked.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi");
    }

    async search(asked) {
      const turn = this.turn = (this.turn ?? 0) + 1;
      try { this.pattern = this.read(asked); } catch { this.say("not a pattern"); return; }
      const hits = [], from = this.here;
      this.hits = hits; this.hit = -1;
      if (this.only) this.sized();
      if (!this.pattern) { this.say(""); this.draw(); return; }
      const test = new RegExp(this.pattern.source, this.pattern.flags.replace("g", ""));
      let shown = false;
      for (const [at, chunk] of this.chunks.entries()) {
        if (chunk.gap || hits.length >= MOST_HITS) continue;
        this.say(`searching … ${Math.round((100 * at) / this.chunks.length)} %`);
        const text = this.open.has(chunk) ? await this.lines(chunk) : (await inflate(chunk.node.textContent)).split("\n");
        if (turn !== this.turn) return;
        for (let n = 0; n < text.length && hits.length < MOST_HITS; n++) if (test.test(text[n])) hits.push(chunk.row + n);
        if (!shown && hits.length && this.lineOf(hits.at(-1)) >= from) { shown = true; this.first_hit(from); }
      }
      if (!shown && hits.length) this.first_hit(0);
      this.tell();
      this.only ? this.sized() : this.draw();
    }

    first_hit(line) {
      this.hit = Math.max(0, this.hits.findIndex((row) => this.lineOf(row) >= line));
      this.reach();
    }

    step(by) {
      if (!this.hits.length) return;
      this.hit = (this.hit + by + this.hits.length) % this.hits.length;
      this.reach();
      this.tell();
    }

    reach() {
      this.here = this.lineOf(this.hits[this.hit]);
      this.show(this.only ? this.hit : this.hits[this.hit]);
    }

    tell() {
      const count = this.hits.length, more = count >= MOST_HITS ? " or more" : "";
      const gaps = this.chunks.some((chunk) => chunk.gap) ? ", of what is in this page" : "";
      this.say(count ? `${this.hit + 1} of ${count.toLocaleString("en")}${more} lines${gaps}` : `nothing found${gaps}`);
    }
  }

  for (const box of document.querySelectorAll("details.log")) {
    if (typeof DecompressionStream === "undefined") {
      document.documentElement.classList.remove("js"); // the excerpt for paper is there
      continue;
    }
    new Log(box);
  }
})();
