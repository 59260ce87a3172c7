"""Accesses the directory of a capture: on this machine, or anywhere that Hadoop supports (`hdfs://…`, `s3a://…`).

Both have the same few operations. Python handles directories of this machine, and flushes files to disk before they
appear. Everything else goes through the Java of the Spark session.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nats_bridge_spark.engine import is_local
from nats_bridge_spark.errors import OptionError, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def absolute(path: str) -> str:
    """Return a path that does not depend on the working directory; an address unchanged."""
    return str(Path(path).absolute()) if is_local(path) and not path.startswith("file:") else path


def place_of(spark: SparkSession | None, path: str) -> Place:
    """Return the directory that a path or an address names.

    Raises:
        OptionError: Spark does not support the address, or it needs a session.
    """
    if path.startswith("file:"):
        return Place(Path("/" + path.removeprefix("file:").lstrip("/")))
    if is_local(path):
        return Place(Path(path).absolute())
    if spark is None:
        raise OptionError(f"--engine local: only Spark reaches {path}; leave it out")
    return _HadoopPlace(spark, path)


class Place:
    """A directory of this machine, or one that is mounted here. Paths are relative to it, with slashes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __str__(self) -> str:
        return str(self.root)

    def uri(self, path: str = "") -> str:
        """Return the address of a path for Spark."""
        # Not quoted, because Spark takes the text literally.
        return f"file://{self._at(path)}"

    def names(self, path: str = "") -> list[str]:
        """Return the names in a directory, in order; none if it does not exist."""
        place = self._at(path)
        try:
            return sorted(entry.name for entry in place.iterdir())
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise OptionError(f"{place}: not a directory") from None

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""
        try:
            return self._at(path).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, path: str) -> str | None:
        """Return a file's text; None if it does not exist."""
        try:
            return self._at(path).read_text("utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def replace(self, path: str, text: str) -> None:
        """Write a file of the directory itself, so that every reader sees the old text or the new one."""
        target = self._at(path)
        new = target.with_name(f".{target.name}.new")
        with new.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(target)
        _sync(target.parent)

    def make(self, path: str = "") -> None:
        """Make a directory, with those above it."""
        place = self._at(path)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise OptionError(f"{place}: not a directory") from None
        except OSError as error:
            raise OptionError(f"{place}: cannot be made: {error.strerror}") from None

    def move(self, source: str, target: str) -> bool:
        """Rename a file, or a directory with its contents. Return False if it does not exist."""
        begin, end = self._at(source), self._at(target)
        try:
            for file in begin.iterdir() if begin.is_dir() else ():
                _sync(file)
            _sync(begin)
            begin.rename(end)
        except FileNotFoundError:
            return False
        _sync(end.parent)
        return True

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its contents, if it exists."""
        place = self._at(path)
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)

    def fetched(self, path: str) -> AbstractContextManager[str]:
        """Return a file of this machine with the same bytes, for a while."""
        return nullcontext(str(self._at(path)))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes of this machine from writing to it, if the file system supports locks.

        Raises:
            PipelineError: another one does.
        """
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise PipelineError(f"{self}: another process writes to it; only one capture at a time can") from None
        except OSError:
            pass  # a file system without locks
        try:
            yield
        finally:
            os.close(descriptor)

    def _at(self, path: str) -> Path:
        return self.root / path if path else self.root


def _sync(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _HadoopPlace(Place):
    """A directory that Hadoop's file systems reach, through the Java of the Spark session."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._root = uri.rstrip("/")
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._gateway: Any = spark.sparkContext._gateway
        conf = spark._jsc.hadoopConfiguration()
        hadoop = self._jvm.org.apache.hadoop.fs
        try:
            path = hadoop.Path(self._root)
            self._files: Any = path.getFileSystem(conf)
            self._context: Any = hadoop.FileContext.getFileContext(self._files.getUri(), conf)
        except Exception as error:
            said = str(getattr(error, "java_exception", error)).splitlines()[0]
            raise OptionError(f"{uri}: Spark cannot use this address: {said}") from None

    def __str__(self) -> str:
        return self._root

    def uri(self, path: str = "") -> str:
        return f"{self._root}/{path}" if path else self._root

    def names(self, path: str = "") -> list[str]:
        place = self._at(path)
        if not self._files.exists(place):
            return []
        if not self._files.getFileStatus(place).isDirectory():
            raise OptionError(f"{self.uri(path)}: not a directory")
        return sorted(status.getPath().getName() for status in self._files.listStatus(place))

    def size(self, path: str) -> int | None:
        place = self._at(path)
        return int(self._files.getFileStatus(place).getLen()) if self._files.exists(place) else None

    def read(self, path: str) -> str | None:
        place = self._at(path)
        if not self._files.exists(place):
            return None
        stream = self._files.open(place)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def replace(self, path: str, text: str) -> None:
        new = self._at(f".{path}.new")
        stream = self._files.create(new, True)
        try:
            stream.write(bytearray(text, "utf-8"))
        finally:
            stream.close()
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._gateway.new_array(rename, 1)
        options[0] = rename.OVERWRITE
        self._context.rename(new, self._at(path), options)

    def make(self, path: str = "") -> None:
        if not self._files.mkdirs(self._at(path)):
            raise OptionError(f"{self.uri(path)}: cannot be made")

    def move(self, source: str, target: str) -> bool:
        begin = self._at(source)
        return bool(self._files.exists(begin) and self._files.rename(begin, self._at(target)))

    def remove(self, path: str) -> None:
        self._files.delete(self._at(path), True)

    @contextmanager
    def fetched(self, path: str) -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="nats-bridge-capture-") as folder:
            file = f"{folder}/file.parquet"
            self._files.copyToLocalFile(
                False, self._at(path), self._jvm.org.apache.hadoop.fs.Path(f"file://{file}"), True
            )
            yield file

    @contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.uri(path))
