"""Going back: committed ranges written anew by the current definition, from a backup or from Kafka, and swapped in."""
