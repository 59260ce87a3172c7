"""Random streams of all that servers of 2.10 to 2.15 store, played natively and by rules of the bridge at once."""
