package ai.rapids.cudf;

import java.util.Arrays;
import java.util.List;
import java.util.Optional;

/** A stand-in; see {@link StandIn}. */
public class ColumnView implements AutoCloseable {
  public static final long UNKNOWN_NULL_COUNT = -1;

  private final View view;
  private long viewHandle;

  ColumnView(View view) {
    this.view = view;
    this.viewHandle = view.opened();
  }

  /** Of a nested type. */
  public ColumnView(
      DType type, long rows, Optional<Long> nullCount, BaseDeviceMemoryBuffer validityBuffer, BaseDeviceMemoryBuffer offsetBuffer,
      ColumnView[] children) {
    this(View.of(type, rows, nullCount.orElse(UNKNOWN_NULL_COUNT), null, validityBuffer, offsetBuffer, views(children)));
    assert type.isNestedType();
  }

  public ColumnView(
      DType type, long rows, Optional<Long> nullCount, BaseDeviceMemoryBuffer dataBuffer, BaseDeviceMemoryBuffer validityBuffer) {
    this(type, rows, nullCount, dataBuffer, validityBuffer, (BaseDeviceMemoryBuffer) null);
  }

  /** Of strings, or without offsets of something else that is not nested. */
  public ColumnView(
      DType type, long rows, Optional<Long> nullCount, BaseDeviceMemoryBuffer dataBuffer, BaseDeviceMemoryBuffer validityBuffer,
      BaseDeviceMemoryBuffer offsetBuffer) {
    this(View.of(type, rows, nullCount.orElse(UNKNOWN_NULL_COUNT), dataBuffer, validityBuffer, offsetBuffer, List.of()));
    assert !type.isNestedType();
  }

  static List<View> views(ColumnView[] columns) {
    return Arrays.stream(columns).map(column -> View.named(column.viewHandle)).toList();
  }

  public final long getNativeView() {
    return viewHandle;
  }

  public final DType getType() {
    return view.type();
  }

  public final long getRowCount() {
    return view.rows();
  }

  public long getNullCount() {
    return view.nulls();
  }

  public final int getNumChildren() {
    return view.children().size();
  }

  /** To be closed by the caller. */
  public final ColumnView getChildColumnView(int childIndex) {
    return view.type().isNestedType() ? new ColumnView(View.named(viewHandle).children().get(childIndex)) : null;
  }

  public final BaseDeviceMemoryBuffer getData() {
    View.named(viewHandle);
    long size = view.type().equals(DType.STRING) ? view.offset(view.rows()) : view.rows() * view.type().getSizeInBytes();
    return view.data() == 0 ? null : new DeviceMemoryBufferView(view.data(), size);
  }

  public final BaseDeviceMemoryBuffer getOffsets() {
    View.named(viewHandle);
    return view.offsets() == 0 ? null : new DeviceMemoryBufferView(view.offsets(), 4 * (view.rows() + 1));
  }

  public final BaseDeviceMemoryBuffer getValid() {
    View.named(viewHandle);
    return view.valid() == 0 ? null : new DeviceMemoryBufferView(view.valid(), (view.rows() + 511) / 512 * 64);
  }

  /** Of int64. */
  public HostColumnVector copyToHost() {
    assert view.type().equals(DType.INT64);
    long[] found = new long[Math.toIntExact(view.rows())];
    for (int i = 0; i < found.length; i++) {
      found[i] = StandIn.MEMORY.getLong(view.data() + 8L * i);
    }
    return new HostColumnVector(found);
  }

  public final ColumnVector scan(ScanAggregation aggregation, ScanType scanType) {
    if (scanType != ScanType.INCLUSIVE) {
      throw new UnsupportedOperationException("the stand-in knows inclusive sums alone");
    }
    return new ColumnVector(Column.summed(View.named(viewHandle)));
  }

  @Override
  public void close() {
    View.close(viewHandle);
    viewHandle = 0;
  }

  @Override
  public String toString() {
    return getClass().getSimpleName() + " " + view;
  }
}
