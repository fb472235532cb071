"""Which pictures a source means, their labels, and batches of them for a model."""
