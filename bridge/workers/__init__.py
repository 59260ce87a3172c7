"""Several processes for the rules of one sidecar: a foreman, who runs none, and workers, who share them."""
