"""All that touches torch's hooks: own them, record through them, and leave the model as it was found."""
