"""Results of calls as text: a sentence, without tables."""


def counted(number: int, name: str) -> str:
    """A number and what it counts: "1 batch", "2 batches"."""
    return f"{number} {name}{'' if number == 1 else 'es' if name.endswith('ch') else 's'}"


class Result:
    """What a function returns. ``str`` is a sentence, of which the representation is made."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self}"
