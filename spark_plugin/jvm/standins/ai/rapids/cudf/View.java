package ai.rapids.cudf;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.LongStream;

/** What a handle of a view names, libcudf's column_view: where the parts of a column are. It owns nothing. Not in RAPIDS' jar. */
record View(DType type, long rows, long nulls, long data, long valid, long offsets, List<View> children) {
  private static final Map<Long, View> LIVE = new ConcurrentHashMap<>();
  private static final AtomicLong NEXT = new AtomicLong(0x7000_0000_0001L);

  /** As libcudf's Java makes one of what it is given: {@code nulls} of -1 are counted. */
  static View of(
      DType type, long rows, long nulls, BaseDeviceMemoryBuffer data, BaseDeviceMemoryBuffer valid, BaseDeviceMemoryBuffer offsets,
      List<View> children) {
    if (rows < 0 || rows > Integer.MAX_VALUE) {
      throw new IllegalArgumentException(rows + " rows: a column has at most " + Integer.MAX_VALUE);
    }
    boolean hasOffsets = type.equals(DType.STRING) || type.equals(DType.LIST);
    if (hasOffsets && rows > 0 && (offsets == null || offsets.length < 4 * (rows + 1))) {
      throw new CudfException("offset is null, or there are too few of them: " + offsets);
    }
    if (type.equals(DType.LIST) && children.size() != 1) {
      throw new CudfException("LIST children size is not 1");
    }
    if (type.equals(DType.STRUCT) && children.stream().anyMatch(child -> child.rows != rows)) {
      throw new CudfException("Child columns must have the same number of rows as the Struct column.");
    }
    if (type.getSizeInBytes() > 0 && rows > 0 && (data == null || data.length < rows * type.getSizeInBytes())) {
      throw new CudfException("data of " + rows + " rows of " + type + " expected, found " + data);
    }
    if (valid == null ? nulls > 0 : valid.length < (rows + 7) / 8) {
      throw new CudfException(nulls + " nulls, and their bitmap is " + valid);
    }
    long bits = valid == null ? 0 : valid.address;
    long start = data == null || type.isNestedType() ? 0 : data.address;
    long starts = hasOffsets && rows > 0 ? offsets.address : 0;
    return new View(type, rows, nulls < 0 ? unset(bits, rows) : nulls, start, bits, starts, List.copyOf(children));
  }

  static long unset(long bitmap, long rows) {
    return bitmap == 0 ? 0 : LongStream.range(0, rows).filter(row -> !StandIn.isSet(bitmap, row)).count();
  }

  /** A handle of this view, until {@link #close}. */
  long opened() {
    // Only where assertions are enabled, as in RAPIDS.
    assert nullsAreEmpty() : "Column has non-empty nulls";
    long handle = NEXT.getAndIncrement();
    LIVE.put(handle, this);
    StandIn.VIEWS.incrementAndGet();
    return handle;
  }

  static View named(long handle) {
    View found = LIVE.get(handle);
    if (found == null) {
      throw new IllegalStateException("a view that was closed, or that nobody made: " + handle);
    }
    return found;
  }

  static void close(long handle) {
    named(handle);
    LIVE.remove(handle);
    StandIn.VIEWS.decrementAndGet();
  }

  int offset(long row) {
    return rows == 0 ? 0 : StandIn.intAt(offsets, row);
  }

  private boolean nullsAreEmpty() {
    for (long row = 0; offsets != 0 && row < rows; row++) {
      if (!StandIn.isSet(valid, row) && offset(row) != offset(row + 1)) {
        return false;
      }
    }
    return children.stream().allMatch(View::nullsAreEmpty);
  }
}
