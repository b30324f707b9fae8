package kolumn;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * In a session with the RAPIDS Accelerator a scan becomes operators that run on the GPU: a function decodes splits by their numbers, and
 * its arrays of structs become rows. The logical plan is what it is without the accelerator, hence what was pushed down, and what Spark
 * knows of sizes. Where something is in the way, {@link LogScan#obstacle} says what, and Spark's own strategy makes a BatchScanExec.
 */
final class GpuStrategy extends SparkStrategy {
  private final SparkSession session;

  GpuStrategy(SparkSession session) {
    this.session = session;
  }

  @Override
  public Seq<SparkPlan> apply(LogicalPlan plan) {
    DataSourceV2ScanRelation relation = relation(plan);
    if (relation == null || !(relation.scan() instanceof LogScan scan) || !scan.goesToGpu()) {
      return notMine();
    }
    try {
      // What other versions of Spark may not have is named there alone.
      return GpuPlan.of(session, this, plan, scan);
    } catch (LinkageError e) {
      // Of another Spark, or of jars that do not see each other.
      scan.stayOnCpu("this Spark, or its class path, is not what Kolumn knows: " + e);
      return notMine();
    }
  }

  /** What projections and filters alone are above of; null for any other plan. Otherwise Spark's strategy for scans would take them. */
  private static DataSourceV2ScanRelation relation(LogicalPlan plan) {
    if (plan instanceof Project project) {
      return relation(project.child());
    }
    if (plan instanceof Filter filter) {
      return relation(filter.child());
    }
    return plan instanceof DataSourceV2ScanRelation found ? found : null;
  }

  @SuppressWarnings("unchecked")
  private static Seq<SparkPlan> notMine() {
    return (Seq<SparkPlan>) (Seq<?>) Nil$.MODULE$;
  }
}
