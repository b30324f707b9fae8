package kolumn;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The records of a log. Reads are the connector's, writes are Python's. */
class LogTable implements SupportsRead, SupportsWrite, SupportsMetadataColumns {
  /** Options of a write that are not the user's: the id of the query, and that its other options may be those of a table's reads. */
  private static final String QUERY = "kolumn.queryId";
  private static final String TABLE = "kolumn.table";

  private static final Set<TableCapability> CAPABILITIES =
      Set.of(
          TableCapability.BATCH_READ, TableCapability.BATCH_WRITE, TableCapability.MICRO_BATCH_READ, TableCapability.STREAMING_WRITE,
          TableCapability.TRUNCATE);

  private final String name;
  private final StructType schema;
  private final Map<String, String> given;
  private final Map<String, String> properties;
  private MetadataColumn[] hidden;

  /** With its options, and with what a catalog says of it, which has the options too. */
  LogTable(String name, StructType schema, Map<String, String> given, Map<String, String> properties) {
    this.name = name;
    this.schema = schema;
    this.given = given;
    this.properties = new HashMap<>(properties);
    this.properties.putIfAbsent(TableCatalog.PROP_PROVIDER, "kolumn");
    this.properties.put(TableCatalog.PROP_EXTERNAL, "true");
    if (properties.containsKey(TableCatalog.PROP_LOCATION)) {
      this.properties.remove("path");
    }
    this.properties.replaceAll((any, value) -> Given.withoutSecrets(value));
  }

  /** The table as it is in Python. Each write has its own: it remembers the options that it was first asked with. */
  private Table python() {
    return Delegate.provider().getTable(schema, new Transform[0], given);
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public StructType schema() {
    return schema;
  }

  /** All record columns that it does not have: Spark asks more than once in each query. */
  @Override
  public synchronized MetadataColumn[] metadataColumns() {
    if (hidden == null) {
      String told = Questions.ask(Map.of("op", "hidden", "options", given, "schema", schema.json())).get("schema").asText();
      hidden = Hidden.of((StructType) DataType.fromJson(told));
    }
    return hidden;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return CAPABILITIES;
  }

  /** For DESCRIBE and SHOW CREATE TABLE. No table has its files here: dropping one drops no log. */
  @Override
  public Map<String, String> properties() {
    return properties;
  }

  /** Options of the query count before those of the table. */
  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    Map<String, String> all = new HashMap<>(given);
    all.keySet().removeIf(options::containsKey);
    all.putAll(Given.of(options.asCaseSensitiveMap()));
    return new LogScanBuilder(this, all);
  }

  /** Options of a write count before those of the table, which Python looks through. */
  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    Map<String, String> all = new HashMap<>();
    if (!info.options().containsKey("path")) {
      checkReadable();
      all.putAll(given);
      all.keySet().removeIf(info.options()::containsKey);
      all.put(TABLE, name);
    }
    all.putAll(Given.of(info.options().asCaseSensitiveMap()));
    all.put(QUERY, info.queryId());
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(all);
    return ((SupportsWrite) python()).newWriteBuilder(new WriteOptions(options, info.queryId(), info.schema()));
  }

  /** CREATE TABLE ... AS SELECT takes the columns of the query for those of the table, whatever a read of the log returns. */
  void checkReadable() {
    Questions.conditions(given, schema, List.of());
  }

  private record WriteOptions(CaseInsensitiveStringMap options, String queryId, StructType schema) implements LogicalWriteInfo {}
}
