package kolumn;

import ai.rapids.cudf.BaseDeviceMemoryBuffer;
import ai.rapids.cudf.ColumnView;
import ai.rapids.cudf.DType;
import ai.rapids.cudf.DType.DTypeEnum;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Map;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A copy of a column of the device, for Spark. A type of Spark has one of the device, which is the one that RAPIDS takes for it. */
final class HostColumn extends ColumnVector {
  private static final Map<DataType, DType> TYPES =
      Map.ofEntries(
          Map.entry(DataTypes.BooleanType, DType.BOOL8),
          Map.entry(DataTypes.ByteType, DType.INT8),
          Map.entry(DataTypes.ShortType, DType.INT16),
          Map.entry(DataTypes.IntegerType, DType.INT32),
          Map.entry(DataTypes.LongType, DType.INT64),
          Map.entry(DataTypes.FloatType, DType.FLOAT32),
          Map.entry(DataTypes.DoubleType, DType.FLOAT64),
          Map.entry(DataTypes.TimestampType, DType.TIMESTAMP_MICROSECONDS),
          Map.entry(DataTypes.DateType, DType.TIMESTAMP_DAYS),
          Map.entry(DataTypes.StringType, DType.STRING));
  private static final int DECIMAL = 16;

  private final long nulls;
  private final ByteBuffer data;
  private final ByteBuffer valid;
  private final ByteBuffer offsets;
  private final HostColumn[] children;

  HostColumn(ColumnView from, DataType type) {
    super(type);
    DType wanted = wanted(type);
    if (!from.getType().equals(wanted)) {
      throw new IllegalStateException("a column of " + wanted + " is expected for " + type + ", and there is " + from);
    }
    nulls = from.getNullCount();
    data = wanted.isNestedType() ? null : copied(from.getData());
    valid = copied(from.getValid());
    offsets = copied(from.getOffsets());
    DataType[] members = members(type);
    if (wanted.isNestedType() && from.getNumChildren() != members.length) {
      throw new IllegalStateException(members.length + " columns are expected in " + type + ", and there is " + from);
    }
    children = new HostColumn[members.length];
    for (int i = 0; i < members.length; i++) {
      try (ColumnView child = from.getChildColumnView(i)) {
        children[i] = members[i] == null ? new HostColumn(child) : new HostColumn(child, members[i]);
      }
    }
  }

  /** The bytes of binary values. */
  private HostColumn(ColumnView bytes) {
    super(DataTypes.ByteType);
    if (!bytes.getType().equals(DType.UINT8) || bytes.getNullCount() != 0) {
      throw new IllegalStateException("bytes are expected, and there is " + bytes);
    }
    nulls = 0;
    data = copied(bytes.getData());
    valid = null;
    offsets = null;
    children = new HostColumn[0];
  }

  private static DType wanted(DataType type) {
    if (type instanceof DecimalType decimal) {
      int digits = decimal.precision();
      DTypeEnum kind = digits <= 9 ? DTypeEnum.DECIMAL32 : digits <= 18 ? DTypeEnum.DECIMAL64 : DTypeEnum.DECIMAL128;
      return DType.create(kind, -decimal.scale());
    }
    if (type instanceof StructType) {
      return DType.STRUCT;
    }
    return type instanceof ArrayType || type instanceof MapType || type instanceof BinaryType ? DType.LIST : TYPES.get(type);
  }

  /** The types of the columns inside; null for that of bytes. */
  private static DataType[] members(DataType type) {
    if (type instanceof StructType struct) {
      return Arrays.stream(struct.fields()).map(field -> field.dataType()).toArray(DataType[]::new);
    }
    if (type instanceof MapType map) {
      return new DataType[] {new StructType().add("key", map.keyType()).add("value", map.valueType())};
    }
    return type instanceof ArrayType array ? new DataType[] {array.elementType()} : new DataType[type instanceof BinaryType ? 1 : 0];
  }

  private static ByteBuffer copied(BaseDeviceMemoryBuffer memory) {
    if (memory == null || memory.getLength() == 0) {
      return null;
    }
    ByteBuffer target = ByteBuffer.allocateDirect((int) memory.getLength()).order(ByteOrder.LITTLE_ENDIAN);
    Driver.check(Driver.copyToHost(MemoryUtil.getByteBufferAddress(target), memory.getAddress(), memory.getLength()), "copying");
    Driver.check(Driver.synchronize(), "waiting");
    return target;
  }

  ColumnVector[] children() {
    return children;
  }

  private byte[] bytes(ByteBuffer from, int row) {
    byte[] found = new byte[offsets.getInt(4 * row + 4) - offsets.getInt(4 * row)];
    if (found.length > 0) {
      from.get(offsets.getInt(4 * row), found);
    }
    return found;
  }

  @Override
  public void close() {}

  @Override
  public boolean hasNull() {
    return nulls > 0;
  }

  @Override
  public int numNulls() {
    return (int) nulls;
  }

  @Override
  public boolean isNullAt(int row) {
    return valid != null && (valid.get(row / 8) >> row % 8 & 1) == 0;
  }

  @Override
  public boolean getBoolean(int row) {
    return data.get(row) != 0;
  }

  @Override
  public byte getByte(int row) {
    return data.get(row);
  }

  @Override
  public short getShort(int row) {
    return data.getShort(2 * row);
  }

  @Override
  public int getInt(int row) {
    return data.getInt(4 * row);
  }

  @Override
  public long getLong(int row) {
    return data.getLong(8 * row);
  }

  @Override
  public float getFloat(int row) {
    return data.getFloat(4 * row);
  }

  @Override
  public double getDouble(int row) {
    return data.getDouble(8 * row);
  }

  @Override
  public ColumnarArray getArray(int row) {
    return new ColumnarArray(children[0], offsets.getInt(4 * row), offsets.getInt(4 * row + 4) - offsets.getInt(4 * row));
  }

  @Override
  public ColumnarMap getMap(int row) {
    HostColumn entries = children[0];
    int start = offsets.getInt(4 * row);
    return new ColumnarMap(entries.children[0], entries.children[1], start, offsets.getInt(4 * row + 4) - start);
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    if (precision <= 18) {
      return Decimal.apply(precision <= 9 ? getInt(row) : getLong(row), precision, scale);
    }
    byte[] number = new byte[DECIMAL];
    for (int i = 0; i < DECIMAL; i++) {
      number[i] = data.get(DECIMAL * row + DECIMAL - 1 - i);
    }
    return Decimal.apply(new BigDecimal(new BigInteger(number), scale), precision, scale);
  }

  @Override
  public UTF8String getUTF8String(int row) {
    return UTF8String.fromBytes(bytes(data, row));
  }

  @Override
  public byte[] getBinary(int row) {
    return bytes(children[0].data, row);
  }

  @Override
  public ColumnVector getChild(int number) {
    return children[number];
  }
}
