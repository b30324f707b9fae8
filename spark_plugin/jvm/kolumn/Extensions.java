package kolumn;

import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** Spark finds this by the services file of the jar, in every session; it changes plans of those with the RAPIDS Accelerator alone. */
public final class Extensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> implements SparkSessionExtensionsProvider {
  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    extensions.injectPlannerStrategy(GpuStrategy::new);
    extensions.injectColumnar(session -> new LeftOnCpu());
    return BoxedUnit.UNIT;
  }
}
