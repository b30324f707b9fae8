"""Does the machine in `kit.ptx` do what PTX's manual says of an instruction?"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kit.emulated import HostMemory
from kit.ptx import FaultError, Machine
from kit.ptx_ir import UnknownError
from kit.ptx_memory import TRACE_COLUMNS
from kolumn.kernels.build import load_all
from kolumn.kernels.machine.kernel import WARP

SOME = replace(load_all()["sizes"], name="tried", block=WARP)
HEAD = ".version 9.0\n.shared .align 8 .b8 room[128];\n.entry kolumn_tried(.param .u64 n, .param .u64 out)\n{\n"
REGISTERS = ".reg .pred %p<4>;\n.reg .b16 %rs<4>;\n.reg .b32 %r<8>;\n.reg .b64 %rd<8>;\n"
BEGIN = "ld.param.u64 %rd1, [out];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 8;\nadd.s64 %rd1, %rd1, %rd2;\n"


def results(code: str, races: bool = False) -> list[int]:
    """What the 32 threads of a warp store of %rd3, after some lines of PTX."""
    text = HEAD + REGISTERS + BEGIN + code + "\nst.u64 [%rd1], %rd3;\nret;\n}\n"
    with Machine(lambda kernel: text, races=races).watching() as machine:
        out = HostMemory(8 * WARP)
        machine.run(SOME, WARP, (out.address,))
        return [int(one) for one in np.array(out.bytes).view(np.int64)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("mov.u64 %rd4, -1; mov.u32 %r2, 64; shr.u64 %rd3, %rd4, %r2;", 0),
        ("mov.u64 %rd4, -1; mov.u32 %r2, 200; shr.s64 %rd3, %rd4, %r2;", -1),
        ("mov.u64 %rd4, 1; mov.u32 %r2, 64; shl.b64 %rd3, %rd4, %r2;", 0),
        ("mov.u64 %rd4, 1; mov.u32 %r2, 63; shl.b64 %rd3, %rd4, %r2;", -(2**63)),
        ("mov.u32 %r2, 511; cvt.s64.s8 %rd3, %r2;", -1),
        ("mov.u32 %r2, -5; cvt.s64.s32 %rd3, %r2;", -5),
        ("mov.u32 %r2, -5; cvt.u64.u32 %rd3, %r2;", 2**32 - 5),
        ("mov.u64 %rd4, -2; mul.hi.u64 %rd3, %rd4, %rd4;", -4),
        ("mov.u64 %rd4, -2; mul.hi.s64 %rd3, %rd4, 3;", -1),
        ("mov.u32 %r2, -2; mul.wide.s32 %rd3, %r2, 3;", -6),
        ("mov.u32 %r2, -2; mov.u64 %rd4, 10; mad.wide.s32 %rd3, %r2, 3, %rd4;", 4),
        ("mov.u64 %rd4, 0xAB; mov.u64 %rd5, -1; bfi.b64 %rd3, %rd4, %rd5, 8, 8;", -1 - (0xFF ^ 0xAB) * 256),
        ("mov.u32 %r2, 0x11223344; mov.u32 %r3, 0x55667788; shf.r.wrap.b32 %r4, %r2, %r3, 40; cvt.u64.u32 %rd3, %r4;", 0x88112233),
        ("mov.u32 %r2, 0x11223344; mov.u32 %r3, 0x55667788; shf.l.wrap.b32 %r4, %r2, %r3, 8; cvt.u64.u32 %rd3, %r4;", 0x66778811),
        ("mov.u64 %rd4, -1; setp.lt.u64 %p1, %rd4, 1; selp.b64 %rd3, 1, 2, %p1;", 2),
        ("mov.u64 %rd4, -1; setp.lt.s64 %p1, %rd4, 1; selp.b64 %rd3, 1, 2, %p1;", 1),
        ("mov.u64 %rd3, 5; setp.eq.u32 %p1, %r1, 99; @%p1 mov.u64 %rd3, 6;", 5),
        ("mov.u64 %rd3, 5; setp.eq.u32 %p1, %r1, 99; @!%p1 mov.u64 %rd3, 6;", 6),
        ("mov.u64 %rd4, -7; div.s64 %rd3, %rd4, 2;", -3),
        ("mov.u64 %rd4, -7; abs.s64 %rd3, %rd4;", 7),
        ("mov.u64 %rd4, -7; min.u64 %rd3, %rd4, 2;", 2),
        ("mov.u64 %rd4, -2; popc.b64 %r2, %rd4; cvt.u64.u32 %rd3, %r2;", 63),
        ("mov.u64 %rd4, 0xABCD; bfe.u64 %rd3, %rd4, 4, 8;", 0xBC),
        ("mov.u64 %rd4, 0xABCD; bfe.s64 %rd3, %rd4, 4, 8;", 0xBC - 256),
        ("setp.gt.u32 %p1, %r1, 3; vote.sync.ballot.b32 %r2, %p1, -1; cvt.u64.u32 %rd3, %r2;", 0xFFFFFFF0),
    ],
)  # fmt: skip
def test_instructions(code: str, expected: int) -> None:
    assert results(code.replace("; ", ";\n")) == [expected] * WARP


SHUFFLES = {
    "bfly.b32 %r4|%p1, %r1, 5, 31": [lane ^ 5 for lane in range(WARP)],
    "idx.b32 %r4, %r1, 7, 31": [7] * WARP,
    "up.b32 %r4|%p1, %r1, 3, 0": [max(lane - 3, 0) if lane >= 3 else lane for lane in range(WARP)],
    "down.b32 %r4, %r1, 3, 31": [lane + 3 if lane < WARP - 3 else lane for lane in range(WARP)],
}


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_shuffles(shuffle: str) -> None:
    assert results(f"shfl.sync.{shuffle}, -1;\ncvt.u64.u32 %rd3, %r4;") == SHUFFLES[shuffle]
    # It says whether there is such a lane.
    code = "shfl.sync.up.b32 %r4|%p1, %r1, 3, 0, -1;\nselp.b64 %rd3, 1, 0, %p1;"
    assert results(code) == [0] * 3 + [1] * 29


EXCHANGE = (
    "mov.u64 %rd4, room;\nmul.wide.u32 %rd5, %r1, 4;\nadd.s64 %rd5, %rd4, %rd5;\nst.shared.u32 [%rd5], %r1;\n"
    "{}\nld.shared.u32 %r2, [%rd4+124];\ncvt.u64.u32 %rd3, %r2;"
)


@pytest.mark.parametrize("barrier", ["bar.warp.sync -1;", "bar.sync 0;"])
def test_barriers_order_accesses(barrier: str) -> None:
    assert results(EXCHANGE.format(barrier), races=True) == [31] * WARP


@pytest.mark.parametrize("nothing", ["", "shfl.sync.bfly.b32 %r4, %r1, 1, 31, -1;"])
def test_a_shuffle_orders_nothing(nothing: str) -> None:
    with pytest.raises(FaultError, match="a race with thread"):
        results(EXCHANGE.format(nothing), races=True)


def test_a_lane_that_has_ended() -> None:
    code = "setp.eq.u32 %p1, %r1, 9;\n@%p1 bra $END;\nbar.warp.sync -1;\n$END:\nmov.u64 %rd3, 0;"
    with pytest.raises(FaultError, match=r"tried: threads of a warp .* places: thread 0 waits at PTX line 15 .* thread 9 has ended"):
        results(code)


ACCESSES = {
    "ld.u32 %r2, [%rd1+2];": "4 bytes at .*: not aligned; 32 such",
    "st.u64 [%rd1+8], %rd3;": "8 bytes at .* outside of every piece of memory; 1 such",
    "ld.u64 %rd4, [%rd1+1024];": "outside of every piece",
}


@pytest.mark.parametrize("access", ACCESSES)
def test_accesses(access: str) -> None:
    with pytest.raises(FaultError, match=f"tried, thread .*PTX line 14 .*{ACCESSES[access]}"):
        results(f"mov.u64 %rd3, 0;\n{access}")


def test_what_is_after_memory_can_be_read() -> None:
    assert results("mov.u64 %rd3, 7;\nld.u64 %rd4, [%rd1+256];") == [7] * WARP


def test_two_readers_and_a_writer() -> None:
    """The writer has read too, after another thread: it is the other one that matters."""
    code = "ld.shared.u64 %rd4, [room];\nmov.u64 %rd3, 1;\nsetp.eq.u32 %p1, %r1, 31;\n@%p1 st.shared.u64 [room], %rd3;"
    with pytest.raises(FaultError, match=r"thread 31, .*a race with thread 30"):
        results(code, races=True)


def test_unknown_instructions() -> None:
    for code in ("vote.sync.any.pred %p1, %p2, -1;", "rsqrt.approx.f32 %r2, %r3;", "bar.sync 1;", "ld.v2.u32 {%r2, %r3}, [%rd1];"):
        with pytest.raises(UnknownError):
            results(code)


def test_counts() -> None:
    """A predicate that is false does not save an instruction; a warp whose lanes take both ways at a fork issues both."""
    found: list[Any] = []
    code = "setp.ge.u32 %p1, %r1, 3;\n@%p1 bra $ELSE;\n@%p1 mov.u64 %rd3, 1;\nbra $END;\n$ELSE:\nmov.u64 %rd3, 2;\n$END:\nret;\n}\n"
    text = HEAD + REGISTERS + BEGIN + code
    with Machine(lambda kernel: text, after=[found.append], trace=np.zeros((100, TRACE_COLUMNS), np.int64)).watching() as machine:
        machine.run(SOME, WARP, (HostMemory(8).address,))
    assert (found[0].issued.tolist(), len(found[0].trace)) == ([4 + 2 + 2 + 1 + 1], 0)
