"""Commands that run on Spark. Each imports PySpark only when it runs."""
