"""What precedes a typed key or value: the prefix that names its schema, or nothing if a header names it.

    constant          prefix                                            key of the schema
    NONE              none
    CONFLUENT         00, i32 schema id                                 0, id
    CONFLUENT_GUID    01, 16 bytes GUID                                 its first and last eight bytes
    APICURIO          00, i64 id                                        0, id
    GLUE              03, 00, 16 bytes schema version id                its first and last eight bytes
    GLUE_ZLIB         03, 05, 16 bytes schema version id; the rest is one zlib stream
    SINGLE_OBJECT     C3 01, u64 little-endian fingerprint              0, that number as an int64
    CONFLUENT_HEADER  header __value_schema_id, __key_schema_id: 01 and GUID, or 00 and id; with Protobuf message indexes after it
    APICURIO_HEADER   headers apicurio.value.contentId, .globalId (key: apicurio.key.…): i64
    AZURE             header content-type: avro/binary+<32 hexadecimal digits>

Integers are big-endian but for the fingerprint. Apicurio's registry writes either of the first two forms with 00: four bytes of contentId,
or eight of globalId. Sources: confluent-kafka 2.16 ``schema_registry/common/serde.py``; Apicurio's ``Default4ByteIdHandler``,
``Legacy8ByteIdHandler`` and ``OptimisticFallbackIdHandler``; AWS Glue's ``GlueSchemaRegistryDeserializerDataParser``; Avro's single-object
encoding, https://avro.apache.org/docs/1.12.0/specification/#single-object-encoding.
"""

from kolumn.formats.memory import Buffer, i32_at, i64_at, load8, u32_at, u32_little_at

NONE, CONFLUENT, CONFLUENT_GUID, APICURIO, GLUE, GLUE_ZLIB, SINGLE_OBJECT, CONFLUENT_HEADER, APICURIO_HEADER, AZURE = range(10)
CONFLUENT_DEPRECATED, CONFLUENT_NO_INDEX, LENGTH_DELIMITED = range(10, 13)
"""What is not recognised, but said by callers, of Protobuf: after a prefix of the first two forms message indexes as plain varints, or
none; and the message after its length, a varint."""
DOUBTFUL = (CONFLUENT_GUID, APICURIO, GLUE)  # Framings that a bare value may look like, see `kolumn.values.framing.doubtful`.
PLAUSIBLE = 1 << 24  # Registries count ids from 1, some from 100,001.
PREFIXES = sum(1 << framing for framing in (CONFLUENT, CONFLUENT_GUID, APICURIO, GLUE, GLUE_ZLIB, SINGLE_OBJECT))
"""All framings that are prefixes, as a sum of ``1 << framing``."""
NO_SCHEMA = NO_ID = -1  # Index and id of the schema of a payload that names none.


def recognise(buf: Buffer, at: int, end: int, wanted: int) -> tuple[int, int, int, int]:
    """The framing of one payload at positions [at, end), by its first bytes; no other byte is read. ``wanted`` is the sum of ``1 <<
    framing`` for those that may be recognised. If both `CONFLUENT` and `APICURIO` are, an id of eight bytes is one whose first four are
    zero: no registry has the id 0. Returns the framing, `NONE` if there is no wanted prefix or not all of its bytes; bytes of the prefix;
    and the key of the schema, two int64.
    """
    size = end - at
    if size < 5:
        return NONE, 0, 0, 0
    first = load8(buf, at)
    if first == 0:
        four, eight = (wanted >> CONFLUENT) & 1, (wanted >> APICURIO) & 1
        if eight != 0 and size >= 9 and (four == 0 or u32_at(buf, at + 1) == 0):
            return APICURIO, 9, 0, i64_at(buf, at + 1)
        if four != 0:
            return CONFLUENT, 5, 0, i32_at(buf, at + 1)
    elif first == 1 and (wanted >> CONFLUENT_GUID) & 1 and size >= 17:
        return CONFLUENT_GUID, 17, i64_at(buf, at + 1), i64_at(buf, at + 9)
    elif first == 3:
        second = load8(buf, at + 1)
        framing = GLUE if second == 0 else GLUE_ZLIB
        if (second == 0 or second == 5) and (wanted >> framing) & 1 and size >= 18:
            return framing, 18, i64_at(buf, at + 2), i64_at(buf, at + 10)
    elif first == 0xC3 and (wanted >> SINGLE_OBJECT) & 1 and size >= 10 and load8(buf, at + 1) == 1:
        high = (u32_little_at(buf, at + 6) ^ 0x80000000) - 0x80000000
        return SINGLE_OBJECT, 10, 0, (high << 32) | u32_little_at(buf, at + 2)
    return NONE, 0, 0, 0
