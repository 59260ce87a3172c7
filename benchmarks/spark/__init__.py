"""Speed of the pipelines: reading, writing, transforming, backfilling and comparing, beside nats-py in a loop."""
