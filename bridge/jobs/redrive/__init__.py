"""Dead letters back on their original subject, each exactly once: `nats-bridge redrive`.

`letter` reads what the rules wrote; `plan` decides what is redriven; `destinations` knows which stream takes it;
`journal` remembers what was; `redriving` publishes, window after window.
"""
