package kolumn;

import ai.rapids.cudf.ColumnVector;
import ai.rapids.cudf.ColumnView;
import ai.rapids.cudf.DType;
import ai.rapids.cudf.DeviceMemoryBuffer;
import com.nvidia.spark.RapidsUDF;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.expressions.Explode;
import org.apache.spark.sql.catalyst.expressions.Generator;
import org.apache.spark.sql.catalyst.expressions.ScalaUDF;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.GenerateExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Does in a session without the accelerator what that does with the connector's function: calls it with a column of ids, and makes rows
 * of the column that it returns. To be set as spark.sql.extensions.
 */
public final class OnDevice extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  /** Calls of evaluateColumnar, how many there were at a time at most, and records that came of them. */
  public static final AtomicInteger CALLS = new AtomicInteger();

  public static final AtomicInteger MOST = new AtomicInteger();
  public static final AtomicInteger RECORDS = new AtomicInteger();
  private static final Set<TaskContext> RUNNING = ConcurrentHashMap.newKeySet();

  /** Tasks whose call has not ended. */
  public static int running() {
    return RUNNING.size();
  }

  /** Whether Spark has told all of these that they are killed. */
  public static boolean areKilled() {
    return RUNNING.stream().allMatch(TaskContext::isInterrupted);
  }

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    extensions.injectColumnar(session -> new Replacing());
    return BoxedUnit.UNIT;
  }

  /** When the accelerator puts its operators in the place of Spark's, before the connector looks at what was left on the CPU. */
  private static final class Replacing extends ColumnarRule {
    @Override
    public Rule<SparkPlan> preColumnarTransitions() {
      return new Rule<>() {
        @Override
        public SparkPlan apply(SparkPlan plan) {
          return replaced(plan);
        }
      };
    }

    private static SparkPlan replaced(SparkPlan plan) {
      if (plan instanceof ProjectExec project
          && project.child() instanceof GenerateExec rows
          && rows.generator() instanceof Explode explode
          && explode.child() instanceof ScalaUDF udf
          && udf.function() instanceof DecodeSplit decode) {
        ScalaUDF other =
            new ScalaUDF(
                new Calling(decode), udf.dataType(), udf.children(), udf.inputEncoders(), udf.outputEncoder(), udf.udfName(),
                udf.nullable(), udf.udfDeterministic());
        Generator generator = new Explode(other);
        // New operators, like those of the accelerator, so that they do not have the tag of what the connector makes.
        return new ProjectExec(
            project.projectList(),
            new GenerateExec(generator, rows.requiredChildOutput(), rows.outer(), rows.generatorOutput(), rows.child()));
      }
      List<SparkPlan> children = new ArrayList<>();
      CollectionConverters.asJava((Seq<SparkPlan>) plan.children()).forEach(child -> children.add(replaced(child)));
      return (SparkPlan) plan.withNewChildren(CollectionConverters.asScala((Iterable<SparkPlan>) children).toSeq());
    }
  }

  /** Calls a function as the accelerator would, in the thread of the task. */
  private static final class Calling extends AbstractFunction1<Object, Object> implements Serializable {
    private static final long serialVersionUID = 1;

    static {
      // The tests' nvCOMP, before a worker names that of its environment.
      Driver.use();
      Driver.useCodecs("libnvcomp.so.5");
    }

    private final DecodeSplit decode;

    Calling(DecodeSplit decode) {
      this.decode = decode;
    }

    @Override
    public Object apply(Object id) {
      CALLS.incrementAndGet();
      RUNNING.add(TaskContext.get());
      MOST.accumulateAndGet(RUNNING.size(), Math::max);
      RapidsUDF udf = decode;
      try (ColumnVector ids = ids((Long) id);
          ColumnVector found = udf.evaluateColumnar(1, ids)) {
        if (!found.getType().equals(DType.LIST) || found.getRowCount() != 1 || found.getNullCount() != 0) {
          throw new IllegalStateException("a list for a split is expected, and there is " + found);
        }
        List<Row> rows = rows(found, decode.schema());
        RECORDS.addAndGet(rows.size());
        return rows;
      } finally {
        RUNNING.remove(TaskContext.get());
      }
    }

    private static ColumnVector ids(long id) {
      // A thread of RAPIDS has a context.
      Driver.use();
      ByteBuffer number = ByteBuffer.allocateDirect(Long.BYTES).order(ByteOrder.nativeOrder()).putLong(0, id);
      DeviceMemoryBuffer memory = DeviceMemoryBuffer.allocate(Long.BYTES);
      Driver.check(Driver.copyToDevice(memory.getAddress(), MemoryUtil.getByteBufferAddress(number), Long.BYTES), "copying an id");
      Driver.check(Driver.synchronize(), "waiting");
      return new ColumnVector(DType.INT64, 1, Optional.of(0L), memory, null, null);
    }

    private static List<Row> rows(ColumnView lists, StructType schema) {
      List<Row> found = new ArrayList<>();
      try (ColumnView records = lists.getChildColumnView(0);
          HostColumn copied = new HostColumn(records, schema);
          ColumnarBatch batch = new ColumnarBatch(copied.children(), (int) records.getRowCount())) {
        Objects.Fields fields = Objects.Fields.of(schema);
        batch.rowIterator().forEachRemaining(row -> found.add(fields.row(row)));
      }
      return found;
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof Calling calling && decode.equals(calling.decode);
    }

    @Override
    public int hashCode() {
      return decode.hashCode();
    }
  }
}
