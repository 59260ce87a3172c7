"""`nats-bridge init`: inspects a cluster and writes a configuration for it."""
