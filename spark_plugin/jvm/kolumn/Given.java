package kolumn;

import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/** Options as the user gave them: without what a catalog adds to those of CREATE TABLE, and without the one for this jar. */
final class Given {
  private static final Set<String> OF_CATALOGS =
      Set.of("provider", "owner", "external", "is_managed_location", "comment", "collation", "table_type");
  private static final String OPTION = "option.";

  private Given() {}

  static Map<String, String> of(Map<String, String> all) {
    boolean isTable = all.keySet().stream().map(Given::lower).anyMatch("provider"::equals);
    Map<String, String> found = new HashMap<>();
    all.forEach(
        (name, value) -> {
          String key = lower(name);
          if (isTable && key.startsWith(OPTION)) {
            putUnlessThere(found, name.substring(OPTION.length()), value);
          } else if (isTable && key.equals("location")) {
            putUnlessThere(found, "path", value);
          } else if (!key.equals("reader") && !(isTable && OF_CATALOGS.contains(key))) {
            found.keySet().removeIf(key::equalsIgnoreCase);
            found.put(name, value);
          }
        });
    found.keySet().removeIf("reader"::equalsIgnoreCase);
    return found;
  }

  private static void putUnlessThere(Map<String, String> found, String name, String value) {
    if (found.keySet().stream().noneMatch(name::equalsIgnoreCase)) {
      found.put(name, value);
    }
  }

  private static String lower(String name) {
    return name.toLowerCase(Locale.ROOT);
  }
}
