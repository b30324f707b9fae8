"""What RAPIDS says of a plan (``ExplainPlan.explainPotentialGpuPlan``), operator by operator, and in words.

    *Exec <ProjectExec> will run on GPU
      *Expression <Alias> … will run on GPU
      *Exec <MapInArrowExec> will partially run on GPU
        !Exec <BatchScanExec> cannot run on GPU because not all scans can be replaced
          ! <PythonScan> cannot run on GPU because …

``*`` runs on the GPU, ``^`` there by way of the CPU bridge, ``!`` on the CPU, ``@`` and ``#`` could run on the GPU and do not.
Lines below an operator, until the next one, are its expressions.
"""

import re
from dataclasses import dataclass, field

_LINE = re.compile(r"^(?P<indent> *)(?P<mark>[*!@#^]) ?(?P<kind>\w*) ?<(?P<name>\w+)> (?P<text>.*)$")


@dataclass(frozen=True)
class Operator:
    """An operator of a plan.

    Attributes
    ----------
    name : str
        As Spark calls it, without "Exec".
    on_gpu : bool
    reasons : tuple of str
        Why it is not on the GPU, or what in it goes through the CPU.
    """

    name: str
    on_gpu: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """Which parts of a plan run on the GPU. Its text says so in words."""

    operators: tuple[Operator, ...]

    @property
    def on_gpu(self) -> tuple[str, ...]:
        """Names of the operators on the GPU, the last step of the plan first."""
        return tuple(operator.name for operator in self.operators if operator.on_gpu)

    @property
    def on_cpu(self) -> tuple[str, ...]:
        """Names of the others."""
        return tuple(operator.name for operator in self.operators if not operator.on_gpu)

    def __str__(self) -> str:
        lines = [f"On the GPU: {', '.join(self.on_gpu) or 'nothing'}.", f"On the CPU: {', '.join(self.on_cpu) or 'nothing'}."]
        for operator in self.operators:
            lines += [f"  {operator.name}: {reason}" for reason in operator.reasons]
        return "\n".join(lines)


@dataclass
class _Open:
    name: str
    on_gpu: bool
    reasons: list[str] = field(default_factory=list)


def parse(text: str) -> Explanation:
    """Read the text that RAPIDS prints with the argument "ALL"."""
    found: list[_Open] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        mark, kind = match["mark"], match["kind"]
        if kind == "Exec":
            found.append(_Open(match["name"].removesuffix("Exec"), mark in "*^"))
        if found and mark in "!^#" and (reason := _reason(match["name"], match["text"], kind)) not in (None, *found[-1].reasons):
            found[-1].reasons.append(str(reason))
    return Explanation(tuple(Operator(one.name, one.on_gpu, tuple(one.reasons)) for one in found))


def _reason(name: str, text: str, kind: str) -> str | None:
    _, because, reason = text.partition(" because ")
    if not because:
        return None
    return reason if kind == "Exec" else f"{name}: {reason}"
