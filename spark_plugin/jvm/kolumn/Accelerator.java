package kolumn;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The RAPIDS Accelerator of the session: whether there is one, and what of a log it can decode. */
final class Accelerator {
  private static final String PLUGIN = "com.nvidia.spark.SQLPlugin";

  /** Without one of them the function would make rows on the CPU, of a whole split at a time. */
  private static final List<String> OPERATORS =
      List.of("exec.ProjectExec", "exec.GenerateExec", "exec.RangeExec", "expression.ScalaUDF", "expression.Explode");

  private Accelerator() {}

  /** Whether the accelerator plans the queries of this session; those of an explainOnly session too. */
  static boolean plans() {
    boolean isThere = Arrays.stream(Settings.ofSession("spark.plugins", "").split(",")).map(String::trim).anyMatch(PLUGIN::equals);
    return isThere && Boolean.parseBoolean(Settings.ofSession("spark.rapids.sql.enabled", "true"));
  }

  /**
   * Bytes that a split may decode to: a quarter of what the accelerator takes for a batch of the right size, since the columns are there as
   * tables, joined, exploded, and as the fields of the records, and nothing can halve the single row that a split is.
   */
  static long splitBytes() {
    return JavaUtils.byteStringAsBytes(Settings.ofSession("spark.rapids.sql.batchSizeBytes", "1g")) / 4;
  }

  /** Why a scan is decoded on the CPU; null if nothing is in the way. */
  static String obstacle(Map<String, String> options, StructType schema, List<String> totals) {
    if (!totals.isEmpty()) {
      return "headers alone are read";
    }
    for (String name : OPERATORS) {
      if (!Boolean.parseBoolean(Settings.ofSession("spark.rapids.sql." + name, "true"))) {
        return "spark.rapids.sql." + name + "=false";
      }
    }
    if ("cpu".equalsIgnoreCase(new CaseInsensitiveStringMap(options).get("backend"))) {
      return "backend=cpu";
    }
    return Arrays.stream(schema.fields())
        .filter(field -> !Objects.isKnown(field.dataType()))
        .findFirst()
        .map(field -> "the accelerator has no column like " + field.name() + ", " + field.dataType().simpleString())
        .orElse(null);
  }
}
