package ai.rapids.cudf;

/** A stand-in; see {@link StandIn}. */
public final class DType {
  public static final DType INT8 = new DType(DTypeEnum.INT8, 0);
  public static final DType INT16 = new DType(DTypeEnum.INT16, 0);
  public static final DType INT32 = new DType(DTypeEnum.INT32, 0);
  public static final DType INT64 = new DType(DTypeEnum.INT64, 0);
  public static final DType UINT8 = new DType(DTypeEnum.UINT8, 0);
  public static final DType FLOAT32 = new DType(DTypeEnum.FLOAT32, 0);
  public static final DType FLOAT64 = new DType(DTypeEnum.FLOAT64, 0);
  public static final DType BOOL8 = new DType(DTypeEnum.BOOL8, 0);
  public static final DType TIMESTAMP_DAYS = new DType(DTypeEnum.TIMESTAMP_DAYS, 0);
  public static final DType TIMESTAMP_MICROSECONDS = new DType(DTypeEnum.TIMESTAMP_MICROSECONDS, 0);
  public static final DType STRING = new DType(DTypeEnum.STRING, 0);
  public static final DType LIST = new DType(DTypeEnum.LIST, 0);
  public static final DType STRUCT = new DType(DTypeEnum.STRUCT, 0);

  private final DTypeEnum typeId;
  private final int scale;

  private DType(DTypeEnum typeId, int scale) {
    this.typeId = typeId;
    this.scale = scale;
  }

  /** A decimal; {@code scale} is the exponent of ten, negative for digits after the point. */
  public static DType create(DTypeEnum dt, int scale) {
    if (!dt.isDecimalType()) {
      throw new IllegalArgumentException("Could not create a non-Decimal DType with scale");
    }
    if (-scale > dt.digits) {
      throw new IllegalArgumentException("Scale " + -scale + " exceeds that of " + dt + ", " + dt.digits);
    }
    return new DType(dt, scale);
  }

  public int getSizeInBytes() {
    return typeId.bytes;
  }

  public int getScale() {
    return scale;
  }

  public DTypeEnum getTypeId() {
    return typeId;
  }

  public boolean isDecimalType() {
    return typeId.isDecimalType();
  }

  public boolean isNestedType() {
    return typeId == DTypeEnum.LIST || typeId == DTypeEnum.STRUCT;
  }

  @Override
  public boolean equals(Object o) {
    return o instanceof DType && ((DType) o).typeId == typeId && ((DType) o).scale == scale;
  }

  @Override
  public int hashCode() {
    return 31 * typeId.hashCode() + scale;
  }

  @Override
  public String toString() {
    return isDecimalType() ? typeId + " scale:" + scale : typeId.toString();
  }

  /** A stand-in; see {@link StandIn}. */
  public enum DTypeEnum {
    INT8(1),
    INT16(2),
    INT32(4),
    INT64(8),
    UINT8(1),
    FLOAT32(4),
    FLOAT64(8),
    BOOL8(1),
    TIMESTAMP_DAYS(4),
    TIMESTAMP_MICROSECONDS(8),
    STRING(0),
    LIST(0),
    DECIMAL32(4, 9),
    DECIMAL64(8, 18),
    DECIMAL128(16, 38),
    STRUCT(0);

    final int bytes;
    final int digits;

    DTypeEnum(int bytes) {
      this(bytes, 0);
    }

    DTypeEnum(int bytes, int digits) {
      this.bytes = bytes;
      this.digits = digits;
    }

    public boolean isDecimalType() {
      return digits > 0;
    }
  }
}
