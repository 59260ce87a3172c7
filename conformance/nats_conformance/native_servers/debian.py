"""Native servers from Debian's packages, downloaded and unpacked without root.

The machine's own suites are tried first. Other suites need package lists that the machine lacks. These are loaded into
a separate apt state in a temporary folder, from the machine's own mirror, and checked with its Debian keyring. Nothing
is installed, and the machine's apt state does not change.
"""

import re
import shutil
from pathlib import Path

from nats_conformance.native_servers.binary import NAME
from nats_conformance.native_servers.errors import WayFailedError
from nats_conformance.native_servers.processes import Report, run

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITES = ("bookworm", "trixie", "sid")
"""Suites that carried nats-server when this was written: 2.9.10, 2.10.27, 2.15.1."""

LISTS_LIMIT = 300.0
STEP_LIMIT = 120.0
_TOOLS = ("apt-get", "apt-cache", "dpkg-deb")
_UPSTREAM = re.compile(r"(?:\d+:)?(\d+\.\d+\.\d+)(?!\d)")


def unpack(version: str, folder: Path, report: Report) -> Path:
    """Download the package of `version` into `folder`, and unpack the binary. Raise WayFailedError."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise WayFailedError(f"there is no {missing[0]} on PATH")
    options: list[str] = []
    package = exact_package_version(_offered(options, folder, report), version)
    if package is None:
        address = mirror(report)
        suites = ", ".join(SUITES)
        report(f"the machine's own suites have no nats-server {version}; loading the lists of {suites}")
        options = _private_state(folder / "apt", address)
        trouble = ""
        try:
            run(["apt-get", *options, "update"], limit=LISTS_LIMIT, report=report)
        except WayFailedError as error:
            trouble = f" ({error})"  # one suite may be unreachable or unsigned while another has the package
        offered = _offered(options, folder, report)
        package = exact_package_version(offered, version)
        if package is None:
            raise WayFailedError(f"{suites} have {', '.join(offered) or 'none'}, not {version}{trouble}")
    report(f"apt-get download {NAME}={package}")
    run(["apt-get", *options, "download", f"{NAME}={package}"], limit=STEP_LIMIT, report=report, directory=folder)
    downloaded = sorted(folder.glob(f"{NAME}_*.deb"))
    if not downloaded:
        raise WayFailedError(f"apt-get download left no {NAME}_*.deb")
    root = folder / "unpacked"
    run(["dpkg-deb", "-x", str(downloaded[0]), str(root)], limit=STEP_LIMIT, report=report)
    for place in ("usr/bin", "usr/sbin"):
        if (binary := root / place / NAME).is_file():
            return binary
    raise WayFailedError(f"{downloaded[0].name} holds no {NAME}")


def exact_package_version(offered: list[str], version: str) -> str | None:
    """Return the first Debian version (`2.10.27-1+b2`) in `offered` whose upstream part is `version`."""
    return next((text for text in offered if (found := _UPSTREAM.match(text)) and found[1] == version), None)


def mirror(report: Report) -> str:
    """Return the address of the Debian archive among the machine's apt sources.

    A source counts if it has the component `main` of a release (not its security or update suite), and its address
    ends in `/debian/` or its release has a Debian codename. Other archives use these codenames, too, so such an address
    comes first. Raises WayFailedError if none counts.
    """
    # Without release information, apt also names sources whose package lists this machine lacks.
    named = ["apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"]
    listed = run([*named, "Created-By: Packages"], limit=STEP_LIMIT, report=report).splitlines()
    sources = [(address, release) for address, release, component in map(str.split, listed) if component == "main"]
    for address, release in sorted(sources, key=lambda source: not source[0].endswith("/debian/")):
        if "-" not in release and (release in SUITES or address.endswith("/debian/")):
            return address
    raise WayFailedError("apt's sources name no Debian archive")


def _private_state(folder: Path, address: str) -> list[str]:
    """Return apt options for a separate state below `folder` with `SUITES` from `address`."""
    if not KEYRING.is_file():
        raise WayFailedError(f"there is no {KEYRING} to check packages with")
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    listed = folder / "suites.list"
    listed.write_text("".join(f"deb [signed-by={KEYRING}] {address} {suite} main\n" for suite in SUITES))
    settings = {
        "Dir::Etc::sourcelist": listed,
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
    }
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]


def _offered(options: list[str], folder: Path, report: Report) -> list[str]:
    listed = run(["apt-cache", *options, "madison", NAME], limit=STEP_LIMIT, report=report, directory=folder)
    columns = [line.split("|") for line in listed.splitlines()]
    return [column[1].strip() for column in columns if len(column) == 3 and column[2].strip().endswith("Packages")]
