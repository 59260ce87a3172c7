"""What changing the number of partitions of a transform moves: `nats-bridge partition plan`.

`change` reads the question from a transform, `plan` answers it with Spark, `table` and `picture` show the answer.
"""
