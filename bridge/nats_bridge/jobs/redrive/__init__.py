"""Dead letters back on their original subject, each exactly once: `nats-bridge redrive`."""
