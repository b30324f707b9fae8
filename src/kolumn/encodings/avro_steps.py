"""Steps of programs that decode Avro: `kolumn.encodings.avro` runs them.

A program is int64 words at one address. Rows of eight words are steps; constants come after them. Places in a program are bytes from its
address, so it can lie anywhere.

    word  | 0    | 1      | 2 | 3    | 4 | 5          | 6     | 7
          | kind | column | a | jump | b | first fill | fills | branch of null

A kind with `OPTIONAL` has a union's branch in front: that of null makes the fills null and goes to ``jump``, the other one is the step.
Lists are loops: `LIST` begins one or jumps over the `NEXT` after the steps of an item. A frame on ``stack`` has three words of
the list around it: items left of its block, its row, and where a block that says its size has to end.
"""

STEP, FRAME = 64, 24
"""Bytes of a step, and of a frame of the stack."""
FREE = 65536
"""Items without bytes that a value may have, in addition to one for each of its bytes."""
OPTIONAL = 64

LONG, INT, INT_TO_LONG, TIME, INT_TO_FLOAT, INT_TO_DOUBLE = range(6)
TEXT, BYTES, DECIMAL_BYTES, ENUM, UNION = range(6, 11)
DOUBLE, FLOAT, BOOLEAN, FLOAT_TO_DOUBLE, FIXED, DECIMAL, DURATION = range(11, 18)
NEXT, LIST, JUMP, END, FAIL, OPEN, ITEM, CLOSE = range(18, 26)
VALID, NULLS, WORD, CONSTANT, CONSTANT_FIXED = range(26, 31)
SKIP_LENGTH, SKIP_LONG, SKIP_NUMBER, SKIP_NEXT, SKIP_LIST, SKIP_BYTES, SKIP_BOOLEAN, SKIP_UNION, SKIP_JUMP = range(32, 41)
"""Kinds of steps. Those of the last line write nothing. LONG to UNION begin with a number. What their words mean:

LONG, INT, INT_TO_LONG, FLOAT, DOUBLE, BOOLEAN, FLOAT_TO_DOUBLE, DURATION, TEXT, BYTES: ``column``.
TIME: a: the most that the number can be, the least is 0; b: bytes to write.
INT_TO_FLOAT, INT_TO_DOUBLE: a: whether the number has to fit 32 bits.
ENUM: a: place of the reader's indexes by the writer's, -1 for none; b: how many the writer has.
DECIMAL_BYTES, DECIMAL: a: place of the largest number, words from the lowest on, and of the smallest one after it; b: bytes of a number in
the column; after the two numbers a word with the bytes of a DECIMAL. FIXED: b: bytes.
LIST, SKIP_LIST: a: level of the items, -1 if they are skipped; b: whether items may have no bytes; ``jump``: the step after its NEXT.
NEXT, SKIP_NEXT: the same, but ``jump`` is the first step of an item. UNION, SKIP_UNION: b: branches; as many steps follow, of which
``jump`` counts. SKIP_LONG: any number. SKIP_NUMBER: a, b: the least and the most that the number can be. SKIP_LENGTH: as many bytes follow
as the number says, and a more. SKIP_BYTES: b: how many. NULLS: fills. VALID: ``column`` is not null. WORD: a: bits, b: bytes. CONSTANT,
CONSTANT_FIXED: a: place, b: bytes. OPEN, ITEM, CLOSE: a list of constants; a: level.
"""
COLUMN_AT, A_AT, JUMP_AT, B_AT, FILL_AT, FILLS_AT, NULL_AT = 8, 16, 24, 32, 40, 48, 56
"""Where words are in a step."""
ROW_AT, LIMIT_AT = 8, 16
"""Where words are in a frame."""
