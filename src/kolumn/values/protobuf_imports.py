"""Files that .proto text may import without a reference. Confluent's registry and serializers have them built in (``KNOWN_DEPENDENCIES``
of ``ProtobufSchema``), so nobody registers them. Those of google/type come with googleapis-common-protos, those of google/protobuf with
protoc.
"""

import re
from collections.abc import Collection, Iterable
from importlib import resources

from kolumn.core.packages import install

_META = """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4; }
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_DECIMAL = 'syntax = "proto3"; package confluent.type; message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }'
_VARIANT = 'syntax = "proto3"; package confluent.type; message Variant { bytes metadata = 1; bytes value = 2; }'
_CONFLUENT = {
    "confluent/meta.proto": _META, "confluent/type/decimal.proto": _DECIMAL, "confluent/type/variant.proto": _VARIANT,
    # Where Decimal was before.
    "confluent/types/decimal.proto": 'syntax = "proto3"; import public "confluent/type/decimal.proto";',
}  # fmt: skip
_GOOGLE = re.compile(r"google/type/(\w+\.proto)")
_IMPORT = re.compile(r"""\bimport\s+(?:public\s+|weak\s+)?(?:"([^"\n]+)"|'([^'\n]+)')\s*;""")


_PROTOC = frozenset(f"google/protobuf/{name}.proto" for name in ("api", "source_context", "type"))


def is_built_in(name: str) -> bool:
    """Whether a file that nobody sends along has to be compiled: it is not in the package protobuf, or imports others of it."""
    return name in _CONFLUENT or name in _PROTOC or _GOOGLE.fullmatch(name) is not None


def built_in_imports(texts: Iterable[str], given: Collection[str]) -> dict[str, str]:
    """Texts of the built-in files that some texts import, and of those that these import, by their names; without those that are given."""
    found: dict[str, str] = {}
    todo = list(texts)
    while todo:
        for double, single in _IMPORT.findall(todo.pop()):
            name = double or single
            text = None if name in found or name in given else _text(name)
            if text is not None:
                found[name] = text
                todo.append(text)
    return found


def _text(name: str) -> str | None:
    match = _GOOGLE.fullmatch(name)
    if match is None:
        return _CONFLUENT.get(name)
    try:
        return (resources.files("google.type") / match[1]).read_text(encoding="utf-8")
    except (ImportError, OSError):
        return None


def not_found(name: str, which: str) -> str:
    """What to say of a file that schema ``which`` imports and that is not there."""
    if _GOOGLE.fullmatch(name):
        return f"schema{which} imports {name!r}: {install('googleapis-common-protos')}"
    return (
        f"schema{which} imports {name!r}, which is none of its references: register it as one, or name a FileDescriptorSet as the schema, "
        "which has its imports (protoc --include_imports --descriptor_set_out)"
    )
