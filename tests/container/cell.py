"""Starts a command in a root folder of its own, as a container engine would; run as process 1 of new namespaces.

``unshare --mount --pid --ipc --uts --fork -- python cell.py '{"root": …}'``. Takes a `Cell` as JSON. The file stands
alone: only the standard library, so that any Python can run it.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["Cell"]

_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_DEVICES = ("null", "zero", "full", "random", "urandom")


@dataclass(frozen=True, slots=True)
class Cell:
    """A command and its surroundings.

    Attributes:
        root: the folder that becomes `/`.
        command: what to execute.
        environment: all its variables.
        directory: where it starts.
        user, group: the ids it runs with.
        read_only: whether nothing below `/` can be written, and all rights of root are dropped permanently.
        binds: folders or files of the outside, by their place inside; they can only be read.
        network: whether the outside's network can be used.
    """

    root: str
    command: list[str]
    environment: dict[str, str]
    directory: str = "/"
    user: int = 0
    group: int = 0
    read_only: bool = False
    binds: dict[str, str] = field(default_factory=dict)
    network: bool = False

    def started_by(self) -> list[str]:
        """The command line that starts it; its first child is the command, as process 1."""
        namespaces = ["--mount", "--pid", "--ipc", "--uts", *([] if self.network else ["--net"])]
        unshare = ["unshare", *namespaces, "--propagation", "private", "--fork", "--kill-child"]
        return [*unshare, sys.executable, "-I", __file__, json.dumps(asdict(self))]


def _enter(cell: Cell) -> None:
    root = Path(cell.root)
    _mount("--rbind", cell.root, cell.root)
    _mount("-t", "tmpfs", "-o", "mode=755,size=64k", "cell-dev", str(root / "dev"))
    for name in _DEVICES:
        (root / "dev" / name).touch()
        _mount("--bind", f"/dev/{name}", str(root / "dev" / name))
    _mount("-t", "proc", "cell-proc", str(root / "proc"))
    for inside, outside in cell.binds.items():
        target = root / inside.lstrip("/")
        _mount("--bind", outside, str(target))
        _mount("-o", "remount,bind,ro", str(target))
    if cell.read_only:
        _mount("-o", "remount,bind,ro", str(root / "dev"))
        _mount("-o", "remount,bind,ro", cell.root)
    os.chroot(cell.root)
    os.chdir(cell.directory)
    if cell.read_only:
        _give_up_rights()
    os.setgroups([])
    os.setresgid(cell.group, cell.group, cell.group)
    os.setresuid(cell.user, cell.user, cell.user)


def _give_up_rights() -> None:
    """What `capabilities: {drop: [ALL]}` and `allowPrivilegeEscalation: false` do."""
    libc = ctypes.CDLL(None, use_errno=True)
    capability = 0
    while libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:  # ends at the first that the kernel does not know
        capability += 1
    if capability == 0 or libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the rights of root cannot be given up")


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    given = Cell(**json.loads(sys.argv[1]))
    _enter(given)
    os.execvpe(given.command[0], given.command, given.environment)
