"""The picture of ``rolecall demo`` in the documentation, drawn from what a real demo has printed."""
