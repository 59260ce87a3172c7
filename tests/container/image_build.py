"""Performs a Dockerfile's instructions in root folders, as well as is possible without a container engine."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from tests.container.cell import Cell
from tests.container.dockerfile import Dockerfile, DockerfileError, Instruction, Stage, allowed

__all__ = ["BuildError", "Image", "build"]

_STEP = 300.0  # seconds; a bound for hangs
_BASE_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"


class BuildError(Exception):
    """An instruction failed; with its output."""


@dataclass(frozen=True, slots=True)
class Image:
    """What was built.

    Attributes:
        root: its files.
        stage: its instructions.
    """

    root: Path
    stage: Stage

    def cell(self, *arguments: str, binds: dict[str, str] | None = None) -> Cell:
        """The image's command, or its entry point with other arguments, as the manifests run it.

        Without rights, on a read-only root, as the image's user, in the network of the machine (as containers of one
        pod have one network).
        """
        user, _, group = self.stage.last("USER").text.partition(":")
        command = [*self.stage.last("ENTRYPOINT").words, *(arguments or self.stage.last("CMD").words)]
        environment = {"PATH": _BASE_PATH, **self.stage.environment}
        directory = self.stage.last("WORKDIR").text
        started = Cell(str(self.root), command, environment, directory, int(user), int(group), read_only=True)
        return replace(started, binds=binds or {}, network=True)


def build(dockerfile: Dockerfile, context: Path, base: Path, wheels: Path, folder: Path) -> Image:
    """Build the stages; commands run without any network.

    Args:
        dockerfile: what to do.
        context: the folder that COPY copies from, with its .dockerignore.
        base: the root folder of the base image; it is copied, not changed.
        wheels: a folder with the packages that pip may install.
        folder: where the stages' root folders are made.

    Raises:
        BuildError: an instruction fails.
        DockerfileError: an instruction cannot be performed here.
    """
    roots: dict[str, Path] = {}
    for stage in dockerfile.stages:
        root = folder / stage.name
        # cp, not shutil: it keeps owners.
        subprocess.run(["cp", "-a", str(base), str(root)], check=True)
        roots[stage.name] = root
        _perform(stage, root, roots, context, wheels)
    return Image(roots[dockerfile.image.name], dockerfile.image)


def _perform(stage: Stage, root: Path, roots: dict[str, Path], context: Path, wheels: Path) -> None:
    directory = "/"
    environment = {"PATH": _BASE_PATH, "HOME": "/root"}
    for instruction in stage.instructions:
        match instruction.name:
            case "WORKDIR":
                directory = instruction.text
                (root / directory.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "ENV":
                environment |= dict(word.partition("=")[::2] for word in instruction.words)
            case "COPY":
                _copy(instruction, root, directory, roots, context)
            case "RUN":
                _run(instruction, root, directory, environment, wheels)
            case "USER":
                if any(later.name == "RUN" for later in stage.instructions[stage.instructions.index(instruction) :]):
                    raise DockerfileError("RUN after USER: here commands are run by root only")


def _run(instruction: Instruction, root: Path, directory: str, environment: dict[str, str], wheels: Path) -> None:
    inside = root / "mnt"
    # An index that is a folder: the same files, by the same hashes, without a network.
    pip = {"PIP_FIND_LINKS": "/mnt", "PIP_NO_INDEX": "1"}
    command = ["/bin/sh", "-c", instruction.text]
    cell = Cell(
        str(root), command, environment | pip, directory, binds={"/mnt": str(wheels)} if inside.is_dir() else {}
    )
    done = subprocess.run(
        cell.started_by(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_STEP, check=False
    )
    if done.returncode != 0:
        raise BuildError(f"RUN {instruction.text}\nexit code {done.returncode}\n{done.stdout}")


def _copy(instruction: Instruction, root: Path, directory: str, roots: dict[str, Path], context: Path) -> None:
    *sources, target = instruction.words
    if unknown := set(instruction.flags) - {"from"}:
        raise DockerfileError(f"COPY --{unknown.pop()}: not known here")
    source_root = roots[instruction.flags["from"]] if "from" in instruction.flags else None
    into = root / target.lstrip("/") if target.startswith("/") else root / directory.lstrip("/") / target
    for source in sources:
        outside = (source_root or context) / source.lstrip("/")
        if not outside.exists():
            raise BuildError(f"COPY {source}: not there")
        folder = outside.is_dir()
        place = into / outside.name if not folder and (target.endswith("/") or target == ".") else into
        if source_root is not None:
            place.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", str(outside), str(place)], check=True)
            continue
        _copy_from_context(outside, place, context)


def _copy_from_context(outside: Path, place: Path, context: Path) -> None:
    patterns = (context / ".dockerignore").read_text("utf-8")
    files = (
        [file for file in outside.rglob("*") if file.is_symlink() or file.is_file()] if outside.is_dir() else [outside]
    )
    copied = [file for file in files if allowed(file.relative_to(context).as_posix(), patterns)]
    if not copied:
        raise BuildError(f"COPY {outside.relative_to(context)}: .dockerignore lets nothing of it pass")
    for file in copied:
        target = place / file.relative_to(outside) if outside.is_dir() else place
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.is_symlink():  # as builders do: a link stays one
            target.symlink_to(file.readlink())
            continue
        shutil.copyfile(file, target)
        target.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
