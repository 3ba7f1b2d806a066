"""Spark: finding Java, fetching jars, building the one session. Importing this imports no PySpark."""
