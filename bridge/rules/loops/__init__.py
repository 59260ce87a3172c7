"""Messages that would loop: through streams, their native features, and the rules."""
