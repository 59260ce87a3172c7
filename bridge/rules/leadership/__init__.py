"""Who may work on a rule: this sidecar, or another of its replicas."""
