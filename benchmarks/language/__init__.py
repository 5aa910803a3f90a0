"""A real language model on real text: what its coins tell, and what they do not."""
