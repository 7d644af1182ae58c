"""HTML read strictly: whatever is opened is closed, in order; nothing is repaired."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "br"}
RAW = {"script", "style"}


@dataclass
class Element:
    name: str
    attrs: dict[str, str | None]
    inside: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """As a reader has it: without scripts and styles, blanks joined."""
        return " ".join(" ".join(self._texts()).split())

    @property
    def raw(self) -> str:
        return "".join(each for each in self.inside if isinstance(each, str))

    def _texts(self):
        for each in self.inside:
            if isinstance(each, str):
                yield each
            elif each.name not in RAW:
                yield from each._texts()

    def all(self, name: str = "", **attrs: str) -> list[Element]:
        """Below it by name and by words of an attribute (`cls="plot"`)."""
        wanted = {"class" if key == "cls" else key.replace("_", "-"): value for key, value in attrs.items()}
        found = []
        for each in self.inside:
            if isinstance(each, Element):
                if (not name or each.name == name) and all(
                    value in (each.attrs.get(key) or "").split() for key, value in wanted.items()
                ):
                    found.append(each)
                found += each.all(name, **attrs)
        return found

    def one(self, name: str = "", **attrs: str) -> Element:
        (found,) = self.all(name, **attrs)
        return found

    def rows(self) -> list[list[str]]:
        """Of a table, cell by cell."""
        return [[cell.text for cell in row.inside if isinstance(cell, Element)] for row in self.all("tr")]


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs), f"an attribute of <{tag}> is there twice"
        made = Element(tag, dict(attrs))
        self.open[-1].inside.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_startendtag(self, tag, attrs):
        self.open[-1].inside.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}> at {self.getpos()}"
        self.open.pop()

    def handle_data(self, data):
        self.open[-1].inside.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data[:80]}")

    def unknown_decl(self, data):
        raise AssertionError(f"a declaration: {data[:80]}")


def read(text: str) -> Element:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == [reader.root], f"<{reader.open[-1].name}> is never closed"
    return reader.root


def problems(page: Element) -> list[str]:
    """What a self-contained page has no place for: handlers, addresses elsewhere, scripts that are not ours."""
    found = []
    for each in page.all():
        for name, value in each.attrs.items():
            address = name in ("href", "src", "action", "xlink:href", "data", "poster", "srcset")
            inside = (value or "").startswith(("./", "#", "data:,"))
            if name.startswith("on") or (address and not inside):
                found.append(f"<{each.name} {name}={value!r}>")
        if each.name in ("iframe", "object", "embed", "img", "base", "form", "foreignobject", "audio", "video"):
            found.append(f"<{each.name}>")
    ids = [each.attrs["id"] for each in page.all() if "id" in each.attrs]
    found += [f"id {each} is there twice" for each in set(ids) if ids.count(each) > 1]
    running = [each for each in page.all("script") if "type" not in each.attrs]
    return found + ([] if len(running) == 1 else [f"{len(running)} scripts run"])
