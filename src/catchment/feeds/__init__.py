"""HTTP feeds: collected by any number of replicas, archived by the hour, reconciled in the bucket."""
