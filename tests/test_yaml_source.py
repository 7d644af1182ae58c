from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ScenarioError
from harness.scenario.yaml_core import core_scalar
from harness.scenario.yaml_source import MAX_BYTES, MAX_DEPTH, MAX_NODES, parse, read


def plain(text):
    document = parse(text, "f.yaml")
    assert document.problems == ()
    return document.root.plain()


def refused(text):
    with pytest.raises(ScenarioError) as caught:
        parse(text, "f.yaml")
    return caught.value.what


def found(text):
    return [str(problem) for problem in parse(text, "f.yaml").problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((word, word) for word in ("yes", "no", "on", "off", "Yes", "NO", "y", "n", "=", "nil", "tRue")),
        *(
            (word, word)
            for word in ("12:30", "12:30:45", "2026-01-01", "0.29.0", "1_000", "0b101", "1e", "0o8", "-0x1", "e5")
        ),
        *((word, None) for word in ("", "~", "null", "Null", "NULL")),
        *((word, True) for word in ("true", "True", "TRUE")),
        *((word, False) for word in ("false", "False", "FALSE")),
        ("1e-5", 1e-05),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-1.5e+3", -1500.0),
        ("0o17", 15),
        ("017", 17),
        ("0x1F", 31),
        ("+12", 12),
        ("-7", -7),
    ],
)
def test_the_core_schema_of_yaml_1_2(text, value):
    made = plain(f"a: {text}")["a"]
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize("text", ["'1'", '"1"', "|-\n  1", ">-\n  1"])
def test_quoted_and_block_scalars_are_text(text):
    assert plain(f"a: {text}") == {"a": "1"}


# JSON's only escapes that YAML does not know are halves of surrogate pairs.
texts = st.text(
    alphabet=st.characters(
        min_codepoint=0x20, max_codepoint=0xFFFD, exclude_characters="\x7f", exclude_categories=("Cs", "Cc")
    )
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_json_is_yaml(value):
    assert plain(json.dumps(value, ensure_ascii=False)) == value


@given(st.text(alphabet="0123456789eE+-.oxaftrunl~_", max_size=10))
def test_plain_words_are_never_anything_but_a_scalar(word):
    with suppress(ValueError):
        assert core_scalar(word) is None or isinstance(core_scalar(word), (str, int, float))


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_a_place(text):
    with suppress(ScenarioError):
        assert parse(text, "f.yaml").root.mark.source == "f.yaml"


def test_everything_knows_where_it_stands():
    root = parse("a: 1\nb:\n  - x\n  - {c: 2.50}\n", "f.yaml").root
    assert str(root.keys["b"]) == "f.yaml:2:1"
    assert str(root.child("b").child(1).child("c").mark) == "f.yaml:4:9"
    assert str(root.child("b").child(1).keys["c"]) == "f.yaml:4:6"
    assert root.child("b").child(1).child("c").raw == "2.50"
    assert root.child("b").child(2) is None
    assert root.child("a").child("x") is None


def test_columns_count_characters():
    assert found("é: {ü: 1, ü: 2}") == ["f.yaml:1:11: `ü` stands twice, first at line 1"]


def test_a_source_without_lines():
    assert str(parse("{a: 1}", "--set x", lines=False).root.child("a").mark) == "--set x"


def test_all_that_can_be_read_past_is_found_at_once():
    text = "a: 1\na: 2\n1: 3\n? [x]\n: 4\n<<: {b: 5}\nc: !!python/object:os.system ls\nd: ! 5\ne: 1e999\nf: .nan\n"
    assert found(text) == [
        "f.yaml:2:1: `a` stands twice, first at line 1",
        'f.yaml:3:1: a key must be text; quote it: "1"',
        "f.yaml:4:3: a key must be text; a mapping or list cannot be a key",
        "f.yaml:6:1: merge keys (<<) are not YAML 1.2: use `variants`",
        "f.yaml:7:4: the tag tag:yaml.org,2002:python/object:os.system is refused: quote a value that is text",
        "f.yaml:8:4: the tag ! is refused: quote a value that is text",
        'f.yaml:9:4: 1e999 is too large for a number; if it is text, quote it: "1e999"',
        'f.yaml:10:4: .nan is no number that a scenario can use; if it is text, quote it: ".nan"',
    ]


def test_a_nul_in_an_escape():
    assert found('a: "x\\0"') == ["f.yaml:1:4: a NUL character cannot be given to a program"]


def test_a_hash_that_forgot_its_quotes():
    digits = "1234567890" * 5
    assert found(f"a: {digits}") == ["f.yaml:1:4: 123456789012… has 50 digits; if it is text, quote it"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.yaml:1:1: there is nothing in it"),
        ("# only a comment\n", "f.yaml:1:1: there is nothing in it"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: a second document: one file is one scenario"),
        ("%YAML 1.1\n---\na: 1\n", "f.yaml:1:1: only YAML 1.2 is read: leave the %YAML line out"),
        ("a: *b\n", "f.yaml:1:4: *b stands for nothing that ends before it"),
        ("a: &a [*a]\n", "f.yaml:1:8: *a stands for nothing that ends before it"),
        ("a:\n\tb: 1\n", "f.yaml:2:1: a tab cannot indent YAML: use spaces"),
        ("a: 1\nb: \x00\n", "f.yaml:2:4: character U+0000 is not allowed in YAML"),
        ("- " * (MAX_DEPTH + 1), f"f.yaml:1:{2 * MAX_DEPTH + 1}: more than {MAX_DEPTH} levels deep"),
    ],
)
def test_what_cannot_be_read(text, message):
    assert refused(text) == message


@pytest.mark.parametrize(
    ("text", "place"), [("a: [1,2\nb: 3\n", "2:2"), ("a: b: c\n", "1:5"), ("a: 'x", "1:6"), ("a: @x", "1:4")]
)
def test_syntax_errors_say_where(text, place):
    assert refused(text).startswith(f"f.yaml:{place}: ")


def test_aliases_are_values():
    assert plain("a: &x {b: [1, 2]}\nc: *x\nd: [*x, *x]\n")["d"] == [{"b": [1, 2]}, {"b": [1, 2]}]


def test_aliases_cannot_blow_up_memory():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]  # 9^30 values
    started = time.monotonic()
    assert refused("\n".join(lines)) == f"f.yaml:5:15: more than {MAX_NODES} values, aliases followed"
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("text", ["[" * 500_000, "{" * 500_000, "a: " + "[" * 900, "? " * 200_000, "- " * 400_000])
def test_deep_files_are_refused_at_once(text):
    started = time.monotonic()
    assert refused(text).startswith("f.yaml:1:")
    assert time.monotonic() - started < 5


def test_files_are_bounded(tmp_path):
    (tmp_path / "f.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ScenarioError, match="is larger than 1024 KiB"):
        read(tmp_path / "f.yaml")


def test_files_are_utf_8(tmp_path):
    file = tmp_path / "f.yaml"
    file.write_bytes("a: 1\nbé: ".encode() + b"\xff\n")
    with pytest.raises(ScenarioError) as caught:
        read(file)
    assert caught.value.what == f"{file}:2:5: byte 0xff is not UTF-8"
    file.write_bytes("\ufeffa: é".encode())
    assert read(file) == "a: é"


def test_files_that_cannot_be_opened(tmp_path):
    for path, why in ((tmp_path / "f.yaml", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ScenarioError) as caught:
            read(path)
        assert caught.value.what == f"{path}: cannot be read: {why}"
