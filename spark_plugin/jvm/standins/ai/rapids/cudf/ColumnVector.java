package ai.rapids.cudf;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.stream.Stream;

/** A stand-in; see {@link StandIn}. */
public final class ColumnVector extends ColumnView {
  private final List<DeviceMemoryBuffer> toClose;
  private int refCount = 1;

  /** Owns a column. */
  public ColumnVector(long nativePointer) {
    this(Column.owned(nativePointer));
  }

  private ColumnVector(Column column) {
    this(column.view(), column.memory());
  }

  private ColumnVector(View view, List<DeviceMemoryBuffer> toClose) {
    super(view);
    this.toClose = toClose;
    StandIn.COLUMNS.incrementAndGet();
  }

  /** Owns the buffers, if nothing is thrown. */
  public ColumnVector(
      DType type, long rows, Optional<Long> nullCount, DeviceMemoryBuffer dataBuffer, DeviceMemoryBuffer validityBuffer,
      DeviceMemoryBuffer offsetBuffer) {
    this(type, rows, nullCount, dataBuffer, validityBuffer, offsetBuffer, List.of(), new long[0]);
  }

  /** Owns the buffers, if nothing is thrown, and not the views of the children, which can be closed afterwards. */
  public ColumnVector(
      DType type, long rows, Optional<Long> nullCount, DeviceMemoryBuffer dataBuffer, DeviceMemoryBuffer validityBuffer,
      DeviceMemoryBuffer offsetBuffer, List<DeviceMemoryBuffer> toClose, long[] childHandles) {
    this(
        View.of(
            type, rows, nullCount.orElse(UNKNOWN_NULL_COUNT), dataBuffer, validityBuffer, offsetBuffer,
            Arrays.stream(childHandles).mapToObj(View::named).toList()),
        all(dataBuffer, validityBuffer, offsetBuffer, toClose));
  }

  private static List<DeviceMemoryBuffer> all(
      DeviceMemoryBuffer data, DeviceMemoryBuffer validity, DeviceMemoryBuffer offsets, List<DeviceMemoryBuffer> others) {
    List<DeviceMemoryBuffer> found = new ArrayList<>(others == null ? List.of() : others);
    Stream.of(data, validity, offsets).filter(Objects::nonNull).forEach(found::add);
    return found;
  }

  public static ColumnVector concatenate(ColumnView... columns) {
    if (columns.length < 2) {
      throw new IllegalArgumentException("Concatenate requires 2 or more columns");
    }
    return new ColumnVector(Column.copied(views(columns)));
  }

  /** A column of lists whose elements are copies of this one's rows. */
  public ColumnVector makeListFromOffsets(long rows, ColumnView offsets) {
    List<View> both = views(new ColumnView[] {offsets, this});
    return new ColumnVector(Column.list(rows, both.get(0), both.get(1)));
  }

  public synchronized ColumnVector incRefCount() {
    if (refCount <= 0) {
      throw new IllegalStateException("Column is already closed");
    }
    refCount++;
    return this;
  }

  public synchronized int getRefCount() {
    return refCount;
  }

  @Override
  public synchronized void close() {
    refCount--;
    if (refCount == 0) {
      super.close();
      StandIn.COLUMNS.decrementAndGet();
      toClose.forEach(DeviceMemoryBuffer::close);
    } else if (refCount < 0) {
      throw new IllegalStateException("Close called too many times " + this);
    }
  }
}
