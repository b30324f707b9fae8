package kolumn;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.types.StructType;

/** A topic whose first records a query selects. The write itself commits all or nothing, so nothing else is staged. */
final class StagedTopic extends LogTable implements StagedTable {
  private final Runnable written;

  StagedTopic(String name, StructType schema, Map<String, String> options, Runnable written) {
    super(name, schema, options, options);
    this.written = written;
  }

  /** Its reads have the columns that the log has then. */
  @Override
  void checkReadable() {}

  @Override
  public void commitStagedChanges() {
    written.run();
  }

  @Override
  public void abortStagedChanges() {}
}
