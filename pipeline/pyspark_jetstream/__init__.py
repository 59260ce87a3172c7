"""The package that Spark finds by its name, for the sake of the data source `jetstream` of `nats_bridge_spark`.

Where it is not installed on the driver but shipped (`--py-files`), Spark does not look for it: call `register`.
"""

from nats_bridge_spark.data_source import JetStreamDataSource, register

__all__ = ["DefaultSource", "register"]

DefaultSource = JetStreamDataSource
