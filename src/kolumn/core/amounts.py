"""Sizes and spans of time as people read them: one notation for all that is printed. JSON has bytes and milliseconds."""

_SPANS = (("year", 31_557_600_000), ("day", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))


def size(value: float) -> str:
    """Bytes in their largest unit: ``45 B``, ``1.3 MB``."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if abs(value) < (1000 if unit == "B" else 999.95) or unit == "PB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def age(ms: float) -> str:
    """A span of time for people, in its largest unit: ``37.8 years``, ``9 days``, ``3 h``."""
    unit, length = next((span for span in _SPANS if abs(ms) >= span[1]), _SPANS[-1])
    number = f"{ms / length:.{1 if unit == 'year' or abs(ms) < 10 * length else 0}f}".removesuffix(".0")
    return f"{number} {unit}{'s' if unit in ('year', 'day') and number != '1' else ''}"
