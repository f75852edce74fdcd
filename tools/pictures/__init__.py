"""The image of ``rolecall demo`` in the documentation, drawn from the output of a real demo."""
