"""Commands that make what the repository holds: entries of the zoo, data of the examples, pictures. None is timed."""
