"""Native copies through the sidecar next to wholly native ones, of random streams, while everything is killed."""
