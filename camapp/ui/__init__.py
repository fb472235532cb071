"""The web page. Importing this package settles the environment that Gradio reads, before Gradio is imported."""

from camapp.ui.environment import settle

settle()
