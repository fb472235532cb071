"""What an inspection found, as data, text, pictures and files."""
