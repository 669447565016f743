"""Lets this process meet the rights of files as a normal user does, also where tests run as root."""

import contextlib
import ctypes
import os
from collections.abc import Iterator

VERSION_3 = 0x20080522
BYPASSES_RIGHTS = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (linux/capability.h)."""


@contextlib.contextmanager
def normal_user() -> Iterator[None]:
    """Give up what root has over the rights of files, for as long as this lasts."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(VERSION_3, 0)
    # Effective, permitted and inheritable sets, the low 32 capabilities first.
    sets = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    before = sets[0]
    sets[0] = before & ~BYPASSES_RIGHTS
    assert libc.capset(header, sets) == 0
    try:
        yield
    finally:
        sets[0] = before
        assert libc.capset(header, sets) == 0
