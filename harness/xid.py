"""Xids: the numbers under which NVIDIA's driver reports a fault of a GPU in the kernel's log, and whose fault each is.

Source: NVIDIA, "Xid Errors" (docs.nvidia.com/deploy/xid-errors), its catalogue for Ampere and newer GPUs. Meanings are
in our words; the fault is the one that the document calls the usual one. Pure; triage loads it, so it loads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Fault = Literal["application", "hardware", "nobody"]
"""Who did it: the program that ran; the GPU, its links, firmware or driver; nobody, for it only tells something."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Meaning:
    words: str
    fault: Fault
    fatal: bool = False
    """Data was lost, or the GPU is of no use before it is reset: what ran on it then proves nothing."""


def _application(words: str) -> Meaning:
    return Meaning(words=words, fault="application")


def _hardware(words: str, *, fatal: bool = True) -> Meaning:
    return Meaning(words=words, fault="hardware", fatal=fatal)


def _nobody(words: str) -> Meaning:
    return Meaning(words=words, fault="nobody")


UNKNOWN = _hardware("an error of the GPU or its driver that has no row here", fatal=False)
"""Numbers without a row. Those that a program can cause are few and old, and all of them have one."""

MEANINGS: Mapping[int, Meaning] = {
    8: _application("a kernel kept the GPU busy for too long"),
    11: _application("invalid commands were sent to the GPU"),
    13: _application("a kernel went out of bounds or used an illegal instruction"),
    14: _nobody("a made-up error, for tests"),
    25: _application("invalid commands were sent to the GPU"),
    31: _application("a kernel used an address that is not mapped"),
    32: _hardware("the commands on their way to the GPU were damaged, mostly by PCIe", fatal=False),
    37: _hardware("an error in the driver's firmware", fatal=False),
    38: _hardware("an error in the driver's firmware", fatal=False),
    43: _application("the program's channel was reset after an error of its own"),
    44: _hardware("a fault of the engine while it changed context", fatal=False),
    45: _application("the program's channels were removed: it was ended, or another error came before"),
    46: _hardware("the GPU stopped processing"),
    48: _hardware("an uncorrectable memory error (double-bit ECC)"),
    54: _hardware("the auxiliary power is not connected"),
    62: _hardware("a microcontroller of the GPU halted"),
    63: _hardware("a row of memory was marked for remapping after ECC errors", fatal=False),
    64: _hardware("a row of memory could not be remapped"),
    66: _hardware("an illegal access by the driver", fatal=False),
    67: _hardware("an illegal access by the driver", fatal=False),
    68: _application("a fault in the video decoder"),
    69: _application("an invalid method was sent to an engine"),
    74: _hardware("an NVLink error"),
    79: _hardware("the GPU has fallen off the bus"),
    80: _application("the commands that the GPU got were damaged"),
    92: _hardware("many corrected memory errors (single-bit ECC)", fatal=False),
    93: _nobody("the wear limit of the InfoROM"),
    94: _hardware("an uncorrectable memory error, contained to one program"),
    95: _hardware("an uncorrectable memory error that may touch every program"),
    106: _nobody("a test message"),
    107: _nobody("a test message"),
    109: _hardware("a change of context did not end in time"),
    110: _hardware("a security fault"),
    119: _hardware("the GPU's system processor (GSP) did not answer"),
    120: _hardware("an error in the GPU's system processor (GSP)"),
    121: _nobody("corrected errors on the link to the CPU (C2C)"),
    136: _hardware("an NVLink could not be trained"),
    137: _application("an illegal access to another GPU's memory over NVLink"),
    140: _hardware("an uncorrectable memory error that could not be put right"),
    143: _hardware("the GPU could not be initialised"),
    **{number: _hardware("an NVLink error (fifth generation)", fatal=False) for number in range(144, 151)},
    154: _nobody("what it takes to recover from another Xid"),
    155: _hardware("an NVLink went down", fatal=False),
    156: _hardware("a damaged part of the GPU was retired"),
    157: _hardware("a damaged part of the GPU could not be retired", fatal=False),
    158: _hardware("the GPU did not answer in time"),
    **{number: _nobody("a state of the power smoothing") for number in range(162, 166)},
    167: _hardware("PCIe did not answer in time"),
    171: _hardware("an uncorrectable error in the GPU's DRAM"),
    172: _hardware("an uncorrectable error in the GPU's SRAM"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Xid:
    """One message of the driver, as the record keeps it."""

    number: int
    address: str
    """Of the GPU on the PCI bus: `0000:2a:00`."""
    gpu: int | None = None
    """Its index as nvidia-smi counts; None: not one of the GPUs that this run could see."""
    own: bool = False
    """The run had this GPU on lease."""
    text: str
    """What follows the number in the kernel's log."""
    second: float
    """Since the run got its GPUs, by the kernel's own clock, which a machine of long uptime has off by some seconds."""

    @property
    def meaning(self) -> Meaning:
        return MEANINGS.get(self.number, UNKNOWN)

    @property
    def words(self) -> str:
        """`Xid 79 on GPU 0 after 31.2 s: the GPU has fallen off the bus`."""
        where = f"GPU {self.gpu}" if self.gpu is not None else f"a GPU at {self.address}"
        whose = "" if self.own else ", which this run did not use,"
        return f"Xid {self.number} on {where}{whose} after {self.second:.1f} s: {self.meaning.words}"


def numbers(*faults: Fault) -> tuple[int, ...]:
    """Those of the table that are the fault of one of these."""
    return tuple(number for number, meaning in MEANINGS.items() if meaning.fault in faults)
