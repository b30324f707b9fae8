package kolumn;

import java.util.Arrays;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** A column that a query may name though the table does not have it. */
record Hidden(String name, DataType dataType) implements MetadataColumn {
  static MetadataColumn[] of(StructType schema) {
    return Arrays.stream(schema.fields()).map(field -> new Hidden(field.name(), field.dataType())).toArray(MetadataColumn[]::new);
  }
}
