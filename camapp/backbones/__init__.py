"""Which models there are, where their weights are, and what is inside them."""
