"""Speed of the pipelines: reading, writing, transforming, backfilling and comparing, next to nats-py in a loop."""
