"""The Explain tab: one picture, one class or two, where the model looked."""
