package kolumn;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.jdk.javaapi.CollectionConverters;

/** For `rapids.explain` in Python: the scans of a query. */
public final class Scans {
  private Scans() {}

  /** Of each scan its text in plans, and why it does not go to the GPU; null if it does. */
  public static List<List<String>> of(QueryExecution query) {
    // A strategy may find what is in the way.
    query.sparkPlan();
    List<List<String>> found = new ArrayList<>();
    add(query.optimizedPlan(), found);
    return found;
  }

  private static void add(QueryPlan<LogicalPlan> plan, List<List<String>> found) {
    if (plan instanceof DataSourceV2ScanRelation relation && relation.scan() instanceof LogScan scan) {
      found.add(Arrays.asList(scan.goesToGpu() ? scan.function() : scan.description(), scan.obstacle()));
    }
    CollectionConverters.asJava(plan.subqueries()).forEach(one -> add(one, found));
    CollectionConverters.asJava(plan.children()).forEach(one -> add(one, found));
  }
}
