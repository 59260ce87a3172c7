"""The command that plays one case on one subject of test again."""

import shlex

from nats_conformance.identity import Identity


def reproduction(case_id: str, subject: Identity, server: object = None) -> str:
    """Return a shell command. `COMMAND` stands for a library's command, which only its owner knows.

    `server` is the address of the tested running server, if any.
    """
    words = ["nats-conform", "run", "--versions", subject.server or subject.dialect]
    if server:
        words[2:] = ["--server", str(server)]
    elif subject.kind == "library":
        words += ["--subjects", "engine", "--library", "COMMAND"]
    else:
        words += ["--subjects", subject.kind]
    if subject.kind == "bridge" and subject.server not in ("", subject.dialect):
        words += ["--bridge-dialect", subject.dialect]
    words += ["--select", case_id]
    return shlex.join(words)
