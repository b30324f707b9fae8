package kolumn;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.ColumnarToRowExec;
import org.apache.spark.sql.execution.GenerateExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What the accelerator has left on the CPU is scanned as without the accelerator: by columns, batch by batch. The function of
 * {@link GpuStrategy} would make rows of a whole split at a time. Not so in an explainOnly session, whose plans are there to be looked at.
 */
final class LeftOnCpu extends ColumnarRule {
  private static final TreeNodeTag<SparkPlan> SCAN = new TreeNodeTag<>("kolumn scan");

  /** By default whether the session is explainOnly; `rapids.explain` in Python looks at plans as the accelerator has seen them. */
  private static final String KEEP_PLAN = "spark.kolumn.rapids.keepPlan";

  /** Names the plan with the same output that Spark makes of the scan by itself. */
  static SparkPlan tagged(SparkPlan plan, SparkPlan scan) {
    plan.setTagValue(SCAN, scan);
    return plan;
  }

  @Override
  public Rule<SparkPlan> postColumnarTransitions() {
    return new Rule<>() {
      @Override
      public SparkPlan apply(SparkPlan plan) {
        return !Accelerator.plans() || Boolean.parseBoolean(Settings.ofSession(KEEP_PLAN, isExplained())) ? plan : scanned(plan);
      }
    };
  }

  private static String isExplained() {
    return String.valueOf("explainOnly".equalsIgnoreCase(Settings.ofSession("spark.rapids.sql.mode", "")));
  }

  private static SparkPlan scanned(SparkPlan plan) {
    if (plan instanceof ProjectExec project && project.child() instanceof GenerateExec && plan.getTagValue(SCAN).isDefined()) {
      SparkPlan scan = plan.getTagValue(SCAN).get();
      return scan.supportsColumnar() ? new ColumnarToRowExec(scan) : scan;
    }
    List<SparkPlan> children = new ArrayList<>();
    boolean isChanged = false;
    for (SparkPlan child : CollectionConverters.asJava((Seq<SparkPlan>) plan.children())) {
      children.add(scanned(child));
      isChanged |= children.get(children.size() - 1) != child;
    }
    return isChanged ? (SparkPlan) plan.withNewChildren(CollectionConverters.asScala((Iterable<SparkPlan>) children).toSeq()) : plan;
  }
}
