"""The words of a greeting."""


def greeting(name: str) -> str:
    return f"hello {name}"
