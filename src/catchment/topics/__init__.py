"""Topics: Kafka topics, exported exactly once."""
