package kolumn;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The records of a log. Reads are the connector's, writes are Python's. */
final class LogTable implements Table, SupportsRead, SupportsWrite {
  private static final Set<TableCapability> READ = Set.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);

  private final String name;
  private final StructType schema;
  private final Map<String, String> given;
  private final boolean isWritable;
  private Table python;

  LogTable(String name, StructType schema, Map<String, String> given, boolean isWritable) {
    this.name = name;
    this.schema = schema;
    this.given = given;
    this.isWritable = isWritable;
  }

  /** The table as it is in Python. */
  synchronized Table python() {
    if (python == null) {
      python = Delegate.provider().getTable(schema, new Transform[0], given);
    }
    return python;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public StructType schema() {
    return schema;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return isWritable ? python().capabilities() : READ;
  }

  /** Options of the query count before those of the table. */
  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    Map<String, String> all = new HashMap<>(given);
    all.keySet().removeIf(options::containsKey);
    all.putAll(Given.of(options.asCaseSensitiveMap()));
    return new LogScanBuilder(this, all);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return ((SupportsWrite) python()).newWriteBuilder(info);
  }
}
