"""What an export does with its pictures: heatmaps or features. A job is sent to workers and opened there."""
