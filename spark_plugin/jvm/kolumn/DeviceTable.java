package kolumn;

import ai.rapids.cudf.ColumnView;
import ai.rapids.cudf.DType;
import ai.rapids.cudf.DeviceMemoryBuffer;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** Rows that were decoded: a view of a struct whose members are the columns, and the memory that these lie in. */
final class DeviceTable implements AutoCloseable {
  final int rows;
  final ColumnView view;
  final List<DeviceMemoryBuffer> buffers;

  private DeviceTable(int rows, ColumnView view, List<DeviceMemoryBuffer> buffers) {
    this.rows = rows;
    this.view = view;
    this.buffers = buffers;
  }

  /** A table from its description. */
  static DeviceTable of(ByteBuffer text, Allocations memory) {
    List<DeviceMemoryBuffer> buffers = new ArrayList<>();
    try {
      int rows = text.getInt();
      Builder builder = new Builder(text, memory, buffers);
      return new DeviceTable(rows, builder.struct(rows, 0, null, text.getInt()), buffers);
    } catch (RuntimeException | Error e) {
      closeAll(buffers);
      throw e;
    }
  }

  /** Closes what is open still: a column that could not be made has closed the buffers that it was given, or none. */
  static void closeAll(List<DeviceMemoryBuffer> buffers) {
    for (DeviceMemoryBuffer one : buffers) {
      if (one.getRefCount() > 0) {
        one.close();
      }
    }
    buffers.clear();
  }

  @Override
  public void close() {
    view.close();
    closeAll(buffers);
  }

  /** What a description says of a column, before its children. */
  private record Head(
      String kind, long rows, long nulls, long data, long dataBytes, long bitmap, long bitmapBytes, int children) {}

  /** Makes views. A view has no part in the memory and in the views below it: it copies what these say. */
  private record Builder(ByteBuffer text, Allocations memory, List<DeviceMemoryBuffer> buffers) {
    ColumnView column() {
      Head head = head();
      DeviceMemoryBuffer valid = buffer(head.bitmap, head.bitmapBytes);
      if (valid != null && head.bitmapBytes < (head.rows + 7) / 8) {
        throw new IllegalStateException(head.bitmapBytes + " bytes are too few for the validity of " + head.rows + " rows: " + head.kind);
      }
      if (head.rows < 0 || head.rows > Integer.MAX_VALUE || head.nulls < 0 || head.nulls > (valid == null ? 0 : head.rows)) {
        throw new IllegalStateException("there cannot be a column of " + head.rows + " rows, " + head.nulls + " of them null: " + head.kind);
      }
      return switch (head.kind) {
        case "struct" -> struct(head.rows, head.nulls, valid, head.children);
        case "string" -> string(head, valid);
        case "list", "bytes" -> list(head, valid);
        default -> leaf(head, valid);
      };
    }

    private Head head() {
      byte[] kind = new byte[text.getInt()];
      text.get(kind);
      return new Head(
          new String(kind, StandardCharsets.UTF_8), text.getLong(), text.getLong(), text.getLong(), text.getLong(), text.getLong(),
          text.getLong(), text.getInt());
    }

    private DeviceMemoryBuffer buffer(long address, long size) {
      if (address == 0 || size == 0) {
        return null;
      }
      DeviceMemoryBuffer found = memory.slice(address, size);
      buffers.add(found);
      return found;
    }

    private ColumnView leaf(Head head, DeviceMemoryBuffer valid) {
      DType type = type(head.kind);
      expect("children of a column without", 0, head.children);
      return new ColumnView(type, head.rows, Optional.of(head.nulls), data(head, head.rows * type.getSizeInBytes()), valid);
    }

    private ColumnView string(Head head, DeviceMemoryBuffer valid) {
      expect("children of a string", 1, head.children);
      DeviceMemoryBuffer offsets = offsets(head.rows);
      return new ColumnView(DType.STRING, head.rows, Optional.of(head.nulls), data(head, 0), valid, offsets);
    }

    private ColumnView list(Head head, DeviceMemoryBuffer valid) {
      expect("children of a list", 2, head.children);
      DeviceMemoryBuffer offsets = offsets(head.rows);
      try (ColumnView elements = column()) {
        return new ColumnView(DType.LIST, head.rows, Optional.of(head.nulls), valid, offsets, new ColumnView[] {elements});
      }
    }

    /** The first child of strings and lists. */
    private DeviceMemoryBuffer offsets(long rows) {
      Head head = head();
      if (!head.kind.equals("int32") || rows > 0 && head.rows != rows + 1) {
        throw new IllegalStateException(rows + " rows come with " + head.rows + " offsets of type " + head.kind);
      }
      return data(head, rows == 0 ? 0 : head.rows * Integer.BYTES);
    }

    private DeviceMemoryBuffer data(Head head, long least) {
      if (head.dataBytes < least) {
        throw new IllegalStateException("a column of " + head.rows + " rows has " + head.dataBytes + " bytes: " + head.kind);
      }
      return buffer(head.data, head.dataBytes);
    }

    ColumnView struct(long rows, long nulls, DeviceMemoryBuffer valid, int children) {
      ColumnView[] members = new ColumnView[children];
      try {
        for (int i = 0; i < children; i++) {
          members[i] = column();
          expect("rows of a member", rows, members[i].getRowCount());
        }
        return new ColumnView(DType.STRUCT, rows, Optional.of(nulls), valid, null, members);
      } finally {
        for (ColumnView one : members) {
          if (one != null) {
            one.close();
          }
        }
      }
    }

    private static void expect(String what, long expected, long found) {
      if (expected != found) {
        throw new IllegalStateException(what + ": " + found + " instead of " + expected);
      }
    }

    private static DType type(String kind) {
      int scale = kind.indexOf(':');
      if (scale > 0) {
        DType.DTypeEnum width = switch (kind.substring(0, scale)) {
          case "decimal32" -> DType.DTypeEnum.DECIMAL32;
          case "decimal64" -> DType.DTypeEnum.DECIMAL64;
          case "decimal128" -> DType.DTypeEnum.DECIMAL128;
          default -> throw unknown(kind);
        };
        return DType.create(width, -Integer.parseInt(kind.substring(scale + 1)));
      }
      return switch (kind) {
        case "bool" -> DType.BOOL8;
        case "int8" -> DType.INT8;
        case "int16" -> DType.INT16;
        case "int32" -> DType.INT32;
        case "int64" -> DType.INT64;
        case "uint8" -> DType.UINT8;
        case "float32" -> DType.FLOAT32;
        case "float64" -> DType.FLOAT64;
        case "timestamp" -> DType.TIMESTAMP_MICROSECONDS;
        case "date32" -> DType.TIMESTAMP_DAYS;
        default -> throw unknown(kind);
      };
    }

    private static IllegalStateException unknown(String kind) {
      return new IllegalStateException("a worker sends a column of an unknown kind: " + kind);
    }
  }
}
