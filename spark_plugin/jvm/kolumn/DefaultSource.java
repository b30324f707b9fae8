package kolumn;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * {@code format("kolumn")} where this jar is on the class path: Spark looks for the class {@code kolumn.DefaultSource} before it looks
 * for sources written in Python. There is no services file: two sources of one name in services files are an error.
 */
public final class DefaultSource implements TableProvider {
  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    Map<String, String> given = Given.of(options.asCaseSensitiveMap());
    return Delegate.isNeeded(options) ? Delegate.provider().inferSchema(new CaseInsensitiveStringMap(given)) : Questions.schema(given);
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    Map<String, String> given = Given.of(properties);
    return Delegate.isNeeded(new CaseInsensitiveStringMap(properties))
        ? Delegate.provider().getTable(schema, partitioning, given)
        : new LogTable("kolumn", schema, given, properties);
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }
}
