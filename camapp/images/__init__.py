"""Pixels only, no models: decode untrusted files, place them before a model, bring maps back, paint them."""
