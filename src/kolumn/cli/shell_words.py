"""Translates messages of the library to the options of the command line: ``errors='skip'`` becomes ``--errors skip``."""

import ast
import os
import re
import shlex
from collections.abc import Iterable

_IN_THE_LIBRARY = {"to": "format"}
"""Options that have another name in the library."""

_VALUE = r"""'[^']*'|"[^"]*"|-?[\w.]+"""
# Names in paths, topic=orders/partition=3, are not options.
_BEFORE, _AFTER = r"(?<![\w/.-])", r"(?![\w/=])"


def quoted(name: str) -> str:
    """A name as a word of a shell. One that could move a terminal's cursor is written as bash, zsh and ksh take it: ``$'a\\x1b'``."""
    if name.isprintable():
        return shlex.quote(name)
    data = os.fsencode(name)
    return "$'" + "".join(chr(byte) if 0x20 <= byte < 0x7F and byte not in b"'\\" else f"\\x{byte:02x}" for byte in data) + "'"


def in_shell_words(text: str, parameters: Iterable[str]) -> str:
    """The text with parameters replaced by the options of a command."""
    parameters = list(parameters)
    if "key_file" in parameters:
        text = re.sub(r"keys=\{'([^']*)': path\}", r"--key-file \1=path", text)
    for parameter in parameters:
        name, option = _IN_THE_LIBRARY.get(parameter, parameter), f"--{parameter.replace('_', '-')}"
        text = re.sub(rf"{_BEFORE}{name}=({_VALUE}){_AFTER}", lambda match, option=option: _given(option, match[1]), text)  # type: ignore[misc]
        if "_" in name:
            text = re.sub(rf"{_BEFORE}{name}{_AFTER}", option, text)
    return text


def _given(option: str, value: str) -> str:
    if value == "True":
        return option
    quoted = value.startswith(("'", '"'))
    return f"{option} {shlex.quote(ast.literal_eval(value)) if quoted else value}"
