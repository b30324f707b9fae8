package kolumn;

import java.util.List;
import java.util.Set;
import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.BaseVariableWidthVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.arrow.vector.types.Types.MinorType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column that reads Arrow's memory by address, and whose vector is loaded with the next batch. Spark's own class calls a virtual method
 * for each value from one place for columns of all types, which the compiler can't inline: the tasks of a query of all columns take up to
 * twice the CPU time in the JVM. It is one of Spark's all the same, since RAPIDS copies buffers of those alone.
 */
final class LogColumn extends ArrowColumnVector {
  private static final Set<MinorType> PLAIN =
      Set.of(
          MinorType.TINYINT, MinorType.SMALLINT, MinorType.INT, MinorType.BIGINT, MinorType.FLOAT4, MinorType.FLOAT8, MinorType.DATEDAY,
          MinorType.TIMESTAMPMICRO, MinorType.TIMESTAMPMICROTZ, MinorType.VARBINARY, MinorType.VARCHAR);

  private final FieldVector vector;
  private final ArrowColumnVector[] children;
  private int nulls;
  private long validity;
  private long offsets;
  private long values;

  private LogColumn(FieldVector vector, ArrowColumnVector[] children) {
    super(vector);
    this.vector = vector;
    this.children = children;
  }

  static ArrowColumnVector of(FieldVector vector) {
    if (vector instanceof StructVector struct) {
      return new LogColumn(vector, struct.getChildrenFromFields().stream().map(LogColumn::of).toArray(ArrowColumnVector[]::new));
    }
    return PLAIN.contains(vector.getMinorType()) ? new LogColumn(vector, new ArrowColumnVector[0]) : new LoadedAgain(vector);
  }

  /** After each batch: where its memory is. */
  static void load(ColumnVector column) {
    if (column instanceof LogColumn own) {
      own.load();
    }
  }

  private void load() {
    nulls = vector.getNullCount();
    validity = nulls == 0 ? 0 : vector.getValidityBuffer().memoryAddress();
    if (vector instanceof BaseFixedWidthVector fixed) {
      values = fixed.getDataBuffer().memoryAddress();
    } else if (vector instanceof BaseVariableWidthVector texts) {
      offsets = texts.getOffsetBuffer().memoryAddress();
      values = texts.getDataBuffer().memoryAddress();
    }
    List.of(children).forEach(LogColumn::load);
  }

  @Override
  public boolean hasNull() {
    return nulls > 0;
  }

  @Override
  public int numNulls() {
    return nulls;
  }

  @Override
  public boolean isNullAt(int row) {
    return nulls > 0 && (Platform.getByte(null, validity + (row >> 3)) >> (row & 7) & 1) == 0;
  }

  @Override
  public byte getByte(int row) {
    return Platform.getByte(null, values + row);
  }

  @Override
  public short getShort(int row) {
    return Platform.getShort(null, values + 2L * row);
  }

  @Override
  public int getInt(int row) {
    return Platform.getInt(null, values + 4L * row);
  }

  @Override
  public long getLong(int row) {
    return Platform.getLong(null, values + 8L * row);
  }

  @Override
  public float getFloat(int row) {
    return Platform.getFloat(null, values + 4L * row);
  }

  @Override
  public double getDouble(int row) {
    return Platform.getDouble(null, values + 8L * row);
  }

  @Override
  public UTF8String getUTF8String(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = Platform.getInt(null, offsets + 4L * row);
    return UTF8String.fromAddress(null, values + start, Platform.getInt(null, offsets + 4L * row + 4) - start);
  }

  @Override
  public byte[] getBinary(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = Platform.getInt(null, offsets + 4L * row);
    byte[] found = new byte[Platform.getInt(null, offsets + 4L * row + 4) - start];
    Platform.copyMemory(null, values + start, found, Platform.BYTE_ARRAY_OFFSET, found.length);
    return found;
  }

  @Override
  public ArrowColumnVector getChild(int ordinal) {
    return children[ordinal];
  }

  /** Spark closes columns after each batch. */
  @Override
  public void close() {}

  @Override
  public void closeIfFreeable() {}

  /** A column of another type. */
  private static final class LoadedAgain extends ArrowColumnVector {
    LoadedAgain(FieldVector vector) {
      super(vector);
    }

    @Override
    public void close() {}

    @Override
    public void closeIfFreeable() {}
  }
}
