"""Writing a claimed range: a Spark task reads it, Python makes files of it and puts them under their final names."""
