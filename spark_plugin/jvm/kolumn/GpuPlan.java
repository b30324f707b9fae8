package kolumn;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.expressions.Explode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.ScalaUDF;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Range;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.GenerateExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.RangeExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The physical plan of {@link GpuStrategy}, of operators and functions that the accelerator knows by their classes. */
final class GpuPlan {
  private GpuPlan() {}

  static Seq<SparkPlan> of(SparkSession session, SparkStrategy strategy, LogicalPlan plan, LogScan scan) {
    return seq(List.of(planned(session, strategy, plan, scan)));
  }

  private static SparkPlan planned(SparkSession session, SparkStrategy strategy, LogicalPlan plan, LogScan scan) {
    // Classes are loaded before anything is planned by half.
    DecodeSplit decode = scan.decode();
    if (plan instanceof Project project) {
      return new ProjectExec(project.projectList(), strategy.planLater(project.child()));
    }
    if (plan instanceof Filter filter) {
      Expression condition = withoutPruning(filter.condition());
      return condition == null ? strategy.planLater(filter.child()) : new FilterExec(condition, strategy.planLater(filter.child()));
    }
    DataSourceV2Strategy without = new DataSourceV2Strategy((org.apache.spark.sql.classic.SparkSession) session);
    SparkPlan scanned = CollectionConverters.asJava(without.apply(plan)).get(0);
    return LeftOnCpu.tagged(decoded((DataSourceV2ScanRelation) plan, scan, decode), scanned);
  }

  /** A condition without what only spares a scan some of its splits; null if nothing else is in it. */
  private static Expression withoutPruning(Expression condition) {
    if (condition instanceof And both) {
      Expression left = withoutPruning(both.left());
      Expression right = withoutPruning(both.right());
      return left == null ? right : right == null ? left : left == both.left() && right == both.right() ? both : new And(left, right);
    }
    return condition instanceof DynamicPruning ? null : condition;
  }

  private static SparkPlan decoded(DataSourceV2ScanRelation relation, LogScan scan, DecodeSplit decode) {
    StructType schema = scan.readSchema();
    int splits = Math.max(1, decode.count());
    AttributeReference id = attribute("id", DataTypes.LongType);
    AttributeReference record = attribute("record", schema);
    Range ids = new Range(0, decode.count(), 1, Option.apply(splits), seq(List.of(id)), false);
    ScalaUDF records =
        new ScalaUDF(
            decode, new ArrayType(schema, false), seq(List.of(id)), seq(List.of()), Option.empty(), Option.apply(scan.function()),
            false, true);
    SparkPlan rows = new GenerateExec(new Explode(records), seq(List.of()), false, seq(List.of(record)), new RangeExec(ids));
    List<NamedExpression> columns = new ArrayList<>();
    for (AttributeReference column : CollectionConverters.asJava(relation.output())) {
      Expression field = new GetStructField(record, schema.fieldIndex(column.name()), Option.apply(column.name()));
      columns.add(
          new Alias(field, column.name(), column.exprId(), column.qualifier(), Option.apply(column.metadata()), seq(List.of())));
    }
    return new ProjectExec(seq(columns), rows);
  }

  private static AttributeReference attribute(String name, DataType type) {
    return new AttributeReference(name, type, false, Metadata.empty(), NamedExpression.newExprId(), seq(List.of()));
  }

  private static <T> Seq<T> seq(List<T> items) {
    return CollectionConverters.asScala((Iterable<T>) items).toSeq();
  }
}
