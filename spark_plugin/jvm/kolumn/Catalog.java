package kolumn;

import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The topics of a log directory, or of a bucket, as tables: {@code spark.sql.catalog.logs=kolumn.Catalog} and
 * {@code spark.sql.catalog.logs.root=/data/kafka}. All other settings of the catalog are options of its reads. A name with a
 * slash is a path: {@code SELECT * FROM logs.`/backup/orders-0`}. A topic is there as long as it has records: the first ones make it
 * ({@code CREATE TABLE ... AS SELECT}), and nothing here removes any. There are no namespaces.
 */
public final class Catalog implements StagingTableCatalog, SupportsNamespaces {
  private static final String ROOT = "root";
  /** For so long a listing is not made again: a query asks for its tables more than once, and a bucket may have thousands of folders. */
  private static final long KEPT_NANOS = TimeUnit.SECONDS.toNanos(5);
  private static final Set<String> NOT_OPTIONS = Set.of(TableCatalog.PROP_LOCATION, "path", "subscribe", "topic");

  private String name;
  private Map<String, String> settings;
  private List<String> topics;
  private long listedAt;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    settings = new HashMap<>(options.asCaseSensitiveMap());
  }

  @Override
  public String name() {
    return name;
  }

  private String root() {
    return new CaseInsensitiveStringMap(settings).get(ROOT);
  }

  private Map<String, String> options(String path) {
    Map<String, String> found = new HashMap<>(settings);
    found.keySet().removeIf(ROOT::equalsIgnoreCase);
    if (path == null && root() == null) {
      throw new IllegalArgumentException("spark.sql.catalog." + name + ".root names no log directory, so the catalog has no topics");
    }
    found.put("path", path == null ? root() : path);
    return found;
  }

  private synchronized List<String> topics() {
    if (topics == null || System.nanoTime() - listedAt > KEPT_NANOS) {
      topics = Questions.topics(options(null));
      listedAt = System.nanoTime();
    }
    return topics;
  }

  private synchronized void forget() {
    topics = null;
  }

  /** Whether there is a topic now, if it was not there when topics were last listed. */
  private boolean has(String topic) {
    if (topics().contains(topic)) {
      return true;
    }
    forget();
    return topics().contains(topic);
  }

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    checkNamespace(namespace);
    List<String> found = root() == null ? List.of() : topics();
    return found.stream().map(topic -> Identifier.of(namespace, topic)).toArray(Identifier[]::new);
  }

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    if (table.namespace().length > 0) {
      throw new NoSuchTableException(table);
    }
    Map<String, String> options = options(isPath(table) ? table.name() : null);
    if (!isPath(table)) {
      if (!has(table.name())) {
        throw new NoSuchTableException(table);
      }
      options.put("subscribe", table.name());
    }
    return new LogTable(name + "." + table.name(), Questions.schema(options), options, options);
  }

  private static boolean isPath(Identifier table) {
    return table.name().contains("/");
  }

  /** For REFRESH TABLE. */
  @Override
  public void invalidateTable(Identifier table) {
    forget();
  }

  @Override
  public StagedTable stageCreate(Identifier table, StructType schema, Transform[] partitions, Map<String, String> properties)
      throws NoSuchNamespaceException {
    checkNamespace(table.namespace());
    Map<String, String> found = new HashMap<>(properties);
    found.put(TableCatalog.PROP_PROVIDER, properties.getOrDefault(TableCatalog.PROP_PROVIDER, "kolumn"));
    if (!found.get(TableCatalog.PROP_PROVIDER).equalsIgnoreCase("kolumn")) {
      throw refused("has logs alone: expected USING kolumn, or format(\"kolumn\"), found " + found.get(TableCatalog.PROP_PROVIDER));
    }
    if (partitions.length > 0) {
      throw refused("has topics, whose records say their partition: leave PARTITIONED BY out, and select a column partition");
    }
    Map<String, String> given = Given.of(found);
    if (isPath(table) || given.keySet().stream().anyMatch(key -> NOT_OPTIONS.contains(key.toLowerCase(Locale.ROOT)))) {
      throw refused(
          "has a topic's records below its root: expected the name of a topic, and neither a path nor a topic among the options. Elsewhere"
              + " write with df.write.format(\"kolumn\").save(path)");
    }
    Map<String, String> options = options(null);
    options.keySet().removeIf(key -> given.keySet().stream().anyMatch(key::equalsIgnoreCase));
    options.putAll(given);
    options.put("subscribe", table.name());
    return new StagedTopic(name + "." + table.name(), schema, options, this::forget);
  }

  @Override
  public StagedTable stageReplace(Identifier table, StructType schema, Transform[] partitions, Map<String, String> properties) {
    throw refused("replaces no topic: CREATE TABLE ... AS SELECT makes one, INSERT INTO adds records");
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier table, StructType schema, Transform[] partitions, Map<String, String> properties) {
    return stageReplace(table, schema, partitions, properties);
  }

  @Override
  public Table createTable(Identifier table, StructType schema, Transform[] partitions, Map<String, String> properties) {
    throw refused("has topics, which are there once they have records: CREATE TABLE ... AS SELECT writes the first ones");
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) {
    throw refused("alters no topic: its options are settings of the catalog, spark.sql.catalog." + name + ".*");
  }

  @Override
  public boolean dropTable(Identifier table) {
    throw refused("removes no topic: its files are the log itself");
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw refused("renames no topic");
  }

  @Override
  public String[][] listNamespaces() {
    return new String[0][];
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    checkNamespace(namespace);
    return listNamespaces();
  }

  @Override
  public boolean namespaceExists(String[] namespace) {
    return namespace.length == 0;
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    checkNamespace(namespace);
    return root() == null ? Map.of() : Map.of(SupportsNamespaces.PROP_LOCATION, Given.withoutSecrets(root()));
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) {
    throw refused("has no namespaces: a topic is " + name + ".topic");
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw refused("has no namespaces to alter");
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) {
    throw refused("has no namespaces to drop");
  }

  private static void checkNamespace(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length > 0) {
      throw new NoSuchNamespaceException(namespace);
    }
  }

  private UnsupportedOperationException refused(String why) {
    return new UnsupportedOperationException("the catalog " + name + " " + why);
  }
}
