package kolumn;

import java.io.File;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Predicate;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.unsafe.types.UTF8String;
import org.slf4j.LoggerFactory;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Settings, on the driver. Whoever may say SET changes those of the session, so no program that is run and no limit comes from there, but
 * from the configuration that the SparkContext was started with.
 */
final class Settings {
  private static final String PREFIX = "spark.kolumn.";
  private static final String HAND_OVER = PREFIX + "handOver";
  private static final String KEYED = PREFIX + "reportPartitioning";
  private static final String DRIVERS_PYTHON = PREFIX + "driver.python";
  private static final AtomicBoolean IS_WARNED = new AtomicBoolean();

  private Settings() {}

  /** A setting: whether SET may change it, and its values. The same list is in Python's `session/settings.py`. */
  private record Known(boolean isOfSession, String expected, Predicate<String> isValue) {
    static Known ofSession(String... values) {
      return new Known(true, String.join(" or ", values), text -> Arrays.asList(values).contains(text.toLowerCase(Locale.ROOT)));
    }

    static Known seconds() {
      return new Known(false, "a number of seconds", Settings::isSeconds);
    }
  }

  private static final Map<String, Known> KNOWN =
      Map.of(
          PREFIX + "reader", Known.ofSession("columnar", "python"),
          HAND_OVER, new Known(true, "memory or pipe", text -> List.of("memory", "pipe", "socket").contains(text.toLowerCase(Locale.ROOT))),
          KEYED, Known.ofSession("true", "false"),
          PREFIX + "rapids.keepPlan", Known.ofSession("true", "false"),
          DRIVERS_PYTHON, new Known(false, "a Python", text -> !text.isBlank()),
          PREFIX + "worker.idleSeconds", Known.seconds(),
          Workers.TIMEOUT_SECONDS, Known.seconds());

  static boolean isSeconds(String text) {
    return text.matches("[0-9]{1,9}");
  }

  /** Refuses settings of Kolumn that are not known, have a value that means nothing, or were made where they are not read. */
  static void check() {
    SparkConf context = ofContext();
    Map<String, String> found = new TreeMap<>();
    for (Tuple2<String, String> one : context.getAll()) {
      found.put(one._1(), one._2());
    }
    Map<String, String> session = CollectionConverters.asJava(SparkSession.active().conf().getAll());
    found.putAll(session);
    found.forEach(
        (name, value) -> {
          if (name.toLowerCase(Locale.ROOT).startsWith(PREFIX)) {
            check(name, value, session.containsKey(name) ? context.get(name, null) : value);
          }
        });
  }

  private static void check(String name, String value, String ofContext) {
    Known known = KNOWN.get(name);
    if (known == null) {
      String nearest = KNOWN.keySet().stream().min(Comparator.comparing(one -> distance(one, name))).orElseThrow();
      throw refused(name + ": no such setting, the nearest is " + nearest);
    }
    if (!known.isValue().test(value)) {
      throw refused(name + ": expected " + known.expected() + ", found '" + value + "'");
    }
    if (!known.isOfSession() && !value.equals(ofContext)) {
      throw refused(
          name + ": it belongs to the configuration that the SparkContext is started with (spark-submit --conf, spark-defaults.conf, or the"
              + " builder of the first session), and a session or SET cannot change it; expected "
              + (ofContext == null ? "none" : "'" + ofContext + "'") + ", found '" + value + "'. RESET " + name + " takes that back");
    }
  }

  private static int distance(String one, String other) {
    return UTF8String.fromString(one.toLowerCase(Locale.ROOT)).levenshteinDistance(UTF8String.fromString(other.toLowerCase(Locale.ROOT)));
  }

  private static RuntimeException refused(String told) {
    return Errors.ofDriver("ArgumentError: setting " + told);
  }

  /** A setting that SQL may change. */
  static String ofSession(String name, String otherwise) {
    return SparkSession.active().conf().get(name, otherwise);
  }

  /** A setting of the SparkContext. */
  static String ofContext(String name, String otherwise) {
    return ofContext().get(name, otherwise);
  }

  private static SparkConf ofContext() {
    return SparkSession.active().sparkContext().getConf();
  }

  /**
   * The Python of this program, if it said so ({@code kolumn.spark_plugin.configure} does), else the one that Spark takes on the driver. A
   * packed environment is on executors alone, so PYSPARK_PYTHON may be no file here. PYSPARK_DRIVER_PYTHON may be a notebook.
   */
  static String driversPython() {
    String own = ofContext(DRIVERS_PYTHON, ofContext("spark.pyspark.driver.python", ""));
    String found = System.getenv().getOrDefault("PYSPARK_DRIVER_PYTHON", "");
    if (own.isEmpty() && new File(found).getName().startsWith("python")) {
      own = ofContext("spark.pyspark.python", found);
    }
    return own.isEmpty() ? workersPython() : own;
  }

  /** The Python that the tasks of this session run; in a local session that is the driver's. */
  static String tasksPython() {
    return SparkSession.active().sparkContext().isLocal() ? driversPython() : workersPython();
  }

  private static String workersPython() {
    Map<String, String> environment = System.getenv();
    String found =
        Optional.ofNullable(environment.get("PYSPARK_PYTHON"))
            .orElse(environment.getOrDefault("PYSPARK_DRIVER_PYTHON", "python3"));
    return ofContext("spark.pyspark.python", found);
  }

  /** How many tasks run at a time. */
  static int slots() {
    return SparkSession.active().sparkContext().defaultParallelism();
  }

  /** Whether batches may lie in memory that a worker and this JVM share. */
  static boolean isShared() {
    String how = ofSession(HAND_OVER, "memory");
    if ("socket".equalsIgnoreCase(how) && !IS_WARNED.getAndSet(true)) {
      LoggerFactory.getLogger(Settings.class).warn("{}=socket is called pipe, and goes in the next version", HAND_OVER);
    }
    return "memory".equalsIgnoreCase(how);
  }

  /**
   * Whether splits say of which topic partition they are, so that grouping by it needs no exchange. Spark 4.1 then makes one task of each
   * topic partition in any query that reads both columns; later versions only where it helps.
   */
  static boolean isKeyed() {
    return Boolean.parseBoolean(ofSession(KEYED, String.valueOf(version() >= 402)));
  }

  /** Spark's, 402 for 4.2. */
  static int version() {
    String[] version = SparkSession.active().version().split("[.]");
    return 100 * Integer.parseInt(version[0]) + Integer.parseInt(version[1]);
  }
}
