"""One package for each kind of rule."""
