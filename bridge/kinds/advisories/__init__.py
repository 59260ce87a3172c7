"""JetStream's advisories republished, if wanted with the message that they are about: rules of kind advisories."""
