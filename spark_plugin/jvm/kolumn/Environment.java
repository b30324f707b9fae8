package kolumn;

import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.SparkFiles;
import scala.Tuple2;

/** The environment of a worker, as Spark's own Python workers have it: where its modules are, and how much memory it may take. */
record Environment(String python, List<String> places, long memoryMb) {
  private static final List<String> ARCHIVES = List.of(".zip", ".egg", ".whl");
  private static final String SHARES = "spark.executorEnv.KOLUMN_GPU_";

  static Environment here(String python) {
    List<String> places = new ArrayList<>();
    File added = SparkEnv.get() == null ? null : new File(SparkFiles.getRootDirectory());
    if (added != null && added.isDirectory()) {
      // What addPyFile brought: modules lie in the folder, packages are archives.
      places.add(added.getPath());
      File[] archives = added.listFiles((in, name) -> ARCHIVES.stream().anyMatch(name::endsWith));
      if (archives != null) {
        Arrays.stream(archives).map(File::getPath).sorted().forEach(places::add);
      }
    }
    return new Environment(python, places, taskMemoryMb());
  }

  /** The share of a task in spark.executor.pyspark.memory; -1 without a limit. */
  private static long taskMemoryMb() {
    SparkConf conf = SparkEnv.get() == null ? null : SparkEnv.get().conf();
    if (conf == null || !conf.contains("spark.executor.pyspark.memory")) {
      return -1;
    }
    return Math.max(1, conf.getSizeAsMb("spark.executor.pyspark.memory") / Math.max(1, conf.getInt("spark.executor.cores", 1)));
  }

  void addTo(Map<String, String> environment) {
    List<String> all = new ArrayList<>(places);
    String own = environment.get("PYTHONPATH");
    if (own != null && !own.isEmpty()) {
      all.add(own);
    }
    if (!all.isEmpty()) {
      environment.put("PYTHONPATH", String.join(File.pathSeparator, all));
    }
    if (SparkEnv.get() != null) {
      // Spark gives them to executors, of which a local session has none, and to Python workers of its own.
      for (Tuple2<String, String> one : SparkEnv.get().conf().getAllWithPrefix(SHARES)) {
        environment.put("KOLUMN_GPU_" + one._1(), one._2());
      }
    }
    environment.put("PYSPARK_PYTHON", python);
    environment.put("PYSPARK_EXECUTOR_MEMORY_MB", Long.toString(memoryMb));
  }
}
