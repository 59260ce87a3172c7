"""Native copies through the sidecar beside wholly native ones, of random streams, while everything is killed."""
