"""Rules of kind advisories: publish JetStream's advisories, with their message if wanted."""
