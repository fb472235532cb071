"""The Batch tab: many pictures at once, each shown as it comes, and one .zip of them all."""
