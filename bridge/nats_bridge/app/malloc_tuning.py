"""Tunes the C library's allocator to keep some freed memory for the next read.

A read of the socket and its results take hundreds of kilobytes, which are freed a moment later. By default glibc
returns such memory to the kernel each time, and the next read has to touch every page again: with messages of 64 KiB
that took a fifth of the sidecar's time.
"""

import ctypes

# Values from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_KEPT = 16 << 20  # bytes at the end of the heap that may be free
_AT_ONCE = 4 << 20  # bytes that the heap grows by
# bytes from which a block gets its own mapping, which is returned to the system when it is freed
_OWN_MAPPING = 8 << 20


def keep_freed_memory() -> bool:
    """Let the C library keep up to 16 MB of freed memory. Return False if it does not support that."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library, or none to be had this way
        return False
    wanted = ((_MMAP_THRESHOLD, _OWN_MAPPING), (_TRIM_THRESHOLD, _KEPT), (_TOP_PAD, _AT_ONCE))
    return all(mallopt(name, value) for name, value in wanted)
