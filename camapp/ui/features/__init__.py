"""The Features tab: features of many pictures, how they lie, files of them, and a classifier trained on them."""
