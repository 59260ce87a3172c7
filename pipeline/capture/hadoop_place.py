"""A place of a capture that Hadoop's file systems reach, through the Java of the Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nats_bridge.pipeline.errors import OptionError, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HadoopPlace"]


class HadoopPlace:
    """A directory that Hadoop's file systems reach.

    Where moving a directory is not one step (object stores), a reader may see a part of a chunk while it appears, and
    what was left half moved is removed by the next run: nothing is stored twice.
    """

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
        """A path's address."""
        return f"{self._root}/{path}" if path else self._root

    def names(self, path: str = "") -> list[str]:
        """What is in a directory."""
        place = self._at(path)
        if not self._files.exists(place):
            return []
        if not self._files.getFileStatus(place).isDirectory():
            raise OptionError(f"{self.uri(path)}: not a directory")
        return sorted(status.getPath().getName() for status in self._files.listStatus(place))

    def size(self, path: str) -> int | None:
        """Bytes of a file."""
        place = self._at(path)
        return int(self._files.getFileStatus(place).getLen()) if self._files.exists(place) else None

    def read(self, path: str) -> str | None:
        """A file's text."""
        place = self._at(path)
        if not self._files.exists(place):
            return None
        stream = self._files.open(place)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def replace(self, path: str, text: str) -> None:
        """In one step, as far as the file system has such."""
        folder, _, name = path.rpartition("/")
        new = self._at(f"{folder}/.{name}.new" if folder else f".{name}.new")
        self._write(self._files.create(new, True), text)
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._gateway.new_array(rename, 1)
        options[0] = rename.OVERWRITE
        self._context.rename(new, self._at(path), options)

    def create(self, path: str, text: str) -> bool:
        """Exclusively, as far as the file system has such."""
        try:
            stream = self._files.create(self._at(path), False)
        except Exception:
            if self.size(path) is None:
                raise
            return False
        self._write(stream, text)
        return True

    def make(self, path: str = "") -> None:
        """With parents."""
        if not self._files.mkdirs(self._at(path)):
            raise OptionError(f"{self.uri(path)}: cannot be made")

    def move(self, source: str, target: str) -> None:
        """In one step, as far as the file system has such."""
        if not self._files.rename(self._at(source), self._at(target)):
            raise PipelineError(f"{self.uri(source)}: cannot be moved to {target}")

    def take(self, source: str, target: str) -> bool:
        """In one step, as far as the file system has such."""
        begin = self._at(source)
        return bool(self._files.exists(begin) and self._files.rename(begin, self._at(target)))

    def remove(self, path: str) -> None:
        """Whatever it is."""
        self._files.delete(self._at(path), True)

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.uri(path))

    def _write(self, stream: Any, text: str) -> None:
        try:
            stream.write(bytearray(text, "utf-8"))
        finally:
            stream.close()
