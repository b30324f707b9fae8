package kolumn;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownTopN;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** Collects what a query wants; each query has its own, so nothing leaks from one into another. */
final class LogScanBuilder
    implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters, SupportsPushDownTopN, SupportsPushDownLimit,
        SupportsPushDownAggregates {
  private static final Set<String> HAVE_MAXIMUM = Set.of("offset", "timestamp");
  private static final List<String> CHEAPEST = List.of("offset", "partition");

  private final LogTable table;
  private final Map<String, String> options;
  private StructType required;
  private List<Predicate> pushed = List.of();
  private boolean areAllDecided = true;
  private int limit = -1;
  private Top top;
  private List<String> totals = List.of();

  LogScanBuilder(LogTable table, Map<String, String> options) {
    this.table = table;
    this.options = options;
    this.required = table.schema();
  }

  /** With nested pruning Spark asks for fields of headers, or of typed values: these are handed over, and where that is possible no others are decoded. */
  @Override
  public void pruneColumns(StructType asked) {
    required = asked;
  }

  /** What holds for all records of a topic partition or for none is decided there; all else goes back to Spark, which compares again. */
  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    JsonNode told = Questions.conditions(options, table.schema(), Conditions.of(predicates));
    List<Predicate> useful = new ArrayList<>();
    List<Predicate> again = new ArrayList<>();
    for (int i = 0; i < predicates.length; i++) {
      if (told.get("useful").get(i).asBoolean()) {
        useful.add(predicates[i]);
      }
      if (!told.get("decided").get(i).asBoolean()) {
        again.add(predicates[i]);
      }
    }
    pushed = useful;
    areAllDecided = again.isEmpty();
    return again.toArray(new Predicate[0]);
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed.toArray(new Predicate[0]);
  }

  @Override
  public boolean pushLimit(int rows) {
    limit = rows;
    return true;
  }

  /** What headers say cannot be among the first rows is left out; Spark sorts the rest. */
  @Override
  public boolean pushTopN(SortOrder[] orders, int rows) {
    Top asked = Top.of(orders, rows);
    if (!areAllDecided || !totals.isEmpty() || !Questions.ask(asked.question(options, table.schema())).get("told").asBoolean()) {
      return false;
    }
    top = asked;
    return true;
  }

  /** Of a limit each task has so many rows at most, all together may have more. */
  @Override
  public boolean isPartiallyPushed() {
    return true;
  }

  /** Partial results from the headers of batches, one row for each range of a segment; Spark adds them up. */
  @Override
  public boolean pushAggregation(Aggregation asked) {
    List<String> names = new ArrayList<>();
    StructType results = new StructType();
    for (Expression one : asked.groupByExpressions()) {
      String name = Conditions.column(one);
      if (!"topic".equals(name) && !"partition".equals(name)) {
        return false;
      }
      names.add(name);
      results = results.add(name, "topic".equals(name) ? DataTypes.StringType : DataTypes.IntegerType);
    }
    for (AggregateFunc one : asked.aggregateExpressions()) {
      String name = total(one);
      if (name == null) {
        return false;
      }
      names.add(name);
      results = results.add(name + " " + names.size(), name.endsWith("timestamp") ? DataTypes.TimestampType : DataTypes.LongType);
    }
    if (!areAllDecided || names.isEmpty() || !Questions.areTotalsExact(options, table.schema(), names)) {
      return false;
    }
    totals = names;
    required = results;
    return true;
  }

  private static String total(AggregateFunc one) {
    // Every record has an offset.
    if (one instanceof CountStar || (one instanceof Count count && !count.isDistinct() && "offset".equals(Conditions.column(count.column())))) {
      return "count";
    }
    if (one instanceof Max max) {
      String name = Conditions.column(max.column());
      return name != null && HAVE_MAXIMUM.contains(name) ? "max " + name : null;
    }
    // The least timestamp is not in a header: what is there is the first record's.
    return one instanceof Min min && "offset".equals(Conditions.column(min.column())) ? "min offset" : null;
  }

  @Override
  public Scan build() {
    if (totals.isEmpty() && required.isEmpty()) {
      required = cheapest();
    }
    return new LogScan(table, options, required, pushed, limit, totals, top);
  }

  /** A batch of no columns has no rows in Arrow: one column stands for all. */
  private StructType cheapest() {
    StructType all = table.schema();
    for (String name : CHEAPEST) {
      if (List.of(all.fieldNames()).contains(name)) {
        return new StructType().add(all.apply(name));
      }
    }
    return new StructType().add(all.fields()[0]);
  }
}
