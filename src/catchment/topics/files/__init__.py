"""The formats of export files, for writing and for reading. Knows nothing of Kafka, claims or Spark."""
