package kolumn;

import java.io.File;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.SparkSession;

/** Settings of the session, on the driver. */
final class Settings {
  private Settings() {}

  static String conf(String name, String otherwise) {
    return SparkSession.active().conf().get(name, otherwise);
  }

  /**
   * The Python of this program, if it said so ({@code kolumn.spark_plugin.configure} does), else the one that Spark takes on the driver. A
   * packed environment is on executors alone, so PYSPARK_PYTHON may be no file here. PYSPARK_DRIVER_PYTHON may be a notebook.
   */
  static String driversPython() {
    String own = conf("spark.kolumn.driver.python", conf("spark.pyspark.driver.python", ""));
    String found = System.getenv().getOrDefault("PYSPARK_DRIVER_PYTHON", "");
    if (own.isEmpty() && new File(found).getName().startsWith("python")) {
      own = conf("spark.pyspark.python", found);
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
    return conf("spark.pyspark.python", found);
  }

  /** How many tasks run at a time. */
  static int slots() {
    return SparkSession.active().sparkContext().defaultParallelism();
  }

  /** Whether batches may lie in memory that a worker and this JVM share. */
  static boolean isShared() {
    return !"socket".equalsIgnoreCase(conf("spark.kolumn.handOver", "memory"));
  }

  /**
   * Whether splits say of which topic partition they are, so that grouping by it needs no exchange. Spark 4.1 then makes one task of each
   * topic partition in any query that reads both columns; later versions only where it helps.
   */
  static boolean isKeyed() {
    String[] version = SparkSession.active().version().split("[.]");
    int number = 100 * Integer.parseInt(version[0]) + Integer.parseInt(version[1]);
    return Boolean.parseBoolean(conf("spark.kolumn.reportPartitioning", String.valueOf(number >= 402)));
  }
}
