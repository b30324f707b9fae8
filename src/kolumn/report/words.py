"""Numbers and times as people read them."""

from datetime import UTC, datetime

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def number(value: float) -> str:
    """A whole number with thin spaces: 2 000 000."""
    return f"{round(value):,}".replace(",", "\u202f")


def counted(value: int, name: str) -> str:
    """A number with a noun: 1 segment, 2 segments, 2 batches."""
    return f"{number(value)} {name}{'' if value == 1 else 'es' if name.endswith('ch') else 's'}"


def size(value: float) -> str:
    """Bytes in decimal units."""
    for unit in _UNITS:
        if abs(value) < 1000 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError


def binary(value: int) -> str:
    """A power of two of at least 1 KiB, in bytes."""
    return f"{value >> 10} KiB" if value < 1 << 20 else f"{value >> 20} MiB"


def short(value: float) -> str:
    """A count for an axis: 2.5 M."""
    length, unit = next(((length, unit) for length, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")) if abs(value) >= length), (1, ""))
    value /= length
    return f"{value:g}{unit}" if value == round(value) else f"{value:.1f}{unit}"


def share(part: float, whole: float) -> str:
    """A percentage."""
    if not whole:
        return "–"
    value = 100 * part / whole
    return "< 0.1 %" if 0 < value < 0.1 else f"{value:.1f} %"


def moment(ms: int | None) -> str:
    """A time in UTC."""
    if ms is None:
        return "–"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def duration(ms: float) -> str:
    """A length of time."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= length:
            return f"{number(ms / length) if ms >= 100 * length else f'{ms / length:.3g}'} {unit}"
    return f"{ms:.0f} ms"


def power(place: int) -> str:
    """The sizes in one place of `kolumn.report.histograms.Powers`: its upper bound."""
    return "0" if place == 0 else binary(2**place) if place >= 10 else str(2**place)
