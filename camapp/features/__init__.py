"""Features out of backbones, and what to do with them."""
