package kolumn;

import java.time.Instant;
import java.time.LocalDate;
import java.time.temporal.ChronoUnit;
import java.util.AbstractMap;
import java.util.AbstractSet;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;

/**
 * Values of columns as the objects that Spark takes back from a function, for the types that the accelerator has too. Nothing refers to
 * the columns afterwards. Strings stay bytes, which need not be UTF-8; moments and days have the classes that hold every one of them.
 */
final class Objects {
  /** One value of a row or an array, which is not null. */
  private interface Getter {
    Object get(SpecializedGetters from, int at);
  }

  private Objects() {}

  static boolean isKnown(DataType type) {
    return getter(type) != null;
  }

  /** How values of a type are got; null for a type that is not known. */
  private static Getter getter(DataType type) {
    if (type instanceof StructType struct) {
      return ofStruct(struct);
    }
    if (type instanceof ArrayType array) {
      Getter element = getter(array.elementType());
      return element == null ? null : (from, at) -> list(from.getArray(at), element);
    }
    if (type instanceof MapType map) {
      Getter key = getter(map.keyType());
      Getter value = getter(map.valueType());
      return key == null || value == null ? null : (from, at) -> map(from.getMap(at), key, value);
    }
    if (type instanceof DecimalType decimal) {
      return (from, at) -> from.getDecimal(at, decimal.precision(), decimal.scale());
    }
    return type instanceof StringType ? (from, at) -> from.getUTF8String(at).copy()
        : type instanceof BinaryType ? (from, at) -> from.getBinary(at)
        : type instanceof BooleanType ? (from, at) -> from.getBoolean(at)
        : type instanceof TimestampType ? (from, at) -> Instant.EPOCH.plus(from.getLong(at), ChronoUnit.MICROS)
        : type instanceof DateType ? (from, at) -> LocalDate.ofEpochDay(from.getInt(at))
        : number(type);
  }

  private static Getter number(DataType type) {
    return type instanceof ByteType ? SpecializedGetters::getByte
        : type instanceof ShortType ? SpecializedGetters::getShort
        : type instanceof IntegerType ? SpecializedGetters::getInt
        : type instanceof LongType ? SpecializedGetters::getLong
        : type instanceof FloatType ? SpecializedGetters::getFloat
        : type instanceof DoubleType ? SpecializedGetters::getDouble
        : null;
  }

  private static Getter ofStruct(StructType type) {
    Fields fields = Fields.of(type);
    return fields == null ? null : (from, at) -> fields.row(from.getStruct(at, fields.count()));
  }

  private static Object orNull(SpecializedGetters from, int at, Getter getter) {
    return from.isNullAt(at) ? null : getter.get(from, at);
  }

  private static List<Object> list(ArrayData from, Getter getter) {
    List<Object> found = new ArrayList<>(from.numElements());
    for (int i = 0; i < from.numElements(); i++) {
      found.add(orNull(from, i, getter));
    }
    return found;
  }

  /** Entries in their order; a key may be there more than once. */
  private static Map<Object, Object> map(MapData from, Getter key, Getter value) {
    List<Object> keys = list(from.keyArray(), key);
    List<Object> values = list(from.valueArray(), value);
    return new AbstractMap<>() {
      @Override
      public Set<Map.Entry<Object, Object>> entrySet() {
        return new AbstractSet<>() {
          @Override
          public Iterator<Map.Entry<Object, Object>> iterator() {
            return IntStream.range(0, keys.size())
                .<Map.Entry<Object, Object>>mapToObj(i -> new AbstractMap.SimpleEntry<>(keys.get(i), values.get(i)))
                .iterator();
          }

          @Override
          public int size() {
            return keys.size();
          }
        };
      }
    };
  }

  /** The members of a struct, or the columns of a table. */
  static final class Fields {
    private final Getter[] getters;

    private Fields(Getter[] getters) {
      this.getters = getters;
    }

    /** Null if one has a type that is not known. */
    static Fields of(StructType type) {
      List<Getter> found = new ArrayList<>();
      for (StructField field : type.fields()) {
        found.add(getter(field.dataType()));
      }
      return found.contains(null) ? null : new Fields(found.toArray(new Getter[0]));
    }

    int count() {
      return getters.length;
    }

    org.apache.spark.sql.Row row(SpecializedGetters from) {
      Object[] values = new Object[getters.length];
      for (int i = 0; i < values.length; i++) {
        values[i] = orNull(from, i, getters[i]);
      }
      return RowFactory.create(values);
    }
  }
}
