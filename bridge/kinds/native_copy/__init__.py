"""Native copying through the sidecar: rules of kind native_copy serve a stream to a server's mirror or source."""
