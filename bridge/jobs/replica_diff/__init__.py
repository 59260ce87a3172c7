"""The replicas of one stream, compared with each other: `nats-bridge replica-diff`.

`replica_reader` reads what one server stores; `comparing` finds where they differ; `job` does both for a stream, twice.
"""
