package kolumn;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The topics of a log directory, or of a bucket, as tables: {@code spark.sql.catalog.kolumn=kolumn.Catalog} and
 * {@code spark.sql.catalog.kolumn.root=/data/kafka}. All other settings of the catalog are options of its reads. A name with a slash is
 * a path: {@code SELECT * FROM kolumn.`/backup/orders-0`}. Nothing can be written through it.
 */
public final class Catalog implements TableCatalog {
  private static final String ROOT = "root";
  private String name;
  private Map<String, String> settings;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    settings = new HashMap<>(options.asCaseSensitiveMap());
  }

  @Override
  public String name() {
    return name;
  }

  private Map<String, String> options(String path) {
    Map<String, String> found = new HashMap<>(settings);
    found.keySet().removeIf(ROOT::equalsIgnoreCase);
    String root = new CaseInsensitiveStringMap(settings).get(ROOT);
    if (path == null && root == null) {
      throw new IllegalArgumentException("spark.sql.catalog." + name + ".root names no log directory, so the catalog has no topics");
    }
    found.put("path", path == null ? root : path);
    return found;
  }

  @Override
  public Identifier[] listTables(String[] namespace) {
    if (namespace.length > 0) {
      return new Identifier[0];
    }
    return Questions.topics(options(null)).stream().map(topic -> Identifier.of(namespace, topic)).toArray(Identifier[]::new);
  }

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    if (table.namespace().length > 0) {
      throw new NoSuchTableException(table);
    }
    Map<String, String> options = options(table.name().contains("/") ? table.name() : null);
    if (!table.name().contains("/")) {
      List<String> topics = Questions.topics(options);
      if (!topics.contains(table.name())) {
        throw new NoSuchTableException(table);
      }
      options.put("subscribe", table.name());
    }
    return new LogTable(name + "." + table.name(), Questions.schema(options), options, options, false);
  }

  @Override
  public Table createTable(Identifier table, StructType schema, Transform[] partitions, Map<String, String> properties) {
    throw readOnly();
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) {
    throw readOnly();
  }

  @Override
  public boolean dropTable(Identifier table) {
    throw readOnly();
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw readOnly();
  }

  private UnsupportedOperationException readOnly() {
    return new UnsupportedOperationException("the catalog " + name + " reads topics, and changes nothing: write with format(\"kolumn\")");
  }
}
