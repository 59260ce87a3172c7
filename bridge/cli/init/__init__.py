"""`nats-bridge init`: looks at a cluster and writes a configuration for it."""
