package ai.rapids.cudf;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;

/** What a handle of a column names, libcudf's column: a view with the memory that it is in. Not in RAPIDS' jar. */
record Column(View view, List<DeviceMemoryBuffer> memory) {
  private static final Map<Long, Column> MADE = new ConcurrentHashMap<>();
  private static final AtomicLong NEXT = new AtomicLong(0x6000_0000_0001L);

  /** Rows [start, stop) of a view. */
  private record Part(View view, long start, long stop) {
    Part child(int number) {
      View child = view.children().get(number);
      return view.type().equals(DType.LIST) ? new Part(child, view.offset(start), view.offset(stop)) : new Part(child, start, stop);
    }
  }

  /** The handle of a column of all rows of some views, in new memory. */
  static long copied(List<View> views) {
    List<DeviceMemoryBuffer> memory = new ArrayList<>();
    return made(memory, () -> joined(views.stream().map(view -> new Part(view, 0, view.rows())).toList(), memory));
  }

  /** The handle of a column of lists, in new memory. */
  static long list(long rows, View offsets, View elements) {
    if (!offsets.type().equals(DType.INT32) || offsets.rows() != rows + 1) {
      throw new CudfException("Input offsets does not have type INT32, or their number is not that of the rows and one more.");
    }
    List<DeviceMemoryBuffer> memory = new ArrayList<>();
    return made(memory, () -> {
      View starts = joined(List.of(new Part(offsets, 0, rows + 1)), memory);
      View inside = joined(List.of(new Part(elements, 0, elements.rows())), memory);
      return new View(DType.LIST, rows, 0, 0, 0, rows == 0 ? 0 : starts.data(), List.of(inside));
    });
  }

  /** The handle of a column with the running sums of one of integers. */
  static long summed(View view) {
    int width = view.type().getSizeInBytes();
    if (view.nulls() > 0 || !view.type().equals(DType.INT32) && !view.type().equals(DType.INT64)) {
      throw new UnsupportedOperationException("the stand-in adds int32 and int64 without nulls, not " + view);
    }
    List<DeviceMemoryBuffer> memory = new ArrayList<>();
    return made(memory, () -> {
      long target = taken(view.rows() * width, memory);
      long sum = 0;
      for (long row = 0; row < view.rows(); row++) {
        if (width == 4) {
          sum += StandIn.MEMORY.getInt(view.data() + 4 * row);
          StandIn.MEMORY.putInt(target + 4 * row, (int) sum);
        } else {
          sum += StandIn.MEMORY.getLong(view.data() + 8 * row);
          StandIn.MEMORY.putLong(target + 8 * row, sum);
        }
      }
      return new View(view.type(), view.rows(), 0, target, 0, 0, List.of());
    });
  }

  /** The column that a handle names, which is nobody's from now on. */
  static Column owned(long handle) {
    Column found = MADE.remove(handle);
    if (found == null) {
      throw new IllegalStateException("a column that somebody has, or that nobody made: " + handle);
    }
    return found;
  }

  private static long made(List<DeviceMemoryBuffer> memory, Supplier<View> view) {
    try {
      long handle = NEXT.getAndIncrement();
      MADE.put(handle, new Column(view.get(), memory));
      return handle;
    } catch (Throwable e) {
      memory.forEach(DeviceMemoryBuffer::close);
      throw e;
    }
  }

  private static View joined(List<Part> parts, List<DeviceMemoryBuffer> memory) {
    DType type = parts.get(0).view.type();
    int members = parts.get(0).view.children().size();
    if (parts.stream().anyMatch(part -> !part.view.type().equals(type) || part.view.children().size() != members)) {
      throw new CudfException("Type mismatch in columns to concatenate.");
    }
    long rows = parts.stream().mapToLong(part -> part.stop - part.start).sum();
    if (rows > Integer.MAX_VALUE) {
      throw new CudfException("Total number of concatenated rows exceeds the column size limit");
    }
    long bits = parts.stream().anyMatch(part -> part.view.nulls() > 0) ? bitmap(parts, rows, memory) : 0;
    long nulls = View.unset(bits, rows);
    boolean isString = type.equals(DType.STRING);
    long offsets = rows > 0 && (isString || type.equals(DType.LIST)) ? offsets(parts, rows, memory) : 0;
    long data = type.isNestedType() ? 0 : bytes(parts, type, memory);
    List<View> children = new ArrayList<>();
    for (int number = 0; number < members; number++) {
      int child = number;
      children.add(joined(parts.stream().map(part -> part.child(child)).toList(), memory));
    }
    return new View(type, rows, nulls, data, bits, offsets, children);
  }

  private static long bitmap(List<Part> parts, long rows, List<DeviceMemoryBuffer> memory) {
    long target = taken((rows + 511) / 512 * 64, memory);
    StandIn.MEMORY.setMemory(target, (rows + 511) / 512 * 64, (byte) 0);
    long at = 0;
    for (Part part : parts) {
      for (long row = part.start; row < part.stop; row++, at++) {
        if (StandIn.isSet(part.view.valid(), row)) {
          StandIn.MEMORY.putByte(target + at / 8, (byte) (StandIn.MEMORY.getByte(target + at / 8) | 1 << at % 8));
        }
      }
    }
    return target;
  }

  private static long offsets(List<Part> parts, long rows, List<DeviceMemoryBuffer> memory) {
    long target = taken(4 * (rows + 1), memory);
    long at = target;
    long total = 0;
    for (Part part : parts) {
      for (long row = part.start; row < part.stop; row++, at += 4) {
        StandIn.MEMORY.putInt(at, (int) total);
        total += part.view.offset(row + 1) - part.view.offset(row);
      }
    }
    if (total > Integer.MAX_VALUE) {
      throw new CudfException("Total number of concatenated chars exceeds the column size limit");
    }
    StandIn.MEMORY.putInt(at, (int) total);
    return target;
  }

  private static long bytes(List<Part> parts, DType type, List<DeviceMemoryBuffer> memory) {
    long total = parts.stream().mapToLong(part -> byteAt(part, part.stop) - byteAt(part, part.start)).sum();
    long target = taken(total, memory);
    long at = target;
    for (Part part : parts) {
      long size = byteAt(part, part.stop) - byteAt(part, part.start);
      StandIn.MEMORY.copyMemory(part.view.data() + byteAt(part, part.start), at, size);
      at += size;
    }
    return target;
  }

  private static long byteAt(Part part, long row) {
    return part.view.type().equals(DType.STRING) ? part.view.offset(row) : row * part.view.type().getSizeInBytes();
  }

  private static long taken(long size, List<DeviceMemoryBuffer> memory) {
    DeviceMemoryBuffer buffer = DeviceMemoryBuffer.allocate(size);
    memory.add(buffer);
    return buffer.getAddress();
  }
}
