"""One package for each kind of rule, and `registry`, the table of them."""
