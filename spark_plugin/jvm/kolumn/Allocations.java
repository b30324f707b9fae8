package kolumn;

import ai.rapids.cudf.ColumnVector;
import ai.rapids.cudf.ColumnView;
import ai.rapids.cudf.DType;
import ai.rapids.cudf.DeviceMemoryBuffer;
import ai.rapids.cudf.ScanAggregation;
import ai.rapids.cudf.ScanType;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/** The device memory of one decoding, from RAPIDS' pool, by address. */
final class Allocations implements AutoCloseable {
  private static final int SUMMED = Integer.MAX_VALUE;

  private final TreeMap<Long, DeviceMemoryBuffer> all = new TreeMap<>();

  /** New memory. RAPIDS may make room for it meanwhile, and throws what its operators try again after. */
  long add(long size, boolean zeros) {
    if (size < 1) {
      throw new IllegalStateException("memory of " + size + " bytes is asked for");
    }
    DeviceMemoryBuffer buffer = DeviceMemoryBuffer.allocate(size);
    all.put(buffer.getAddress(), buffer);
    if (zeros) {
      Driver.check(Driver.setZero(buffer.getAddress(), size), "setting " + size + " bytes to zero");
    }
    return buffer.getAddress();
  }

  void free(long address) {
    DeviceMemoryBuffer buffer = all.remove(address);
    if (buffer == null) {
      throw missing(address, 0);
    }
    buffer.close();
  }

  /** The allocation that some bytes are in. */
  private DeviceMemoryBuffer around(long address, long size) {
    Map.Entry<Long, DeviceMemoryBuffer> found = all.floorEntry(address);
    if (found == null || size < 0 || address - found.getKey() > found.getValue().getLength() - size) {
      throw missing(address, size);
    }
    return found.getValue();
  }

  private static IllegalStateException missing(long address, long size) {
    return new IllegalStateException("a worker names device memory that it does not have: " + size + " bytes at " + address);
  }

  void check(long address, long size) {
    around(address, size);
  }

  /** Some bytes, which last as long as the slice, whatever becomes of the allocation. */
  DeviceMemoryBuffer slice(long address, long size) {
    DeviceMemoryBuffer buffer = around(address, size);
    return buffer.slice(address - buffer.getAddress(), size);
  }

  /** Replaces integers by their running sum. */
  void sum(long address, long count, int width) {
    if (count < 0 || width != 4 && width != 8 || count > Long.MAX_VALUE / width) {
      throw new IllegalStateException("a running sum of " + count + " integers of " + width + " bytes is asked for");
    }
    check(address, count * width);
    // A column has no more rows. Each sum after the first one goes on from the last item before.
    for (long done = 0; done < Math.max(count - 1, 1) && count > 0; done += SUMMED - 1) {
      sumPart(address + done * width, Math.min(count - done, SUMMED), width);
    }
  }

  private void sumPart(long address, long count, int width) {
    try (DeviceMemoryBuffer part = slice(address, count * width);
        ColumnView items = new ColumnView(width == 4 ? DType.INT32 : DType.INT64, count, Optional.of(0L), part, null);
        ColumnVector sums = items.scan(ScanAggregation.sum(), ScanType.INCLUSIVE)) {
      Driver.check(Driver.copyOnDevice(address, sums.getData().getAddress(), count * width), "copying a running sum");
    }
  }

  @Override
  public void close() {
    all.values().forEach(DeviceMemoryBuffer::close);
    all.clear();
  }
}
