"""Commands that run on Spark; each imports PySpark only when it runs."""
