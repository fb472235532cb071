"""What all tabs share: the selection, the queue, the models, messages, downloads and the look."""
