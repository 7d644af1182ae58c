"""The log pump, with real pipes: bytes as printed, times, secrets, floods, and things that are not lines."""

import os
import random
import time
from pathlib import Path

import pytest
from server_helpers import make_server, wait_until

from harness import clock
from harness.bytesearch import lines_with
from harness.masking import Masker
from harness.server import logpump
from harness.server.logpump import LONGEST, MATCHED, LogPump, line_times, lines


class Rig:
    """A pump and the write ends of its two pipes."""

    def __init__(self, folder, *, secrets=(), literals=(b"MARK",)):
        (out, self.out), (err, self.err) = os.pipe(), os.pipe()
        self.folder, self.seen = folder, []
        self.pump = LogPump(
            (out, err), folder, started=clock.now(), masker=Masker(secrets), literals=literals, on_line=self.seen.append
        )
        self.pump.start()

    def print(self, data, fd=None):
        view = memoryview(data)
        while view:
            view = view[os.write(self.out if fd is None else fd, view) :]

    def settle(self):
        assert self.pump.settle(5)

    @property
    def log(self):
        return (self.folder / "server.log").read_bytes()

    def close(self):
        for fd in (self.out, self.err):
            os.close(fd)
        self.pump._thread.join(10)
        self.pump.stop()
        assert self.pump.problem is None


@pytest.fixture
def rig(tmp_path):
    rigs = []

    def make(**options):
        rigs.append(Rig(tmp_path, **options))
        return rigs[-1]

    yield make
    for made in rigs:
        if made.pump._thread.is_alive():
            made.close()


def texts(rig):
    return [line.text for line in rig.seen]


def test_both_streams_in_order_of_arrival_with_their_times(rig):
    r = rig()
    r.print(b"one MARK\n")
    r.settle()
    time.sleep(0.25)
    r.print(b"two MARK\nthree\n", r.err)
    r.close()
    assert r.log == b"one MARK\ntwo MARK\nthree\n"
    assert [(line.stream, line.text) for line in lines(r.folder)] == [
        ("o", "one MARK"),
        ("e", "two MARK"),
        ("e", "three"),
    ]
    first, second, third = line_times(r.folder)
    assert second - first >= 0.25
    assert second == third
    assert [(line.stream, line.text) for line in r.seen] == [("o", "one MARK"), ("e", "two MARK")]
    assert [line.t for line in r.seen] == pytest.approx([first, second], abs=1e-6)


def test_a_line_that_comes_in_pieces_is_one_line(rig):
    r = rig()
    for piece in (b"a M", b"A", b"RK b", b"\nnext\n"):
        r.print(piece)
        r.settle()
    r.close()
    assert texts(r) == ["a MARK b"]
    assert r.log == b"a MARK b\nnext\n"


def test_an_unfinished_line_is_on_disk_soon(rig):
    r = rig(secrets=("hf_0123456789",))
    r.print(b"\rLoading:  50%|#####     | 1/2")
    wait_until(lambda: r.log == b"\rLoading:  50%|#####     | 1/2", 1.0)
    r.print(b"\rLoading: 100%|##########| 2/2 h")
    wait_until(lambda: r.log.endswith(b"2/2 "), 1.0)  # `h` may be the start of the secret
    r.print(b"ours")
    wait_until(lambda: r.log.endswith(b"2/2 hours"), 1.0)
    assert r.log == b"\rLoading:  50%|#####     | 1/2\rLoading: 100%|##########| 2/2 hours"


def test_a_progress_bar_matches_part_by_part(rig):
    r = rig()
    r.print(b"\r10% MARK a")
    r.settle()
    r.print(b"\r20% MARK b\r30%")
    r.settle()
    r.print(b" MARK c\n\r\n")
    r.close()
    assert texts(r) == ["10% MARK a", "20% MARK b", "30% MARK c"]
    assert r.log == b"\r10% MARK a\r20% MARK b\r30% MARK c\n\r\n"


def test_the_other_stream_never_glues_itself_to_an_unfinished_line(rig):
    r = rig()
    r.print(b"progress 10%", r.err)
    r.settle()
    r.print(b"MARK on its own\n")
    r.settle()
    r.print(b" 20%\n", r.err)
    r.close()
    assert r.log == b"progress 10%\nMARK on its own\n 20%\n"
    assert texts(r) == ["MARK on its own"]
    assert [(line.stream, line.text) for line in lines(r.folder)] == [
        ("e", "progress 10%"),
        ("o", "MARK on its own"),
        ("e", " 20%"),
    ]


def test_carriage_returns_before_newlines_stay_on_disk_and_out_of_the_text(rig):
    r = rig()
    r.print(b"Traceback MARK\r\nnext\r\n")
    r.close()
    assert r.log == b"Traceback MARK\r\nnext\r\n"
    assert texts(r) == ["Traceback MARK"]
    assert [line.text for line in lines(r.folder)] == ["Traceback MARK", "next"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"nul \x00 MARK", "nul \x00 MARK"),
        (b"bad \xff\xfe MARK \xe2\x82", "bad \ufffd\ufffd MARK \ufffd"),
        (b"\x1b[32mINFO\x1b[0m MARK", "\x1b[32mINFO\x1b[0m MARK"),
        ("größe MARK 漢字".encode(), "größe MARK 漢字"),
        (b"\x0b\x0c\x1c\x85 MARK", "\x0b\x0c\x1c\ufffd MARK"),
    ],
)
def test_odd_bytes_are_kept_on_disk_and_readable_in_text(rig, raw, text):
    r = rig()
    r.print(b"before\n" + raw + b"\nafter\n")
    r.close()
    assert r.log == b"before\n" + raw + b"\nafter\n"
    assert texts(r) == [text]


