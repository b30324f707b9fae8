package kolumn;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.types.StructType;

/** The first rows of an order, as Python understands it (`top.py`); what is no column is {@code "?"}. */
record Top(List<List<Object>> by, int rows) {
  static Top of(SortOrder[] orders, int rows) {
    return new Top(Arrays.stream(orders).map(Top::of).toList(), rows);
  }

  private static List<Object> of(SortOrder one) {
    String column = Conditions.column(one.expression());
    boolean isDescending = one.direction() == SortDirection.DESCENDING;
    return List.of(column == null ? "?" : column, isDescending, one.nullOrdering() == NullOrdering.NULLS_FIRST);
  }

  Map<String, Object> question(Map<String, String> options, StructType schema) {
    return Map.of("op", "top", "options", options, "schema", schema.json(), "top", this);
  }

  @Override
  public String toString() {
    return rows + " by " + by.stream().map(one -> one.get(0) + ((boolean) one.get(1) ? " DESC" : "")).collect(Collectors.joining(", "));
  }
}
