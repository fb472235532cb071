"""The Inspect tab: what a model is made of, what one layer sees of a picture, and how gradients run over depth."""
