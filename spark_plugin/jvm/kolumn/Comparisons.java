package kolumn;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.unsafe.types.UTF8String;

/** The comparisons of a query that can be ranges of a log, as column, operator and value. */
final class Comparisons {
  private static final Set<String> COLUMNS = Set.of("offset", "timestamp", "topic", "partition");
  private static final Map<String, String> TURNED = Map.of("=", "=", "<", ">", "<=", ">=", ">", "<", ">=", "<=");

  final List<List<Object>> found = new ArrayList<>();

  /** Takes what it can of a conjunct; false if that is nothing. */
  boolean take(Predicate one) {
    Expression[] parts = one.children();
    if (one.name().equals("AND")) {
      boolean left = take((Predicate) parts[0]);
      return take((Predicate) parts[1]) || left;
    }
    if (one.name().equals("IN")) {
      List<Object> values = new ArrayList<>();
      for (int i = 1; i < parts.length; i++) {
        values.add(value(parts[i]));
      }
      return add(column(parts[0]), "in", values.isEmpty() || values.contains(null) ? null : values);
    }
    if (parts.length != 2 || !TURNED.containsKey(one.name())) {
      return false;
    }
    return column(parts[0]) != null
        ? add(column(parts[0]), one.name(), value(parts[1]))
        : add(column(parts[1]), TURNED.get(one.name()), value(parts[0]));
  }

  private boolean add(String column, String operator, Object value) {
    return column != null && value != null && found.add(List.of(column, operator, value));
  }

  /** The name of a column of records that can be compared; null for any other expression. */
  static String column(Expression part) {
    return part instanceof NamedReference name && name.fieldNames().length == 1 && COLUMNS.contains(name.fieldNames()[0])
        ? name.fieldNames()[0]
        : null;
  }

  private static Object value(Expression part) {
    Object value = part instanceof Literal<?> literal ? literal.value() : null;
    if (value instanceof UTF8String) {
      return value.toString();
    }
    return value instanceof Long || value instanceof Integer ? value : null;
  }

  @Override
  public String toString() {
    List<String> texts = new ArrayList<>();
    found.forEach(one -> texts.add(one.get(0) + " " + one.get(1) + " " + one.get(2)));
    return String.join(", ", texts);
  }
}
