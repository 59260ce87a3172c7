"""Another configuration while the rules run: compared, prepared, then applied or rolled back."""
