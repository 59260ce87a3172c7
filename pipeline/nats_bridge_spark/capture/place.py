"""Accesses the directory of a capture: on this machine, or in an object store (`s3://…`).

Both have the same few operations. Files on this machine are flushed to disk before they appear.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from nats_bridge_spark.errors import OptionError, PipelineError

_ADDRESS: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):")


def place_of(path: str) -> "Place":
    """Return the directory that a path or an address names.

    Raises:
        OptionError: it is an address of another kind, or cannot be reached.
    """
    found = _ADDRESS.match(path)
    if found is None:
        return Place(path, LocalFileSystem(), str(Path(path).absolute()))
    rest = path[found.end() :]
    if found[1] == "file":
        return Place(path, LocalFileSystem(), "/" + rest.strip("/"))
    if found[1] not in ("s3", "s3a"):
        raise OptionError(f"{path}: is neither a directory of this machine nor an address in S3 (s3://BUCKET/DIR)")
    try:
        return Place(path, *FileSystem.from_uri(f"s3:{rest.rstrip('/')}"))
    except (OSError, ValueError) as error:
        raise OptionError(f"{path}: cannot be used: {str(error).splitlines()[0]}") from None


class Place:
    """A directory. Paths are relative to it, with slashes.

    Attributes:
        files: its file system.

    Args:
        shown: the directory as the user has named it.
        root: the directory in the file system.
    """

    def __init__(self, shown: str, files: FileSystem, root: str) -> None:
        self.files = files
        self._shown = shown.rstrip("/") or "/"
        self._root = root
        self._is_local = isinstance(files, LocalFileSystem)

    def __str__(self) -> str:
        return self._shown

    def at(self, path: str = "") -> str:
        """Return a path in the file system."""
        return f"{self._root}/{path}" if path else self._root

    def uri(self, path: str = "") -> str:
        """Return the address of a path for Spark."""
        # Not quoted, because Spark takes the text literally.
        return f"{'file' if self._is_local else 's3a'}://{self.at(path)}"

    def below(self, name: str) -> "Place":
        """Return a directory in it."""
        return Place(f"{self}/{name}", self.files, self.at(name))

    def names(self, path: str = "") -> list[str]:
        """Return the names in a directory, in order; none if it does not exist."""
        try:
            found = self.files.get_file_info(FileSelector(self.at(path), allow_not_found=True))
        except FileNotFoundError:  # it was removed just now
            return []
        except NotADirectoryError:
            raise OptionError(f"{self.below(path) if path else self}: not a directory") from None
        return sorted(info.base_name for info in found)

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""
        found: int | None = self.files.get_file_info(self.at(path)).size
        return found

    def read(self, path: str) -> str | None:
        """Return a file's text; None if it does not exist."""
        try:
            with self.files.open_input_stream(self.at(path)) as stream:
                return str(stream.read(), "utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def replace(self, path: str, text: str) -> None:
        """Write a file of the directory itself, so that every reader sees the old text or the new one."""
        new, target = Path(self.at(f".{path}.new")), self.at(path)
        with self.files.open_output_stream(str(new) if self._is_local else target) as stream:
            stream.write(text.encode())
        if self._is_local:
            _sync(new)
            new.replace(target)
            _sync(new.parent)

    def make(self, path: str = "") -> None:
        """Make a directory, with those above it."""
        try:
            self.files.create_dir(self.at(path))
        except (FileExistsError, NotADirectoryError):
            raise OptionError(f"{self}: not a directory") from None
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
            raise OptionError(f"{self}: cannot be made: {why}") from None

    def move(self, source: str, target: str) -> None:
        """Rename a directory with its contents; in an object store file by file.

        Raises:
            FileNotFoundError: it does not exist.
        """
        names = self.names(source)
        if not names:
            raise FileNotFoundError(self.at(source))
        if not self._is_local:
            for name in names:
                self.files.move(self.at(f"{source}/{name}"), self.at(f"{target}/{name}"))
            return
        begin, end = Path(self.at(source)), Path(self.at(target))
        for path in (*begin.iterdir(), begin):
            _sync(path)
        begin.rename(end)
        _sync(end.parent)

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its contents, if it exists."""
        kind = self.files.get_file_info(self.at(path)).type
        if kind == FileType.Directory:
            self.files.delete_dir(self.at(path))
        elif kind != FileType.NotFound:
            self.files.delete_file(self.at(path))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes of this machine from writing to it, if the file system supports locks.

        Raises:
            PipelineError: another one does.
        """
        if not self._is_local:
            yield
            return
        descriptor = os.open(self._root, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineError(f"{self}: another process writes to it; only one capture at a time can") from None
            except OSError:
                pass  # a file system without locks
            yield
        finally:
            os.close(descriptor)


def _sync(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
