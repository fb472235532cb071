"""The Compare tab: methods and layers side by side, and patches that look alike."""