def test_the_last_line_needs_no_newline(rig):
    r = rig()
    r.print(b"Aborted MARK")
    r.close()
    assert r.log == b"Aborted MARK"
    assert texts(r) == ["Aborted MARK"]
    assert [line.text for line in lines(r.folder)] == ["Aborted MARK"]


SECRET = "hf_abcABC123abcABC"


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_secret_cut_anywhere_is_masked(rig, cut):
    r = rig(secrets=(SECRET,))
    whole = f"token={SECRET} end".encode()
    at = len("token=") + cut
    r.print(whole[:at])
    r.settle()  # forces the unfinished line out, like a pause of 0.2 s
    assert SECRET.encode()[:1] not in r.log[len("token=") :]
    r.print(whole[at:] + b"\n")
    r.close()
    assert r.log == b"token=*** end\n"


def test_the_user_part_of_a_url_cut_anywhere_is_masked(rig):
    r = rig()
    for byte in b"get https://user:pass@host/x MARK":
        r.print(bytes((byte,)))
        r.settle()
    r.print(b"\n")
    r.close()
    assert r.log == b"get https://***@host/x MARK\n"
    assert texts(r) == ["get https://***@host/x MARK"]


def test_secrets_in_a_flood_without_newlines_are_masked_at_every_boundary(rig):
    r = rig(secrets=(SECRET,))
    random.seed(5)
    gaps = [random.randrange(1, 5000) for _ in range(2000)]
    r.print(b"".join(b"." * gap + SECRET.encode() for gap in gaps))
    r.close()
    assert r.log == b"".join(b"." * gap + b"***" for gap in gaps)


def test_a_line_of_100_mb_goes_through_in_bounded_memory(rig):
    r = rig()
    block = b"x" * (1 << 20)
    r.print(b"MARK ")
    for _ in range(100):
        r.print(block)
        assert sum(pipe.size + len(pipe.shown) for pipe in r.pump._pipes) < 4 * LONGEST
    r.print(b"\nafter MARK\n")
    r.close()
    assert (r.folder / "server.log").stat().st_size == 5 + 100 * len(block) + 12
    assert [len(text) for text in texts(r)] == [MATCHED, len("after MARK")]
    assert [len(line.text) for line in lines(r.folder)] == [MATCHED, len("after MARK")]


def test_stop_does_not_wait_for_the_end_of_a_stream(rig):
    r = rig()
    r.print(b"still open")
    begin = time.monotonic()
    r.pump.stop()
    r.pump.stop()
    assert time.monotonic() - begin < 1
    assert r.log == b"still open"


def test_tail_gives_the_last_lines_a_person_would_see(rig):
    r = rig()
    assert r.pump.tail(3) == []
    r.print(b"one\n\ntwo\r\n\r10%\r20%")
    r.settle()
    assert r.pump.tail(2) == ["two", "20%"]


def test_random_cuts_change_nothing(rig):
    """Whatever the pieces: the file is the masked whole, and every matching line is told once."""
    random.seed(11)
    r = rig(secrets=(SECRET,))
    words = [b"MARK ", b"x" * 50, SECRET.encode(), b"\n", b"\r\n", b"\xff\x00", b"\n\n", b"hf_abc", b"http://u@h/ "]
    whole = b"".join(random.choice(words) for _ in range(3000)) + b"\n"
    at = 0
    while at < len(whole):
        step = random.randrange(1, 400)
        r.print(whole[at : at + step])
        at += step
        if random.random() < 0.2:
            r.settle()
    r.close()
    masked = Masker((SECRET,)).raw(whole)
    assert r.log == masked
    expected = [line.decode(errors="replace") for line in masked.replace(b"\r", b"\n").split(b"\n") if b"MARK" in line]
    assert texts(r) == expected
    assert len(line_times(r.folder)) == masked.count(b"\n")


def test_lines_with_finds_each_line_once_and_in_order():
    block = b"b a\nnothing\na b a\r\nb\rc a"
    assert list(lines_with(block, (b"a", b"b"), longest=99)) == [b"b a", b"a b a", b"b", b"c a"]
    assert list(lines_with(block, (), longest=99)) == []
    assert list(lines_with(b"", (b"a",), longest=99)) == []
    assert list(lines_with(b"abcdef a", (b"f",), longest=3)) == [b"abc"]


def test_without_memmem_the_answer_is_the_same(monkeypatch):
    block = b"one two\nthree\rtwo" * 50
    fast = list(lines_with(block, (b"two", b"one"), longest=99))
    monkeypatch.setattr("harness.bytesearch._MEMMEM", None)
    assert list(lines_with(block, (b"two", b"one"), longest=99)) == fast
    assert len(fast) > 50


def test_a_real_server_that_floods_is_not_blocked(tmp_path):
    with make_server(
        [["flood", 30, 120], ["rawerr", "MARK \u00ff\n"], ["exit", 4]], tmp_path, on_line=(seen := []).append
    ) as server:
        assert server.wait_ready().how == "exit 4"
    assert Path(tmp_path, "server.log").stat().st_size > 29 << 20
    assert [line.text for line in seen] == ["MARK \ufffd"]
    assert logpump.PARTIAL_AFTER <= 0.2
