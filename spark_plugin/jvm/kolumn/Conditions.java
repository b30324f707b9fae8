package kolumn;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.unsafe.types.UTF8String;

/** Predicates of Spark as lists that Python understands (`conditions.py`); what neither knows is {@code ["?"]}. */
final class Conditions {
  private static final List<Object> UNKNOWN = List.of("?");
  private static final Set<String> OF_OTHERS = Set.of("AND", "OR", "NOT");
  private static final Set<String> OF_A_COLUMN = Set.of("IS_NULL", "IS_NOT_NULL");
  private static final Set<String> CONSTANT = Set.of("ALWAYS_TRUE", "ALWAYS_FALSE");
  private static final Set<String> COMPARISONS = Set.of("=", "<>", "<=>", "<", "<=", ">", ">=", "STARTS_WITH", "ENDS_WITH", "CONTAINS");
  private static final List<String> SIDES = List.of("<", ">", "<=", ">=", ">", "<", ">=", "<=");

  private Conditions() {}

  static List<List<Object>> of(Predicate[] predicates) {
    return Arrays.stream(predicates).map(Conditions::of).toList();
  }

  static List<Object> of(Expression one) {
    if (!(one instanceof Predicate predicate)) {
      return UNKNOWN;
    }
    String name = predicate.name();
    Expression[] parts = predicate.children();
    if (CONSTANT.contains(name)) {
      return List.of(name);
    }
    if (OF_OTHERS.contains(name)) {
      List<Object> found = new ArrayList<>(List.of(name));
      for (Expression part : parts) {
        found.add(of(part));
      }
      return found;
    }
    String column = parts.length == 0 ? null : column(parts[0]);
    if (column != null && OF_A_COLUMN.contains(name)) {
      return List.of(name, column);
    }
    if (column != null && name.equals("IN")) {
      return in(column, parts);
    }
    if (parts.length != 2 || !COMPARISONS.contains(name)) {
      return UNKNOWN;
    }
    return column != null ? comparison(name, column, parts[1]) : comparison(turned(name), column(parts[1]), parts[0]);
  }

  private static List<Object> in(String column, Expression[] parts) {
    List<Object> values = new ArrayList<>();
    for (int i = 1; i < parts.length; i++) {
      if (!isPlain(parts[i])) {
        return UNKNOWN;
      }
      values.add(value(parts[i]));
    }
    return List.of("IN", column, values);
  }

  private static List<Object> comparison(String name, String column, Expression value) {
    return name == null || column == null || !isPlain(value) ? UNKNOWN : Arrays.asList(name, column, value(value));
  }

  /** The comparison with its sides exchanged; null if there is none. */
  private static String turned(String name) {
    int at = SIDES.indexOf(name);
    return at >= 0 ? SIDES.get(at ^ 1) : Set.of("=", "<>", "<=>").contains(name) ? name : null;
  }

  /** The name of a column; null for any other expression. */
  static String column(Expression part) {
    return part instanceof NamedReference name && name.fieldNames().length == 1 ? name.fieldNames()[0] : null;
  }

  private static boolean isPlain(Expression part) {
    Object value = part instanceof Literal<?> literal ? literal.value() : part;
    return value == null || value instanceof UTF8String || value instanceof Long || value instanceof Integer;
  }

  private static Object value(Expression part) {
    Object value = ((Literal<?>) part).value();
    return value instanceof UTF8String ? value.toString() : value;
  }
}
