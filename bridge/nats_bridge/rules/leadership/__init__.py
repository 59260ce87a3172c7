"""Leadership: decides which replica runs a rule."""
