"""How much memory a process may take yet: by what the system has free, and by limits set to it."""

from __future__ import annotations

import errno
import re
import sys
from contextlib import suppress
from pathlib import Path

from psephos.errors import PsephosError

if sys.platform != "win32":
    import resource

    LIMITS = {"VmSize": resource.RLIMIT_AS, "VmData": resource.RLIMIT_DATA}

NO_BOUND = sys.maxsize
KEPT_FREE = 10
"""One part in ten of the free memory is left to other processes."""
GROUPS = {
    "": ("", "memory.max", "memory.current"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
}
"""Where a control group's limit and what it uses are, by the group's kind (cgroups 2, 1)."""


def free_memory() -> int:
    """The bytes that this process may take yet; NO_BOUND where nothing is known of them."""
    in_system = _bytes_of("/proc/meminfo", "MemAvailable", NO_BOUND)
    return max(0, min(in_system, _free_in_group(), _free_in_process()))


def limit_memory() -> None:
    """Let this process take what is free now and no more.

    What would take more ends in a MemoryError then, which can be explained; a process that the
    system ends for want of memory can explain nothing.
    """
    free = free_memory()
    if sys.platform == "win32" or free == NO_BOUND:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = _held("VmData") + free - free // KEPT_FREE
    if most < min(_bound(soft), _bound(hard)):
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def is_out_of_memory(error: BaseException | None) -> bool:
    """Was an error raised for want of memory: by Python, a library or the system?"""
    if error is None:
        return False
    refused = isinstance(error, OSError) and error.errno == errno.ENOMEM
    no_thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
    no_memory = isinstance(error, MemoryError) and not isinstance(error, PsephosError)
    cause = error.__cause__ or error.__context__
    return no_memory or refused or no_thread or is_out_of_memory(cause)


def _free_in_group() -> int:
    """What is left to the control group that the process runs in, as those of containers."""
    free = NO_BOUND
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds not in GROUPS:
                continue
            folder, limit, use = GROUPS[kinds]
            root = Path("/sys/fs/cgroup", folder)
            for place in (root / path.lstrip("/"), root):
                with suppress(OSError, ValueError):  # no such file, or "max"
                    most, used = (int((place / name).read_text()) for name in (limit, use))
                    free = min(free, most - used + _held_for_files(place))
    return free


def _held_for_files(group: Path) -> int:
    """What a control group holds of files, which makes way."""
    text = (group / "memory.stat").read_text()
    match = re.search(r"^(?:total_)?inactive_file (\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else 0


def _free_in_process() -> int:
    """What limits such as those of `ulimit -v` leave."""
    if sys.platform == "win32":
        return NO_BOUND
    bounds = {name: _bound(resource.getrlimit(limit)[0]) for name, limit in LIMITS.items()}
    return min(most - _held(name) if most < NO_BOUND else most for name, most in bounds.items())


def _bound(limit: int) -> int:
    """A limit as a number of bytes."""
    return limit if 0 <= limit < NO_BOUND else NO_BOUND


def _held(name: str) -> int:
    """What the process holds of some kind of memory."""
    return _bytes_of("/proc/self/status", name, 0)


def _bytes_of(place: str, name: str, otherwise: int) -> int:
    """A line of one of the system's own files."""
    with suppress(OSError):
        match = re.search(rf"^{name}:\s+(\d+) kB", Path(place).read_text(), re.MULTILINE)
        return 1024 * int(match[1]) if match else otherwise
    return otherwise
