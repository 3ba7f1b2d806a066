"""Tables: batches that land in the bucket are applied to Delta tables, each exactly once, in order where asked."""
